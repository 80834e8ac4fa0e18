// SPDX-License-Identifier: BSD-3-Clause
#include "core/selection/turnout_policy.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "core/selection/turnout_selector.h"

namespace turnout::selection {

namespace {

// How much of a latency is waited for: a uniform part's deviation.
const double kWaitedFor = 1 / std::sqrt(12.0);
// Of a queue pair, ns. Where it is made beside the program it takes nearly nothing of it, but
// memory at two ends, and time of the driver that others wait for. [AQPS Table 2: rho]
constexpr double kLeastRcPrice = 10'000;

}  // namespace

double rc_price(const DeviceCosts& c) {
  return std::max(c.setup_rc_processor.value, kLeastRcPrice);
}

double context_loss(const DeviceCosts& c, double active) {
  const auto beyond = [active](double entries, double loss) {
    return active > entries ? loss * (1 - entries / active) : 0;
  };
  return beyond(c.context_first_entries.value, c.context_first_beyond.value) +
         beyond(c.context_second_entries.value, c.context_second_beyond.value);
}

TurnoutSelector::TurnoutSelector(const TurnoutInput& input)
    : ChannelMaps(input.limits, input.default_channel),
      input_(input),
      costs_(input.terms.costs),
      chosen_(input.sources.size()) {
  for (const SourceView& s : input.sources) {
    lead_ = std::max(lead_, static_cast<double>(s.messages));
    all_messages_ += static_cast<double>(s.messages);
  }
  if (input.messages > 0) all_messages_ = static_cast<double>(input.messages);
  waits_ = (1 - busy_receiver()) * all_messages_;
  choose_sources();
  shares_.reserve(sources_.size());
  for (const SourceView& s : sources_) shares_.push_back(share(s));
  nodes_ = input.limits.bytes_per_target > 0 && needs_too_much();
}

// Of what pays, with queue pairs of the pairs' own.
bool TurnoutSelector::needs_too_much() const {
  std::uint64_t needed = 0, queue_pairs = 0;
  for (std::size_t i = 0; i < sources_.size(); ++i) {
    if (fixed(sources_[i])) {
      needed += bytes(sources_[i], sources_[i].current);
    } else if (std::max(shares_[i].rc, shares_[i].dc) > 0) {
      const bool rc = shares_[i].rc > shares_[i].dc;
      if (rc) ++queue_pairs;
      needed += bytes(sources_[i], rc ? ChannelKind::rc_rdma : ChannelKind::dc_rdma);
    }
  }
  return needed > input_.limits.bytes_available || queue_pairs > input_.limits.max_active_rc;
}

// A young ring is worth what its use says. What a queue pair in its place would add is of the
// messages that came, as for sources without a ring: they compete for room.
Share TurnoutSelector::share(const SourceView& s) const {
  const auto messages = static_cast<double>(s.messages);
  const Share counted = share(s, messages, waits_);
  if (s.expected <= messages) return counted;
  const double waits = lead_ > 0 ? s.expected_first * waits_ / lead_ : s.expected_first;
  Share out = share(s, s.expected, waits);
  if (rc_exists(s)) return out;
  out.rc = out.dc + counted.rc - counted.dc;
  out.rc_waited = out.dc_waited + counted.rc_waited - counted.dc_waited;
  out.rc_busy = out.dc_busy + counted.rc_busy - counted.dc_busy;
  return out;
}

Share TurnoutSelector::share(const SourceView& s, double n, double waits) const {
  const DeviceCosts& c = costs_;
  const double busy_sender = std::clamp<double>(s.feedback.busy, 0, 1);
  const double busy_receiver = this->busy_receiver();
  const double busy = std::max(busy_sender, busy_receiver);
  const double switched = std::clamp<double>(s.feedback.switched, 0, 1);
  const double d = c.receiver_dc_sendrecv.value - c.receiver_dc_rdma.value;
  const double r = c.receiver_dc_sendrecv.value - c.receiver_rc_rdma.value;
  const double post_dc =
      c.sender_post_dc.value + switched * (c.sender_post_dc_switch.value - c.sender_post_dc.value);
  const double credit = c.receiver_credit.value / std::max(input_.terms.ring_entries, 1u);
  const double polls = waits * c.receiver_poll.value;
  // A busy receiver's part of the credits is in what a message takes it.
  const double ring = n * (1 - busy_receiver) * credit + (n > 0 ? polls : silent_share(polls));
  Share out;
  out.dc_waited = n * (1 - busy) * d;
  out.rc_waited = n * (1 - busy) * (r + switched * c.sender_switch_latency.value);
  const double busy_slow = n * busy_receiver * c.receiver_busy_dc_sendrecv.value;
  out.dc_busy = busy_slow - n * busy_receiver * c.receiver_busy_dc_rdma.value;
  out.rc_busy = busy_slow - n * busy_receiver * c.receiver_busy_rc_rdma.value;
  double sending = n * busy_sender * (post_dc - c.sender_post_rc.value);
  if (!rc_exists(s) && input_.window > 0) {
    const double served = input_.window / (input_.window + c.setup_rc_time.value);
    const bool ring_meanwhile = input_.limits.dc_rdma_available && out.dc_waited + out.dc_busy > 0;
    const double meanwhile = ring_meanwhile ? 1 - served : 0;
    out.rc_waited = served * out.rc_waited + meanwhile * out.dc_waited;
    out.rc_busy = served * out.rc_busy + meanwhile * out.dc_busy;
    sending *= served;
  }
  out.dc = out.dc_waited + out.dc_busy - ring;
  out.rc = out.rc_waited + out.rc_busy + sending - ring;
  const auto set_up = [&](double gained, double cost) {
    return gained * (gained > 0 ? input_.terms.repaid : 1) - cost;
  };
  if (!over_ring(s.current)) out.dc = set_up(out.dc, c.setup_dc_processor.value);
  if (!rc_exists(s)) out.rc = set_up(out.rc, rc_price(c));
  if (has_no_room(s)) out.rc = kNever;
  if (!input_.limits.dc_rdma_available && s.current != ChannelKind::dc_rdma) out.dc = kNever;
  return out;
}

TurnoutSelector::Contexts TurnoutSelector::contexts_of(const Map& map) const {
  Contexts out{static_cast<double>(input_.terms.sending_rc), 0};
  for (std::size_t i = 0; i < map.size(); ++i) {
    if (map[i] != ChannelKind::rc_rdma) continue;
    out.active += 1;
    out.operations += messages(i);
  }
  return out;
}

double TurnoutSelector::contexts(const Map& map) const {
  double theirs = 0;
  for (std::size_t i = 0; i < map.size(); ++i) {
    if (map[i] == ChannelKind::rc_rdma) theirs += shares_[i].rc - rc_value(i);
  }
  return theirs + loss(contexts_of(map));
}

double TurnoutSelector::gain(const Map& map) const {
  double sum = 0;
  for (std::size_t i = 0; i < map.size(); ++i) {
    if (map[i] == ChannelKind::dc_rdma) sum += shares_[i].dc;
    if (map[i] == ChannelKind::rc_rdma) sum += rc_value(i);
  }
  return sum - loss(contexts_of(map));
}

std::uint32_t TurnoutSelector::most_new_rc() const {
  const double time = costs_.setup_rc_time.value;
  if (input_.window <= 0 || time <= 0) return std::numeric_limits<std::uint32_t>::max();
  const auto fit = static_cast<std::uint32_t>(std::clamp(input_.window / time, 1.0, 1e6));
  return fit - std::min(fit, input_.terms.under_way);
}

// A queue pair needs memory at both ends. Where all ask at once, and each has taken all of its
// memory for what it asks for, all refuse; so half of it is left for what others ask for.
std::uint32_t TurnoutSelector::most_new_pairs() const {
  constexpr std::uint64_t kEnds = 2, kMany = std::uint64_t{1} << 24;
  const Limits& l = input_.limits;
  const std::uint64_t each = std::max<std::uint64_t>(l.bytes_per_rc + l.bytes_per_ring, 1);
  const std::uint64_t under_way = input_.terms.under_way;
  const std::uint64_t places = std::min(l.bytes_available / each, kMany) + under_way;
  const std::uint64_t ours = std::max<std::uint64_t>(places / kEnds, 1);
  return static_cast<std::uint32_t>(ours - std::min(ours, under_way));
}

// Their place costs nothing while nobody wants it.
void TurnoutSelector::keep_idle(Map* map, Usage usage) const {
  for (std::size_t i = sources_.size(); i-- > 0 && sources_[i].messages == 0;) {
    if (!fixed(sources_[i])) keep(map, &usage, i);
  }
}

TurnoutSelector::Map TurnoutSelector::current_as_far_as_it_fits() const {
  Usage usage;
  Map map = current_of_busy(&usage);
  keep_idle(&map, usage);
  return map;
}

// The standard error of gain(to) - gain(from).
double TurnoutSelector::error(const Map& from, const Map& to) const {
  double counts = 0, waited = 0;
  // How much of each cost the difference holds: the change of the gain when the cost grows by one
  // standard error, since the gain is linear in all of them but the contexts' levels.
  double d = 0, r = 0, base = 0, polls = 0, credits = 0, latency = 0;
  double busy_base = 0, busy_dc = 0, busy_rc = 0, setup_dc = 0, setup_rc = 0, post_dc = 0,
         post_switch = 0, post_rc = 0;
  for (std::size_t i = 0; i < to.size(); ++i) {
    if (to[i] == from[i]) continue;
    const double busy_sender = std::clamp<double>(sources_[i].feedback.busy, 0, 1);
    const double busy_receiver = this->busy_receiver();
    const double busy = std::max(busy_sender, busy_receiver);
    const double switched = std::clamp<double>(sources_[i].feedback.switched, 0, 1);
    for (const auto& [kind, sign] : {std::pair{to[i], 1.0}, std::pair{from[i], -1.0}}) {
      if (!over_ring(kind)) continue;
      const bool rc = kind == ChannelKind::rc_rdma;
      // What is gained with some probability errs by as much less.
      const bool exists = rc ? rc_exists(sources_[i]) : over_ring(sources_[i].current);
      const double expected = exists ? 1 : input_.terms.repaid;
      const double n = expected * messages(i), waits = expected * waits_;
      base += sign * n * (1 - busy);
      (rc ? r : d) += sign * n * (1 - busy);
      polls += sign * (n > 0 ? waits : silent_share(waits));
      busy_base += sign * n * busy_receiver;
      (rc ? busy_rc : busy_dc) += sign * n * busy_receiver;
      credits += sign * n * (1 - busy_receiver) / std::max(input_.terms.ring_entries, 1u);
      waited += sign * expected * (rc ? shares_[i].rc_waited : shares_[i].dc_waited);
      if (rc) {
        latency += sign * n * (1 - busy) * switched;
        post_dc += sign * n * busy_sender * (1 - switched);
        post_switch += sign * n * busy_sender * switched;
        post_rc += sign * n * busy_sender;
        if (!rc_exists(sources_[i])) setup_rc += sign;
      } else if (!over_ring(sources_[i].current)) {
        setup_dc += sign;
      }
    }
    if (const double n = messages(i); n > 0) {
      const double each = (worth(i, to[i]) - worth(i, from[i])) / n;
      counts += n * each * each;
    }
  }
  const DeviceCosts& c = costs_;
  const double parts[] = {
      base * c.receiver_dc_sendrecv.error(),
      d * c.receiver_dc_rdma.error(),
      r * c.receiver_rc_rdma.error(),
      busy_base * c.receiver_busy_dc_sendrecv.error(),
      busy_dc * c.receiver_busy_dc_rdma.error(),
      busy_rc * c.receiver_busy_rc_rdma.error(),
      polls * c.receiver_poll.error(),
      credits * c.receiver_credit.error(),
      latency * c.sender_switch_latency.error(),
      setup_dc * c.setup_dc_processor.error(),
      setup_rc * c.setup_rc_processor.error(),
      post_dc * c.sender_post_dc.error(),
      post_switch * c.sender_post_dc_switch.error(),
      post_rc * c.sender_post_rc.error(),
      (contexts(to) - contexts(from)) *
          std::max(c.context_first_beyond.uncertainty, c.context_second_beyond.uncertainty),
      waited * kWaitedFor,
  };
  double variance = counts;
  for (const double part : parts) variance += part * part;
  return std::sqrt(variance);
}

Reason TurnoutSelector::reason(const SourceView& s, const Share& v, ChannelKind to,
                               const Usage& usage, double active) const {
  if (fixed(s))
    return s.refused ? Reason::refused_by_peer : s.stays ? Reason::kept : Reason::forced;
  if (s.messages == 0) {
    if (!over_ring(s.current)) return Reason::too_few_messages;
    return to == s.current ? Reason::kept : Reason::idle;
  }
  const double n = static_cast<double>(s.messages);
  const double d = v.dc_waited, r = v.rc_waited;
  if (to == ChannelKind::rc_rdma) {
    const double switches = n * s.feedback.switched * costs_.sender_switch_latency.value;
    return switches > r / 2 ? Reason::sender_switches : Reason::gain;
  }
  if (has_no_room(s)) {
    SourceView with_room = s;
    with_room.feedback.full = false;
    if (share(with_room).rc > std::max(v.dc, 0.0)) return Reason::budget_of_source;
  }
  const bool more_rc_pays = v.rc > std::max(v.dc, 0.0);
  const Limits& l = input_.limits;
  if (more_rc_pays &&
      context_loss(costs_, std::max(active, static_cast<double>(s.feedback.active_rc)) + 1) > 0 &&
      fits(usage, s, ChannelKind::rc_rdma)) {
    return Reason::contexts;
  }
  if (over_ring(to)) return Reason::gain;
  if (std::max(v.dc, v.rc) > 0) {
    return usage.rings >= l.max_channels              ? Reason::limit_channels
           : usage.rc >= l.max_active_rc && v.dc <= 0 ? Reason::limit_active_rc
                                                      : Reason::limit_budget;
  }
  const double waiting =
      n * (costs_.receiver_dc_sendrecv.value -
           std::min(costs_.receiver_dc_rdma.value, costs_.receiver_rc_rdma.value));
  return std::max(d, r) < waiting / 4 ? Reason::too_busy : Reason::too_few_messages;
}

Plan TurnoutSelector::plan() const {
  Plan plan;
  const Map current = this->current();
  Map best = best_map();
  const Map kept = current_as_far_as_it_fits();
  plan.gain_current = gain(current);
  plan.gain_best = gain(best);
  const double gain_kept = kept == current ? plan.gain_current : gain(kept);
  if (plan.gain_best <= gain_kept) {
    best = kept;
    plan.gain_best = gain_kept;
  }
  plan.forced = !usage_of(current).has_value();
  plan.threshold = kConfidence * error(current, best);
  const double improvement = plan.gain_best - plan.gain_current;
  plan.changes =
      best != current && (plan.forced || (all_messages_ > 0 && improvement > plan.threshold));
  Usage usage;
  for (std::size_t i = 0; i < best.size(); ++i) take(&usage, i, best[i]);
  const double active = contexts_of(best).active;
  const auto add_line = [&](const SourceView& s, const Share& v, ChannelKind to) {
    PlanLine& line = plan.lines.emplace_back();
    line.peer = s.peer;
    line.from = s.current;
    line.to = plan.changes ? to : line.from;
    if (line.to == ChannelKind::rc_rdma && v.dc > 0) line.fallback = ChannelKind::dc_rdma;
    line.over_node = line.to == ChannelKind::rc_rdma && over_node(s);
    line.reason = to != line.to ? Reason::not_certain : reason(s, v, to, usage, active);
    line.messages = static_cast<std::uint64_t>(counted(s));
    if (line.messages > 0)
      line.gain_per_message = worth(v, line.to) / static_cast<double>(line.messages);
  };
  plan.lines.reserve(input_.sources.size());
  for (const bool first : {true, false}) {
    for (std::size_t i = 0; i < sources_.size(); ++i) {
      if ((plan.changes && is_downgrade(current[i], best[i])) == first) {
        add_line(sources_[i], shares_[i], best[i]);
      }
    }
  }
  for (std::size_t i = 0; i < input_.sources.size(); ++i) {
    const SourceView& s = input_.sources[i];
    if (!chosen_[i]) add_line(s, share(s), input_.default_channel);
  }
  return plan;
}

Plan select_turnout(const TurnoutInput& input) {
  return TurnoutSelector(input).plan();
}

double busy_share(const DeviceCosts& costs, std::uint64_t sent, std::uint64_t switched,
                  std::uint64_t received, double interval) {
  if (interval <= 0) return 0;
  const double same = static_cast<double>(sent - std::min(sent, switched) + received);
  const double time = same * costs.sender_post_dc.value +
                      static_cast<double>(switched) * costs.sender_post_dc_switch.value;
  return std::clamp(time / interval, 0.0, 1.0);
}

std::uint64_t credit_dcis(std::uint64_t data_dcis, std::uint64_t processes) {
  constexpr std::uint64_t kLeast = 2, kEnough = 8, kMost = 16;
  const std::uint64_t share =
      std::clamp(data_dcis / 4, std::clamp(data_dcis, kLeast, kEnough), kMost);
  return data_dcis < processes ? share : std::max(share, std::min(processes, kMost));
}

std::uint32_t wanted_dcis(const DeviceCosts& costs, std::uint64_t processes) {
  constexpr std::uint32_t kFewest = 4;
  constexpr double kLeast = kFewest, kMost = 64;
  const double ratio =
      4 * costs.sender_dci_switch.value / std::max(costs.sender_post_dc_switch.value, 1.0);
  const double fit = std::clamp(costs.context_second_entries.value / 2, kLeast, kMost);
  const std::uint32_t worth =
      std::min(std::bit_ceil(static_cast<std::uint32_t>(std::ceil(std::clamp(ratio, 1.0, kMost)))),
               std::bit_floor(static_cast<std::uint32_t>(fit)));
  if (processes == 0) return worth;
  return static_cast<std::uint32_t>(
      std::min<std::uint64_t>(worth, std::max<std::uint64_t>(processes, kFewest)));
}

}  // namespace turnout::selection
