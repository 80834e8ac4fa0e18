// SPDX-License-Identifier: BSD-3-Clause
// DecisionOutcomes: what became of each decision on a channel, and the share of set-ups that repaid
// their cost, the latest weighted most.
//
// The endpoint owns it; the thread that drives the endpoint calls it. Times are nanoseconds.
#pragma once

#include <functional>

#include "core/state/component.h"

namespace turnout {

class DecisionOutcomes : Component {
 public:
  explicit DecisionOutcomes(EndpointState& state) : Component(state) {}

  void decided(Peer& peer, const std::string& outcome);
  void done(Peer& peer);  // the decision was carried out
  // Called at the end of done().
  void call_when_done(std::function<void()> call) { when_done_ = std::move(call); }
  // At a decision, of a peer with a set-up to repay and what it sent since the last one. One at a
  // message comes too soon after it to say that the peer is silent.
  void count_repaid(Peer& peer, std::uint32_t messages, bool at_message);
  void note_set_up(bool repaid) noexcept;
  // ns, on the channel that it has.
  [[nodiscard]] double saved_by_a_message(const Peer& peer,
                                          const selection::CostModel& costs) const noexcept;
  // A change failed, or the peer refused it: nothing is requested from it until then.
  void wait_after_refusal(Peer& peer, Nanoseconds usual);
  [[nodiscard]] double repaid() const noexcept { return repaid_; }

 private:
  std::function<void()> when_done_;
  double repaid_ = 1;  // share of set-ups that repaid their cost, weighted to the latest
};

}  // namespace turnout
