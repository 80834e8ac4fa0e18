// SPDX-License-Identifier: BSD-3-Clause
#include "cli/why_model.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace turnout::cli {
namespace {

using selection::SourceView;

// More than any window or memory has; sums of a few stay in range.
constexpr std::uint64_t kMostMessages = std::uint64_t{1} << 40;
constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 44;
constexpr std::uint32_t kMany = 1u << 24;

// The smallest n in (low, most] that `holds`, which goes on holding; absent: not even `most` does.
template <class Holds>
std::optional<std::uint64_t> least(std::uint64_t low, std::uint64_t most, Holds&& holds) {
  std::uint64_t step = 1, high = low;
  do {
    if (high >= most) return std::nullopt;
    low = high;
    high = std::min(most, high + step);
    step *= 2;
  } while (!holds(high));
  while (high - low > 1) {
    const std::uint64_t middle = low + (high - low) / 2;
    (holds(middle) ? high : low) = middle;
  }
  return high;
}

int rank_of(ChannelKind kind) {
  return kind == ChannelKind::dc_rdma ? 1 : over_ring(kind) ? 2 : 0;
}

selection::DeviceCosts costs_of(const SelectionReport& report) {
  selection::DeviceCosts costs;
  for (const selection::CostRow& row : selection::cost_table()) {
    for (const CostReport& cost : report.costs) {
      const std::string_view name = cost.name;
      if (name.size() != row.group.size() + 1 + row.name.size() || !name.starts_with(row.group) ||
          !name.ends_with(row.name))
        continue;
      costs.*
          row.field = {std::clamp(cost.value, 0.0, 1e12), std::clamp(cost.uncertainty, 0.0, 1e3)};
    }
  }
  return costs;
}

// The channel that it was on when the selection was made: before the first change asked for since.
ChannelKind channel_then(const EndpointReport& receiver, const PeerReport& peer) {
  for (const DecisionReport& decision : receiver.decisions) {
    if (decision.peer == peer.peer && decision.time >= receiver.selection->time)
      return decision.from;
  }
  return peer.receive.spans.empty() ? receiver.selection->default_channel
                                    : peer.receive.spans.back().channel;
}

SourceView view_of(const EndpointReport& receiver, const PeerReport& peer) {
  const SourceReport source = peer.source.value_or(SourceReport{});
  const ChannelKind then = channel_then(receiver, peer);
  const bool changed = !peer.receive.spans.empty() && peer.receive.spans.back().channel != then;
  SourceView view{.peer = peer.peer,
                  .current = over_xrc(then) ? ChannelKind::rc_rdma : then,
                  .messages = std::min(source.messages, kMostMessages),
                  .rc_exists = source.connected && !changed,
                  .refused = source.refused_for > 0,
                  .over_node = over_xrc(then)};
  view.feedback = {.busy = static_cast<float>(std::clamp(source.busy, 0.0, 1.0)),
                   .switched = static_cast<float>(std::clamp(source.switched, 0.0, 1.0)),
                   .active_rc = source.active_rc,
                   .here = static_cast<std::uint16_t>(std::min(source.here, 0xffffu)),
                   .full = source.full};
  return view;
}

}  // namespace

std::optional<PairSelection> PairSelection::of(const EndpointReport& receiver,
                                               const PeerReport& source) {
  if (!receiver.selection || (receiver.policy != "turnout" && receiver.policy != "aqps"))
    return std::nullopt;
  return PairSelection(receiver, source);
}

PairSelection::PairSelection(const EndpointReport& receiver, const PeerReport& source)
    : report_(&*receiver.selection), turnout_(receiver.policy == "turnout") {
  const SelectionReport& r = *report_;
  for (const PeerReport& peer : receiver.peers) {
    if (&peer == &source) {
      place_ = case_.sources.size();
    } else if (!peer.source || peer.lost) {
      continue;
    }
    case_.sources.push_back(view_of(receiver, peer));
  }
  case_.terms = {.costs = costs_of(r),
                 .ring_entries = std::max(r.ring_entries, 1u),
                 .busy = r.busy,
                 .repaid = std::clamp(r.repaid, 0.0, 1.0),
                 .under_way = r.under_way,
                 .sending_rc = r.sending_rc};
  case_.limits = {.max_active_rc = std::min(r.max_active_rc, kMany),
                  .max_channels = std::min(r.max_channels, kMany),
                  .dc_rdma_available = r.dc_rdma,
                  .bytes_available = std::min(r.bytes_available, kMostBytes),
                  .bytes_per_ring = std::min(r.bytes_per_ring, kMostBytes),
                  .bytes_per_rc = std::min(r.bytes_per_rc, kMostBytes),
                  .bytes_per_target = std::min(r.bytes_per_target, kMostBytes)};
  case_.messages = std::min(r.messages, kMostMessages);
  plan_ = select(case_);
  line_ = line_of(case_);
}

selection::Plan PairSelection::select(const Case& of) const {
  if (turnout_) {
    return selection::select_turnout({of.sources, of.terms, of.limits, of.messages,
                                      report_->default_channel,
                                      static_cast<double>(report_->window)});
  }
  return selection::select_aqps(
      {of.sources, selection::cost_model(of.terms.costs, of.terms.ring_entries), of.limits,
       report_->gain_threshold, of.messages, report_->default_channel});
}

selection::PlanLine PairSelection::line_of(const Case& of) const {
  const selection::Plan plan = select(of);
  const auto found = std::ranges::find(plan.lines, at(of).peer, &selection::PlanLine::peer);
  return found != plan.lines.end() ? *found : selection::PlanLine{};
}

ChannelKind PairSelection::chosen(const Case& of) const {
  const selection::PlanLine line = line_of(of);
  return line.over_node ? ChannelKind::xrc_rdma : line.to;
}

bool PairSelection::better(ChannelKind kind) const {
  return rank_of(kind) > rank_of(line_.to);
}

PairSelection::Case PairSelection::with_messages(Case of, std::uint64_t messages) const {
  of.messages = of.messages - std::min(of.messages, at(of).messages) + messages;
  at(of).messages = messages;
  return of;
}

PairSelection::Case PairSelection::without_limits(Case of) const {
  of.limits.max_active_rc = of.limits.max_channels = kMany;
  of.limits.bytes_available = kMostBytes;
  of.terms.under_way = 0;
  at(of).refused = false;
  at(of).feedback.full = false;
  return of;
}

// ns in the window, of all sources, if the source had the channel already.
double PairSelection::gain_on(ChannelKind kind) const {
  Case of = without_limits(case_);
  SourceView& source = at(of);
  source.current = over_xrc(kind) ? ChannelKind::rc_rdma : kind;
  source.over_node = over_xrc(kind);
  source.rc_exists = over_connection(kind);
  return select(of).gain_current;
}

// With everybody else's channel as it is, and none of its own.
std::optional<std::uint64_t> PairSelection::chosen_from(ChannelKind kind) const {
  Case of = without_limits(case_);
  for (SourceView& source : of.sources) source.refused = true;
  SourceView& source = at(of);
  source.refused = source.rc_exists = source.over_node = false;
  source.current = report_->default_channel;
  if (kind == ChannelKind::dc_rdma) of.limits.max_active_rc = 0, source.feedback.here = 0;
  if (kind == ChannelKind::rc_rdma) of.limits.dc_rdma_available = false;
  return least(0, kMostMessages, [&](std::uint64_t messages) {
    return line_of(with_messages(of, messages)).to == kind;
  });
}

std::vector<WhyChannel> PairSelection::channels() const {
  const selection::DeviceCosts& costs = case_.terms.costs;
  const selection::Limits& limits = case_.limits;
  const SourceView& source = at(case_);
  const double n = static_cast<double>(source.messages);
  const double without = n > 0 ? gain_on(report_->default_channel) : 0;
  const bool ring = over_ring(source.current);
  std::vector<WhyChannel> out(1);
  out[0].kind = report_->default_channel;
  out[0].exists = true;
  for (const ChannelKind kind :
       {ChannelKind::dc_rdma, ChannelKind::rc_rdma, ChannelKind::xrc_rdma}) {
    WhyChannel& channel = out.emplace_back();
    channel.kind = kind;
    channel.bytes = limits.bytes_per_ring;
    if (kind == ChannelKind::dc_rdma) {
      channel.possible = limits.dc_rdma_available;
      channel.processor = costs.setup_dc_processor.value;
      channel.exists = ring;
    } else {
      const bool node = over_xrc(kind);
      channel.possible = !node || (turnout_ && limits.bytes_per_target > 0);
      channel.processor = costs.setup_rc_processor.value;
      channel.time = costs.setup_rc_time.value;
      channel.bytes += node ? limits.bytes_per_target : limits.bytes_per_rc;
      const bool connected = source.rc_exists || source.current == ChannelKind::rc_rdma;
      channel.exists = connected && source.over_node == node;
    }
    if (!channel.possible) continue;
    if (n > 0) channel.saved = (gain_on(kind) - without) / n;
    if (!over_xrc(kind)) channel.from = chosen_from(kind);
  }
  return out;
}

std::vector<WhyChange> PairSelection::changes() const {
  using enum WhyChange::What;
  std::vector<WhyChange> out;
  const SourceView& source = at(case_);
  const auto attempt = [&](WhyChange::What what, Case of) {
    const ChannelKind to = chosen(of);
    if (better(to)) out.push_back({what, 0, to});
  };
  const auto count = [&](WhyChange::What what, std::uint64_t now, std::uint64_t most, auto&& with) {
    const auto needed =
        least(now, most, [&](std::uint64_t amount) { return better(chosen(with(amount))); });
    if (needed) out.push_back({what, *needed - now, chosen(with(*needed))});
  };
  Case of = case_;
  at(of).refused = false;
  if (source.refused) attempt(refusal, of);
  if (!source.refused) {
    count(messages, source.messages, kMostMessages,
          [&](std::uint64_t amount) { return with_messages(case_, amount); });
  }
  count(budget, case_.limits.bytes_available, 2 * kMostBytes, [&](std::uint64_t bytes) {
    Case with = case_;
    with.limits.bytes_available = bytes;
    return with;
  });
  if (source.feedback.full) {
    of = case_;
    at(of).feedback.full = false;
    attempt(budget_of_source, of);
  }
  of = case_;
  of.limits.max_channels = kMany;
  attempt(channel_limit, of);
  of = case_;
  of.limits.max_active_rc = kMany;
  attempt(queue_pair_limit, of);
  if (turnout_) {
    of = case_;
    of.terms.costs.context_first_beyond.value = of.terms.costs.context_second_beyond.value = 0;
    attempt(contexts, of);
    of = case_;
    of.terms.busy = 0;
    at(of).feedback.busy = 0;
    attempt(waiting, of);
    if (case_.terms.under_way > 0) {
      of = case_;
      of.terms.under_way = 0;
      attempt(under_way, of);
    }
  }
  return out;
}

}  // namespace turnout::cli
