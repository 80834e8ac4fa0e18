// SPDX-License-Identifier: BSD-3-Clause
#include "core/channels/decision_outcomes.h"

#include <algorithm>

#include "base/log.h"

namespace turnout {
namespace {
constexpr double kLatestSetUp = 0.25;  // weight of the latest set-up
}  // namespace

void DecisionOutcomes::done(Peer& peer) {
  const Nanoseconds took = context_.clock.now() - peer.change->requested_at;
  decided(peer, fmt::format("done in {} us", took / 1000));
  if (eviction_.active() && peer.connection->eviction.connected_at >= peer.change->requested_at &&
      over_rc(peer.rx.kind)) {
    peer.connect().eviction.cost = static_cast<double>(took);
  }
  if (context_.traits.uses_feedback && over_ring(peer.rx.kind)) {
    ChannelChange& change = peer.change.make();
    change.use = {};
    if (!change.predicted)
      change.to_repay = over_rc(peer.rx.kind) ? selection::rc_price(context_.costs)
                                              : context_.costs.setup_dc_processor.value;
  }
  peer.change.make().refusals = 0;
  events_.continue_disconnect(peer);
  const ChannelKind next =
      std::exchange(peer.change.make().final_channel, context_.default_channel);
  if (over_ring(next) && peer.rx.kind == ChannelKind::dc_rdma) {
    const std::string reason = peer.change->reason;
    events_.change_channel(peer, next, ChannelKind::dc_rdma, reason, peer.change->predicted_gain);
  }
  if (when_done_) when_done_();
}

// A peer that falls silent before its savings repay the set-up of its ring or queue pair indicates
// that the pattern of one window does not continue in the next.
void DecisionOutcomes::count_repaid(Peer& peer, std::uint32_t messages, bool at_message) {
  const selection::CostModel costs = selection::cost_model(
      context_.costs, static_cast<std::uint32_t>(context_.settings.ring_entries));
  const double saved = saved_by_a_message(peer, costs);
  const bool serves = over_ring(peer.rx.kind) && (messages > 0 || at_message);
  double& to_repay = peer.change.make().to_repay;
  to_repay -= serves ? messages * std::max(saved, 0.0) : 0;
  if (serves && to_repay > 0) return;
  note_set_up(to_repay <= 0);
  to_repay = 0;
}

double DecisionOutcomes::saved_by_a_message(const Peer& peer,
                                            const selection::CostModel& costs) const noexcept {
  return over_rc(peer.rx.kind)
             ? costs.saving_rc_rdma + static_cast<double>(peer.rx.feedback.of_sender().switched) *
                                          context_.costs.sender_switch_latency.value
             : costs.saving_dc_rdma;
}

// Room comes and goes as fast as channels under `turnout`: after a set-up's time first, then after
// twice as long each time, up to what is usual.
void DecisionOutcomes::wait_after_refusal(Peer& peer, Nanoseconds usual) {
  constexpr std::uint8_t kMostDoublings = 16;
  ChannelChange& change = peer.change.make();
  Nanoseconds wait = usual;
  if (context_.traits.uses_feedback) {
    wait = std::min(usual, eviction_.setup_time() << change.refusals);
    change.refusals = std::min<std::uint8_t>(change.refusals + 1, kMostDoublings);
  }
  change.refused_until = context_.clock.now() + wait;
}

void DecisionOutcomes::note_set_up(bool repaid) noexcept {
  repaid_ += kLatestSetUp * ((repaid ? 1 : 0) - repaid_);
}

void DecisionOutcomes::decided(Peer& peer, const std::string& outcome) {
  TURNOUT_LOG(connection, info, "{}: now on {}, {}", peer.address.to_string(), name(peer.rx.kind),
              outcome);
  context_.decisions.set_outcome(peer.change->decision, outcome);
  peer.change.make().decision = 0;
}

}  // namespace turnout
