// SPDX-License-Identifier: BSD-3-Clause
// FeedbackCounter: what a process measures of its sending, for the sender feedback of the policy
// `turnout` (docs/protocol.md): how busy it is, and which messages switched a DCI to another
// target.
//
// One comparison and some increments a message. The endpoint owns it and calls it from its thread;
// it keeps one SentCount for each peer. Times are nanoseconds. No errors, no allocation after
// configure().
#pragma once

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <utility>
#include <vector>

#include "core/selection/device_costs.h"
#include "core/selection/turnout_policy.h"
#include "core/transport/wire.h"
#include "core/types/completion.h"

namespace turnout {

// Shares are thousandths (wire::kWhole).
struct Feedback {
  std::uint16_t busy = 0;       // of the sender's time, spent on messages
  std::uint16_t switched = 0;   // of its messages to the receiver, those that switched a DCI
  std::uint32_t active_rc = 0;  // queue pairs that its adapter holds for it
  std::uint16_t here = 0;       // processes of the receiver's node that it sends to, over XRC
  bool full = false;            // its budget has no room for another queue pair
};

// The same in 8 bytes, for the record of a peer.
class PackedFeedback {
 public:
  PackedFeedback() = default;
  explicit PackedFeedback(const Feedback& of) noexcept
      : bits_(of.busy | std::uint64_t{of.switched} << 10 | std::uint64_t{of.full} << 20 |
              std::uint64_t{of.here} << 21 | std::uint64_t{of.active_rc} << 37) {
    assert(of.busy < 1 << 10 && of.switched < 1 << 10 && of.active_rc < 1 << 27);
  }
  [[nodiscard]] Feedback unpacked() const noexcept {
    return {.busy = static_cast<std::uint16_t>(bits_ & 1023),
            .switched = static_cast<std::uint16_t>(bits_ >> 10 & 1023),
            .active_rc = static_cast<std::uint32_t>(bits_ >> 37),
            .here = static_cast<std::uint16_t>(bits_ >> 21 & 0xffff),
            .full = (bits_ >> 20 & 1) != 0};
  }
  // As the selection counts: shares of 1.
  [[nodiscard]] selection::SenderFeedback of_sender() const noexcept {
    const Feedback feedback = unpacked();
    const auto share = [](std::uint16_t thousandths) {
      return static_cast<float>(thousandths) / static_cast<float>(wire::kWhole);
    };
    return {.busy = share(feedback.busy),
            .switched = share(feedback.switched),
            .active_rc = feedback.active_rc,
            .here = feedback.here,
            .full = feedback.full};
  }

 private:
  std::uint64_t bits_ = 0;
};

// Messages to one peer in the current interval, and those that switched a DCI.
struct SentCount {
  std::uint32_t sent = 0;
  std::uint32_t switched = 0;
};

class FeedbackCounter {
 public:
  // `initiators`: DCIs for data. `switches`: false over UD, where queue pairs have no target.
  void configure(std::size_t initiators, bool switches) {
    targets_.assign(initiators, kAnyPeer);
    switches_ = switches;
  }

  // A message to `peer` was posted. One over RC counts as if it had gone over the peer's initiator,
  // so that the feedback says what going back would cost. An initiator's first target is no switch:
  // it says nothing about those that follow.
  void count(SentCount& to, PeerId peer, std::size_t initiator) noexcept {
    ++to.sent;
    ++sent_;
    const PeerId before = std::exchange(targets_[initiator], peer);
    if (before == peer || before == kAnyPeer || !switches_) return;
    ++to.switched;
    ++switched_;
  }

  // Messages since the latest end_interval().
  [[nodiscard]] std::uint64_t sent() const noexcept { return sent_; }
  // An interval of so many ns ends, in which so many messages were received.
  void end_interval(const selection::DeviceCosts& costs, std::uint64_t received, double interval) {
    busy_ = selection::busy_share(costs, std::exchange(sent_, 0), std::exchange(switched_, 0),
                                  received, interval);
  }
  // The share of that interval spent on messages, 0 to 1; as Feedback has it.
  [[nodiscard]] double busy() const noexcept { return busy_; }
  [[nodiscard]] std::uint16_t busy_thousandths() const noexcept { return thousandths(busy_); }
  // The part of a peer's messages that switched a DCI, in thousandths; its counts begin anew.
  [[nodiscard]] static std::uint16_t take_switched(SentCount& to) noexcept {
    const std::uint32_t sent = std::exchange(to.sent, 0), switched = std::exchange(to.switched, 0);
    return sent == 0 ? std::uint16_t{0} : thousandths(static_cast<double>(switched) / sent);
  }
  // Whether a value changed enough to be worth a message: by a fifth, and by more than the noise of
  // small shares.
  [[nodiscard]] static bool changes(const Feedback& reported, const Feedback& now) noexcept {
    return changed(reported.busy, now.busy) || changed(reported.switched, now.switched) ||
           changed(reported.active_rc, now.active_rc) ||
           changed(std::uint32_t{reported.here}, std::uint32_t{now.here}) ||
           reported.full != now.full;
  }

 private:
  static constexpr int kNoise = 20;  // thousandths

  static bool changed(std::uint16_t from, std::uint16_t to) noexcept {
    const int difference = std::abs(int{to} - int{from});
    return difference > kNoise && 5 * difference > std::max(int{from}, int{to});
  }
  static bool changed(std::uint32_t from, std::uint32_t to) noexcept {
    return 5 * (from > to ? from - to : to - from) > std::max(from, to);
  }

  static std::uint16_t thousandths(double share) noexcept {
    return static_cast<std::uint16_t>(std::lround(std::clamp(share, 0.0, 1.0) * wire::kWhole));
  }

  std::vector<PeerId> targets_;  // of each initiator's latest message
  bool switches_ = true;
  std::uint64_t sent_ = 0, switched_ = 0;  // in the interval
  double busy_ = 0;
};

}  // namespace turnout
