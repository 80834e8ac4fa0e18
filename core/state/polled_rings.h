// SPDX-License-Identifier: BSD-3-Clause
// PolledRings: the peers whose rings the endpoint polls, in two lists: active and silent rings.
// Every round of progress polls the active ones. It also polls the silent ones if it and the round
// before found nothing, or after a number of rounds that doubles each time, up to
// selection::kSilentRounds. So a process that is busy with others does not pay for silent rings,
// and one that waits, or calls progress rarely, polls all of them. A ring becomes active with its
// next message, and silent after kLookBack to 2 kLookBack busy rounds without one.
//
// No clock. Owned by the endpoint, the peers not; one thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/selection/costs.h"
#include "core/state/peer.h"

namespace turnout {

class PolledRings {
 public:
  // Busy rounds without a message. Far more than the completions between two messages of an active
  // peer. The next message of a silent ring is delayed by at most kSilentRounds busy rounds.
  static constexpr std::uint32_t kLookBack = 256;

  void add(Peer& peer) {
    remove(peer);
    peer.rx.ring_poll = RingPoll::speaking;
    peer.rx.ring_spoke = true;
    speaking_.push_back(&peer);
  }
  void remove(Peer& peer) noexcept {
    if (peer.rx.ring_poll != RingPoll::none) std::erase(list_of(peer), &peer);
    peer.rx.ring_poll = RingPoll::none;
  }
  // A message arrived in it, or it is to be polled like an active one.
  void spoke(Peer& peer) {
    peer.rx.ring_spoke = true;
    if (peer.rx.ring_poll != RingPoll::silent) [[likely]]
      return;
    add(peer);
    every_ = until_silent_ = 1;
  }

  [[nodiscard]] std::vector<Peer*>& speaking() noexcept { return speaking_; }
  [[nodiscard]] std::vector<Peer*>& silent() noexcept { return silent_; }

  // At the end of each round, which was busy if it found anything. Returns whether to poll the
  // silent rings too; if not, messages may be waiting there.
  [[nodiscard]] bool silent_due(bool busy) {
    if (busy && --until_look_ == 0) [[unlikely]]
      look_back();
    const bool waits = !busy && idle_;
    idle_ = !busy;
    if (!waits) {
      if (--until_silent_ > 0) return false;
      every_ = std::min(2 * every_, selection::kSilentRounds);
    }
    until_silent_ = every_;
    return true;
  }

 private:
  [[nodiscard]] std::vector<Peer*>& list_of(const Peer& peer) noexcept {
    return peer.rx.ring_poll == RingPoll::speaking ? speaking_ : silent_;
  }
  void look_back() {
    until_look_ = kLookBack;
    std::erase_if(speaking_, [this](Peer* peer) {
      if (std::exchange(peer->rx.ring_spoke, false)) return false;
      peer->rx.ring_poll = RingPoll::silent;
      silent_.push_back(peer);
      return true;
    });
  }

  std::vector<Peer*> speaking_, silent_;
  std::uint32_t every_ = 1, until_silent_ = 1;
  std::uint32_t until_look_ = kLookBack;
  bool idle_ = false;  // the latest round was not busy
};

}  // namespace turnout
