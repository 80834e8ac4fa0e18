// SPDX-License-Identifier: BSD-3-Clause
// Runs the selection once an interval and carries out its plan.
#include "core/channels/channel_selector.h"
#include "base/log.h"

namespace turnout {
namespace {

constexpr std::uint8_t kMostBackoff = 20;  // doublings of an account

// A ring over DC has no queue pair, RC-SRQ and RC-SR have no ring, and XRC has only a ring.
constexpr bool has_change(ChannelKind from, ChannelKind to) noexcept {
  if (over_xrc(from)) return !over_rc(to);
  if (over_xrc(to)) return !over_rc(from);
  return !(from == ChannelKind::dc_rdma && messages_over_rc(to)) &&
         !(messages_over_rc(from) && to == ChannelKind::dc_rdma);
}
}  // namespace

// Adds the counts of the interval to the statistics. False: there are none.
bool ChannelSelector::keep_counts(Nanoseconds now) {
  const selection::TimeWindow interval{interval_began_, now};
  interval_began_ = now;
  std::size_t heard = 0;
  for (Peer& peer : peer_table_.peers()) heard += peer.rx.window > 0 ? 1 : 0;
  return context_.statistics.keep(interval, heard, [this](auto&& count) {
    for (Peer& peer : peer_table_.peers()) {
      if (peer.rx.window > 0) count(peer.id, peer.rx.window, peer.state->rx.ring != nullptr);
    }
  });
}

// Under `turnout` the intervals grow from a fraction of a set-up's time, at the start and when the
// pattern has changed.
Nanoseconds ChannelSelector::first_interval() const noexcept {
  constexpr double kOfSetUp = 4;
  if (!context_.traits.uses_feedback) return context_.settings.interval;
  const auto first =
      static_cast<Nanoseconds>(std::max(context_.costs.setup_rc_time.value / kOfSetUp, 1.0));
  return std::min(first, context_.settings.interval);
}

void ChannelSelector::begin(Nanoseconds now) noexcept {
  interval_ = first_interval();
  interval_began_ = reported_ = now;
  next_decision_ = now + interval_;
  if (context_.traits.uses_feedback) set_account();
}

// Rent or buy (docs/decisions/044-accounts.md): a source on a slower channel is looked at when what
// its messages forwent is the price of the cheapest better one. A decision looks at every peer, so
// an account is also of as many messages as there are.
void ChannelSelector::set_account() noexcept {
  constexpr double kLeast = 16, kMost = 1 << 20;
  const selection::DeviceCosts& c = context_.costs;
  const double slow = c.receiver_dc_sendrecv.value;
  const auto messages = [](double price, double saving) {
    return saving > 0 ? price / saving : kMost;
  };
  const double dc = messages(c.setup_dc_processor.value, slow - c.receiver_dc_rdma.value);
  const double rc = messages(selection::rc_price(c),
                             slow - c.receiver_rc_rdma.value + c.sender_switch_latency.value);
  account_ = static_cast<std::uint32_t>(std::clamp(std::min(dc, rc), kLeast, kMost)) +
             static_cast<std::uint32_t>(peer_table_.peers().size());
  account_full_ = false;
}

void ChannelSelector::run(Nanoseconds now) {
  if (context_.traits.uses_feedback && !context_.closing) report_feedback(now);
  const bool at_message = account_full_ && now < next_decision_;
  if (!account_full_ && now < next_decision_) return;
  if (predicts_) count_predicted();
  decide(now, at_message);
  if (predicts_) ask_predicted();
  if (context_.traits.uses_feedback) set_account();
  if (!at_message) interval_ = std::min(interval_ + interval_ / 2 + 1, context_.settings.interval);
  next_decision_ = at_message ? std::min(next_decision_, now + interval_) : now + interval_;
}

selection::Limits ChannelSelector::limits(std::uint64_t given_back) const noexcept {
  selection::Limits limits;
  limits.max_active_rc = static_cast<std::uint32_t>(context_.settings.max_active_rc);
  limits.max_channels = static_cast<std::uint32_t>(context_.settings.max_channels);
  limits.dc_rdma_available = !context_.over_datagrams();
  limits.bytes_available = peer_table_.room_for_channels() + given_back;
  limits.bytes_per_ring = peer_table_.ring_shape().bytes();
  limits.bytes_per_rc = context_.rc_bytes;
  if (xrc_nodes_.may_use_xrc()) {
    limits.bytes_per_target = queue_pair_bytes(QpService::dct, 0, 0, 0);
  }
  return limits;
}

void ChannelSelector::decide(Nanoseconds now, bool at_message) {
  if (context_.closing) return;
  const bool selecting = (context_.settings.policy == "aqps" || context_.traits.uses_feedback) &&
                         context_.settings.test_switch_every == 0;
  const Nanoseconds length = now - interval_began_;
  const bool kept = selecting && keep_counts(now);
  const bool judges_rings = kept && context_.traits.uses_feedback;
  std::uint32_t first = 0;
  if (judges_rings) {
    for (const Peer& peer : peer_table_.peers()) first = std::max(first, peer.rx.window);
  }
  std::vector<selection::SourceView> sources;
  std::uint64_t given_back = 0;
  for (Peer& peer : peer_table_.peers()) {
    const std::uint32_t messages = std::exchange(peer.rx.window, 0);
    close_account(peer, messages, at_message);
    const bool busy = peer.rx.state != ReceiveState::steady || peer.connection->recovery;
    if (!kept || peer.lost || peer.self || busy || peer.remote_index == wire::kUnknownIndex)
      continue;
    sources.push_back({.peer = peer.id,
                       .current = over_xrc(peer.rx.kind) ? ChannelKind::rc_rdma : peer.rx.kind,
                       .rc_exists = peer.connection->has_rc(),
                       .refused = now < peer.change->refused_until,
                       .over_node = over_xrc(peer.rx.kind),
                       .feedback = peer.rx.feedback.of_sender()});
    // The prediction knows better until the ring has repaid, see count_predicted().
    sources.back().stays = peer.change->predicted && over_ring(peer.rx.kind);
    if (judges_rings && over_ring(peer.rx.kind) && !sources.back().stays) {
      RingUse& use = peer.change.make().use;
      use.count(messages, first, static_cast<double>(length), at_message);
      sources.back().since = context_.born + peer.state->rx.past.since();
      sources.back().rate = use.messages / std::max(use.time, 1.0F);
      sources.back().rate_first = use.first / std::max(use.time, 1.0F);
    }
    if (peer.state->rx.ring)
      given_back +=
          std::uint64_t{peer.state->rx.ring->entries()} * peer.state->rx.ring->entry_size();
  }
  if (!kept) return;
  selection::WindowInput input;
  input.sources = sources;
  input.default_channel = context_.default_channel;
  input.costs = selection::cost_model(context_.costs,
                                      static_cast<std::uint32_t>(context_.settings.ring_entries));
  input.limits = limits(given_back);
  input.gain_threshold = static_cast<double>(context_.settings.gain_threshold);
  selection::TurnoutTerms terms;
  if (context_.traits.uses_feedback) {
    terms.costs = context_.costs;
    terms.ring_entries = input.costs.ring_entries;
    terms.repaid = outcomes_.repaid();
    terms.sending_rc = static_cast<std::uint32_t>(xrc_nodes_.xrc_connections().size());
    for (Peer& peer : peer_table_.peers()) {
      const bool made =
          peer.rx.state == ReceiveState::preparing || peer.rx.state == ReceiveState::requested;
      if (made && peer.change->wanted == ChannelKind::rc_rdma) ++terms.under_way;
      if (peer.connection->has_rc() && peer.rx.kind != ChannelKind::rc_rdma) ++terms.sending_rc;
    }
    input.turnout = &terms;
    input.at_message = at_message;
  }
  latest_.limits = input.limits;
  latest_.terms = terms;
  carry_out(selection::select_in_windows(*context_.statistics.get(), window_, input), now);
}

void ChannelSelector::close_account(Peer& peer, std::uint32_t messages, bool at_message) {
  if (messages >> peer.rx.backoff >= account_) {
    if (peer.rx.backoff < kMostBackoff) ++peer.rx.backoff;
  } else if (messages == 0 && !at_message) {
    peer.rx.backoff = 0;
  }
  if (peer.change->to_repay > 0) {
    outcomes_.count_repaid(peer, messages, at_message);
  } else if (peer.rx.verdict == selection::Reason::not_certain && !over_ring(peer.rx.kind)) {
    // What would have become of a set-up says as much as one that was made. Without it the share
    // that repays could not grow again once it is so small that nothing is certain.
    if (messages >= account_) outcomes_.note_set_up(true);
    if (messages == 0 && !at_message) outcomes_.note_set_up(false);
  }
}

void ChannelSelector::carry_out(const selection::WindowSelection& selected, Nanoseconds now) {
  window_ = selected.next;
  if (selected.plan.changes && context_.traits.uses_feedback) interval_ = first_interval();
  if (window_.current) context_.statistics.get()->keep_border(window_.current->begin);
  const selection::Plan& plan = selected.plan;
  latest_.time = now;
  latest_.window = selected.window;
  latest_.gain_current = plan.gain_current;
  latest_.gain_best = plan.gain_best;
  latest_.threshold = plan.threshold;
  const double seconds = static_cast<double>(selected.window.length()) / 1e9;
  TURNOUT_LOG(selection, debug, "{} sources in {:.3f} s, gain {:.0f} -> {:.0f} ns, {} window, {}",
              plan.lines.size(), seconds, plan.gain_current, plan.gain_best,
              selection::name(selected.chosen), plan.changes ? "changes" : "no change");
  std::uint64_t counted = 0;  // more than came, where a young ring's source is expected to go on
  for (const selection::PlanLine& line : plan.lines) {
    counted += line.messages;
    Peer& peer = peer_table_.peers()[line.peer];
    peer.rx.verdict = line.reason;
    peer.rx.rate = static_cast<float>(static_cast<double>(line.messages) / std::max(seconds, 1e-9));
    if (peer.change->predicted_gain != line.gain_per_message)
      peer.change.make().predicted_gain = line.gain_per_message;
    if (now >= peer.change->refused_until && !peer.change->reason.empty())
      peer.change.make().reason.clear();
    if (line.to == line.from) continue;
    const std::string reason =
        fmt::format("{} ({:.0f} messages/s)", selection::explain(line.reason), peer.rx.rate);
    if (line.over_node && !xrc_nodes_.has_xrc()) continue;  // the next decision knows
    peer.change.make().predicted = false;
    change_in_steps(peer, line.over_node ? ChannelKind::xrc_rdma : line.to, line.fallback, reason,
                    line.gain_per_message);
  }
  latest_.messages = std::max(selected.messages, counted);
  if (context_.traits.uses_feedback) latest_.terms.busy = selected.busy;
}

// A ring over DC serves until the queue pair is ready, and is kept.
void ChannelSelector::change_in_steps(Peer& peer, ChannelKind to, ChannelKind fallback,
                                      const std::string& reason, double gain) {
  const bool steps = context_.traits.uses_feedback && over_connection(to) && over_ring(to) &&
                     peer.rx.kind == context_.default_channel && fallback == ChannelKind::dc_rdma &&
                     !peer.connection->rc;
  peer.rx.backoff = 0;
  peer.change.make().final_channel = steps ? to : context_.default_channel;
  change_channel(peer, steps ? ChannelKind::dc_rdma : to, fallback, reason, gain);
}

// For policies that act on each message.
void ChannelSelector::on_message_counted(Peer& peer) {
  if (peer.rx.window >> peer.rx.backoff >= account_) account_full_ = true;
  if (context_.settings.test_break_every > 0) [[unlikely]]
    recovery_.break_for_test(peer);
  if (peer.rx.state != ReceiveState::steady || peer.self || context_.closing) return;
  if (peer.connection->eviction.disconnecting || peer.connection->eviction.waits_for_slot ||
      peer.connection->recovery) [[unlikely]]
    return;
  if (context_.settings.test_switch_every > 0) {
    ChannelChange& change = peer.change.make();
    if (++change.since_switch < context_.settings.test_switch_every) return;
    change.since_switch = 0;
    // Cycles through all channel changes.
    using enum ChannelKind;
    static constexpr std::array kTour = {dc_rdma, rc_rdma,     dc_rdma, dc_sendrecv, rc_rdma,
                                         rc_srq,  dc_sendrecv, rc_srq,  rc_rdma,     dc_sendrecv};
    static constexpr std::array kNodeTour = {xrc_rdma,    dc_rdma, xrc_rdma,
                                             dc_sendrecv, dc_rdma, dc_sendrecv};
    ChannelKind to;
    if (context_.over_datagrams()) {
      to = peer.rx.kind == context_.default_channel ? rc_rdma : context_.default_channel;
    } else if (resources_.xrc) {
      to = kNodeTour[change.forced_step++ % kNodeTour.size()];
      if (to == peer.rx.kind || !has_change(peer.rx.kind, to)) return;
    } else {
      do {
        to = kTour[change.forced_step++ % kTour.size()];
        if (to == rc_srq && context_.traits.has_private_receives) to = rc_sr;
      } while (to == peer.rx.kind || !has_change(peer.rx.kind, to));
    }
    change_channel(peer, to, context_.over_datagrams() ? context_.default_channel : dc_rdma,
                   std::string(selection::explain(selection::Reason::forced)), 0);
  } else if (messages_over_rc(peer.rx.kind)) {
    const std::uint64_t count = context_.traits.has_private_receives
                                    ? peer.state->rx.private_queue.eager
                                    : peer.rx.carried.messages;
    if (context_.traits.ring_threshold == 0 || count < context_.traits.ring_threshold ||
        (peer.change->refused_until != 0 && context_.clock.now() < peer.change->refused_until)) {
      return;
    }
    change_channel(peer, ChannelKind::rc_rdma, peer.rx.kind,
                   std::string(selection::explain(selection::Reason::many_messages)), 0);
  } else if (!over_connection(peer.rx.kind)) {
    ChannelKind first = first_channel(peer);
    if (peer.rx.kind == ChannelKind::dc_rdma) {  // its connection failed; the ring stayed
      if (!over_connection(first)) return;
      if (over_rc(first)) first = ChannelKind::rc_rdma;
    }
    const bool other = over_ring(first) || messages_over_rc(first);
    if (!other ||
        (peer.change->refused_until != 0 && context_.clock.now() < peer.change->refused_until))
      return;
    if (eviction_.active() && over_rc(first) && !slots_.may_have_slot(peer, over_ring(first))) {
      (void)slots_.request_slot(peer);
      return;
    }
    change_channel(peer, first, context_.default_channel,
                   std::string(selection::explain(selection::Reason::first_message)), 0);
  }
}

// The channel to request at a peer's first message.
ChannelKind ChannelSelector::first_channel(const Peer& peer) {
  const PolicyOverride* const policy = context_.simulation.policy;
  if (policy == nullptr || !policy->first_channel) return context_.traits.first_message;
  return policy->first_channel(peer.address.id, context_.address.id, context_.traits.first_message);
}

void ChannelSelector::change_channel(Peer& peer, ChannelKind to, ChannelKind fallback,
                                     const std::string& reason, double gain) {
  if (peer.lost || peer.connection->recovery || peer.remote_index == wire::kUnknownIndex ||
      peer.rx.state != ReceiveState::steady || peer.rx.kind == to ||
      !has_change(peer.rx.kind, to) || ChannelNegotiator::excludes(peer, to)) {
    return;
  }
  ChannelChange& change = peer.change.make();
  change.decision = context_.decisions.add({.time = context_.age(),
                                            .peer = peer.id,
                                            .from = peer.rx.kind,
                                            .to = to,
                                            .reason = reason,
                                            .outcome = "in progress"});
  change.predicted_gain = gain;
  change.reason = reason;
  if (to == context_.default_channel || ring_over_connection(peer.rx.kind))
    return negotiator_.request_switch_back(peer, to);
  if (Status status = negotiator_.request_channel(peer, to, fallback); !status.ok())
    request_failed(peer, status);
}

// Our side cannot provide the channel.
void ChannelSelector::request_failed(Peer& peer, const Status& status) {
  const ChannelKind instead = peer.change->fallback;
  const bool settles = ring_over_connection(peer.change->wanted) &&
                       instead == ChannelKind::dc_rdma && peer.rx.kind == context_.default_channel;
  if (settles && negotiator_.request_channel(peer, instead, instead).ok()) return;
  peer.change.make().reason =
      status.code() == Code::over_budget
          ? fmt::format("left on {}: no room in this process's memory budget",
                        messages_over_rc(peer.rx.kind) ? name(peer.rx.kind)
                        : context_.over_datagrams()    ? "UD"
                                                       : "DC")
          : status.text();
  outcomes_.decided(peer, fmt::format("not done: {}", status.text()));
  outcomes_.wait_after_refusal(
      peer, eviction_.active() ? eviction_.slot_timeout() : context_.settings.interval);
  slots_.continue_disconnect(peer);
  rc_.drop_rc_if_unused(peer);
}

}  // namespace turnout
