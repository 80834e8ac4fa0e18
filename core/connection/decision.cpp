// SPDX-License-Identifier: BSD-3-Clause
// Runs the selection once an interval and carries out its plan.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/log.h"
#include "core/endpoint/endpoint_core.h"

namespace turnout {
namespace {
constexpr double kLatestSetUp = 0.25;  // weight of the latest set-up

// A ring over DC has no queue pair, RC-SRQ and RC-SR have no ring, and XRC has only a ring.
constexpr bool has_change(ChannelKind from, ChannelKind to) noexcept {
  if (over_xrc(from)) return !over_rc(to);
  if (over_xrc(to)) return !over_rc(from);
  return !(from == ChannelKind::dc_rdma && messages_over_rc(to)) &&
         !(messages_over_rc(from) && to == ChannelKind::dc_rdma);
}
}  // namespace

// Adds the counts of the interval to the statistics. False: there are none.
bool EndpointCore::keep_counts(Nanoseconds now) {
  const selection::TimeWindow interval{interval_began_, now};
  interval_began_ = now;
  std::size_t heard = 0;
  for (const auto& peer : peers_) heard += peer->window > 0 ? 1 : 0;
  return statistics_.keep(interval, heard, [this](auto&& count) {
    for (const auto& peer : peers_) {
      if (peer->window > 0) count(peer->id, peer->window, peer->ring != nullptr);
    }
  });
}

void EndpointCore::decide(Nanoseconds now) {
  if (closing_) return;
  const bool selecting =
      (settings_.policy == "aqps" || uses_feedback_) && settings_.test_switch_every == 0;
  if (uses_feedback_) report_feedback();
  const bool kept = selecting && keep_counts(now);
  for (auto& peer : peers_) {
    if (peer->to_repay > 0) count_repaid(*peer);
    peer->window = 0;
  }
  if (!kept) return;
  std::vector<selection::SourceView> sources;
  std::uint64_t given_back = 0;
  for (const auto& peer : peers_) {
    const bool busy = peer->receive_state != ReceiveState::steady || peer->recovery;
    if (peer->lost || peer->self || busy || peer->remote_index == wire::kUnknownIndex) continue;
    selection::SourceView view;
    view.peer = peer->id;
    view.over_node = over_xrc(peer->receive_kind);
    view.current = view.over_node ? ChannelKind::rc_rdma : peer->receive_kind;
    view.rc_exists = peer->has_rc();
    view.refused = now < peer->refused_until;
    view.feedback = peer->feedback;
    sources.push_back(view);
    if (peer->ring) given_back += std::uint64_t{peer->ring->entries()} * peer->ring->entry_size();
  }
  selection::WindowInput input;
  input.sources = sources;
  input.default_channel = default_channel_;
  input.costs = selection::cost_model(costs_, static_cast<std::uint32_t>(settings_.ring_entries));
  input.limits.max_active_rc = static_cast<std::uint32_t>(settings_.max_active_rc);
  input.limits.max_channels = static_cast<std::uint32_t>(settings_.max_channels);
  input.limits.dc_rdma_available = !over_datagrams();
  input.limits.bytes_available = room_for_channels() + given_back;
  input.limits.bytes_per_ring = settings_.ring_entries * settings_.ring_entry_size;
  input.limits.bytes_per_rc = rc_bytes_;
  if (may_use_xrc()) {
    input.limits.bytes_per_target = queue_pair_bytes(QpService::dct, 0, 0, 0);
  }
  input.gain_threshold = static_cast<double>(settings_.gain_threshold);
  selection::TurnoutTerms terms;
  if (uses_feedback_) {
    terms.costs = costs_;
    terms.ring_entries = input.costs.ring_entries;
    terms.busy = feedback_.busy();
    terms.repaid = repaid_;
    terms.sending_rc = static_cast<std::uint32_t>(xrc_connections_.size());
    for (const auto& peer : peers_) {
      const bool made = peer->receive_state == ReceiveState::preparing ||
                        peer->receive_state == ReceiveState::requested;
      if (made && peer->wanted == ChannelKind::rc_rdma) ++terms.under_way;
      if (peer->has_rc() && peer->receive_kind != ChannelKind::rc_rdma) ++terms.sending_rc;
    }
    input.turnout = &terms;
  }
  carry_out(selection::select_in_windows(*statistics_.get(), window_, input), now);
}

void EndpointCore::carry_out(const selection::WindowSelection& selected, Nanoseconds now) {
  window_ = selected.next;
  if (window_.current) statistics_.get()->keep_border(window_.current->begin);
  const selection::Plan& plan = selected.plan;
  const double seconds = static_cast<double>(selected.window.length()) / 1e9;
  TURNOUT_LOG(selection, debug, "{} sources in {:.3f} s, gain {:.0f} -> {:.0f} ns, {} window, {}",
              plan.lines.size(), seconds, plan.gain_current, plan.gain_best,
              selection::name(selected.chosen), plan.changes ? "changes" : "no change");
  for (const selection::PlanLine& line : plan.lines) {
    Peer& peer = *peers_[line.peer];
    peer.verdict = line.reason;
    peer.rate = static_cast<float>(static_cast<double>(line.messages) / std::max(seconds, 1e-9));
    peer.predicted_gain = line.gain_per_message;
    if (now >= peer.refused_until) peer.reason.clear();
    if (line.to == line.from) continue;
    const std::string reason =
        fmt::format("{} ({:.0f} messages/s)", selection::explain(line.reason), peer.rate);
    // A ring over DC serves until the queue pair is ready, and is kept.
    const bool steps = uses_feedback_ && line.to == ChannelKind::rc_rdma &&
                       line.from == default_channel_ && line.fallback == ChannelKind::dc_rdma &&
                       !peer.rc;
    if (line.over_node && !has_xrc()) continue;  // the next decision knows
    const ChannelKind to = line.over_node ? ChannelKind::xrc_rdma : line.to;
    peer.final_channel = steps ? to : default_channel_;
    change_channel(peer, steps ? ChannelKind::dc_rdma : to, line.fallback, reason,
                   line.gain_per_message);
  }
}

// For policies that act on each message.
void EndpointCore::on_message_counted(Peer& peer) {
  if (settings_.test_break_every > 0) [[unlikely]]
    break_for_test(peer);
  if (peer.receive_state != ReceiveState::steady || peer.self || closing_) return;
  if (peer.eviction.disconnecting || peer.eviction.waits_for_slot || peer.recovery) [[unlikely]]
    return;
  if (settings_.test_switch_every > 0) {
    if (++peer.since_switch < settings_.test_switch_every) return;
    peer.since_switch = 0;
    // Cycles through all channel changes.
    using enum ChannelKind;
    static constexpr std::array kTour = {dc_rdma, rc_rdma,     dc_rdma, dc_sendrecv, rc_rdma,
                                         rc_srq,  dc_sendrecv, rc_srq,  rc_rdma,     dc_sendrecv};
    static constexpr std::array kNodeTour = {xrc_rdma,    dc_rdma, xrc_rdma,
                                             dc_sendrecv, dc_rdma, dc_sendrecv};
    ChannelKind to;
    if (over_datagrams()) {
      to = peer.receive_kind == default_channel_ ? rc_rdma : default_channel_;
    } else if (xrc_) {
      to = kNodeTour[peer.forced_step++ % kNodeTour.size()];
      if (to == peer.receive_kind || !has_change(peer.receive_kind, to)) return;
    } else {
      do {
        to = kTour[peer.forced_step++ % kTour.size()];
        if (to == rc_srq && has_private_receives_) to = rc_sr;
      } while (to == peer.receive_kind || !has_change(peer.receive_kind, to));
    }
    change_channel(peer, to, over_datagrams() ? default_channel_ : dc_rdma,
                   std::string(selection::explain(selection::Reason::forced)), 0);
  } else if (messages_over_rc(peer.receive_kind)) {
    const std::uint64_t count =
        has_private_receives_ ? peer.private_receives.eager : peer.received.messages();
    if (ring_threshold_ == 0 || count < ring_threshold_ ||
        (peer.refused_until != 0 && clock_.now() < peer.refused_until)) {
      return;
    }
    change_channel(peer, ChannelKind::rc_rdma, peer.receive_kind,
                   std::string(selection::explain(selection::Reason::many_messages)), 0);
  } else if (!over_connection(peer.receive_kind)) {
    ChannelKind first = first_channel(peer);
    if (peer.receive_kind == ChannelKind::dc_rdma) {  // its connection failed; the ring stayed
      if (!over_connection(first)) return;
      if (over_rc(first)) first = ChannelKind::rc_rdma;
    }
    const bool other = over_ring(first) || messages_over_rc(first);
    if (!other || (peer.refused_until != 0 && clock_.now() < peer.refused_until)) return;
    if (eviction_.active() && over_rc(first) && !may_have_slot(peer, over_ring(first))) {
      (void)request_slot(peer);
      return;
    }
    change_channel(peer, first, default_channel_,
                   std::string(selection::explain(selection::Reason::first_message)), 0);
  }
}

// The channel to request at a peer's first message.
ChannelKind EndpointCore::first_channel(const Peer& peer) {
  if (processor_ == nullptr) return first_message_;
  return processor_->first_channel(peer.address.id, address_.id, first_message_);
}

void EndpointCore::change_channel(Peer& peer, ChannelKind to, ChannelKind fallback,
                                  const std::string& reason, double gain) {
  if (peer.lost || peer.recovery || peer.remote_index == wire::kUnknownIndex ||
      peer.receive_state != ReceiveState::steady || peer.receive_kind == to ||
      !has_change(peer.receive_kind, to) || excludes(peer, to)) {
    return;
  }
  DecisionReport decision;
  decision.time = age();
  decision.peer = peer.id;
  decision.from = peer.receive_kind;
  decision.to = to;
  decision.reason = reason;
  decision.outcome = "in progress";
  peer.decision = decisions_.add(std::move(decision));
  peer.predicted_gain = gain;
  peer.reason = reason;
  if (to == default_channel_ || ring_over_connection(peer.receive_kind)) {
    request_switch_back(peer, to);
    return;
  }
  if (Status status = request_channel(peer, to, fallback); !status.ok())
    request_failed(peer, status);
}

// Our side cannot provide the channel.
void EndpointCore::request_failed(Peer& peer, const Status& status) {
  const ChannelKind instead = peer.fallback;
  const bool settles = ring_over_connection(peer.wanted) && instead == ChannelKind::dc_rdma &&
                       peer.receive_kind == default_channel_;
  if (settles && request_channel(peer, instead, instead).ok()) return;
  peer.reason = status.code() == Code::over_budget
                    ? fmt::format("left on {}: no room in this process's memory budget",
                                  messages_over_rc(peer.receive_kind) ? name(peer.receive_kind)
                                  : over_datagrams()                  ? "UD"
                                                                      : "DC")
                    : status.text();
  decided(peer, fmt::format("not done: {}", status.text()));
  peer.refused_until =
      clock_.now() + (eviction_.active() ? eviction_.slot_timeout() : settings_.interval);
  continue_disconnect(peer);
  drop_rc_if_unused(peer);
}

void EndpointCore::done(Peer& peer) {
  const Nanoseconds took = clock_.now() - peer.requested_at;
  decided(peer, fmt::format("done in {} us", took / 1000));
  if (eviction_.active() && peer.eviction.connected_at >= peer.requested_at &&
      over_rc(peer.receive_kind)) {
    peer.eviction.cost = static_cast<double>(took);
  }
  if (uses_feedback_ && over_ring(peer.receive_kind)) {
    peer.to_repay = over_rc(peer.receive_kind) ? costs_.setup_rc_processor.value
                                               : costs_.setup_dc_processor.value;
  }
  continue_disconnect(peer);
  const ChannelKind next = std::exchange(peer.final_channel, default_channel_);
  if (over_ring(next) && peer.receive_kind == ChannelKind::dc_rdma) {
    const std::string reason = peer.reason;
    change_channel(peer, next, ChannelKind::dc_rdma, reason, peer.predicted_gain);
  }
}

// Once an interval. A peer that falls silent before its savings repay the set-up of its ring or
// queue pair indicates that the pattern of one window does not continue in the next.
void EndpointCore::count_repaid(Peer& peer) {
  const selection::CostModel costs =
      selection::cost_model(costs_, static_cast<std::uint32_t>(settings_.ring_entries));
  const double saved = over_rc(peer.receive_kind)
                           ? costs.saving_rc_rdma + static_cast<double>(peer.feedback.switched) *
                                                        costs_.sender_switch_latency.value
                           : costs.saving_dc_rdma;
  const bool serves = over_ring(peer.receive_kind) && peer.window > 0;
  peer.to_repay -= serves ? static_cast<double>(peer.window) * std::max(saved, 0.0) : 0;
  if (serves && peer.to_repay > 0) return;
  note_set_up(peer.to_repay <= 0);
  peer.to_repay = 0;
}

void EndpointCore::note_set_up(bool repaid) noexcept {
  repaid_ += kLatestSetUp * ((repaid ? 1 : 0) - repaid_);
}

void EndpointCore::decided(Peer& peer, const std::string& outcome) {
  TURNOUT_LOG(connection, info, "{}: now on {}, {}", peer.address.to_string(),
              name(peer.receive_kind), outcome);
  decisions_.set_outcome(peer.decision, outcome);
  peer.decision = 0;
}

}  // namespace turnout
