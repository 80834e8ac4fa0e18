#include "core/selection/turnout_policy.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "core/selection/costs.h"
#include "core/selection/source_order.h"

namespace turnout::selection {

namespace {

using Map = std::vector<ChannelKind>;
constexpr std::uint32_t kNobody = std::numeric_limits<std::uint32_t>::max();
constexpr double kNever = -std::numeric_limits<double>::infinity();
// How much of a latency is waited for: a uniform part's deviation.
const double kWaitedFor = 1 / std::sqrt(12.0);
// Of the sources that no limit names, this many times the rings allowed are looked at.
constexpr std::size_t kCandidates = 2;

// What a source's share of the gain is made of; the gain is linear in the costs.
struct Share {
  double dc = 0, rc = 0;                // value of each channel in the window, without contexts
  double dc_waited = 0, rc_waited = 0;  // of that, latencies
};

// Loss of one operation with so many queue pairs active at an adapter.
double context_loss(const DeviceCosts& c, double active) {
  const auto beyond = [active](double entries, double loss) {
    return active > entries ? loss * (1 - entries / active) : 0;
  };
  return beyond(c.context_first_entries.value, c.context_first_beyond.value) +
         beyond(c.context_second_entries.value, c.context_second_beyond.value);
}

class Selector {
 public:
  explicit Selector(const TurnoutInput& input);
  [[nodiscard]] Plan plan() const;

 private:
  [[nodiscard]] bool fixed(std::size_t i) const {
    const SourceView& s = sources_[i];
    return s.refused || (s.current != ChannelKind::dc_sendrecv && !has_ring(s.current));
  }
  [[nodiscard]] bool rc_exists(std::size_t i) const {
    return sources_[i].rc_exists || sources_[i].current == ChannelKind::rc_rdma;
  }
  [[nodiscard]] double messages(std::size_t i) const {
    return static_cast<double>(sources_[i].messages);
  }
  [[nodiscard]] Share share(std::size_t i) const;
  [[nodiscard]] double worth(std::size_t i, ChannelKind kind) const {
    return kind == ChannelKind::rc_rdma   ? shares_[i].rc
           : kind == ChannelKind::dc_rdma ? shares_[i].dc
                                          : 0;
  }
  // What the contexts of `map`'s queue pairs cost all operations over RC.
  [[nodiscard]] double contexts(const Map& map) const;
  [[nodiscard]] double gain(const Map& map) const;
  struct Contexts {
    double active = 0;      // queue pairs
    double operations = 0;  // messages over them
  };
  [[nodiscard]] Contexts contexts_of(const Map& map) const;
  [[nodiscard]] double loss(const Contexts& c) const {
    return c.operations * context_loss(costs_, c.active);
  }
  [[nodiscard]] std::uint64_t bytes(std::size_t i, ChannelKind kind) const;
  struct Usage {
    std::uint64_t rings = 0, rc = 0, bytes = 0;
  };
  // A map on the way to the best one; `value` is without our own adapter's contexts.
  struct Trial {
    Map map;
    Usage usage;
    double value = 0;
    Contexts contexts;
  };
  [[nodiscard]] double total(const Trial& t) const { return t.value - loss(t.contexts); }
  void refill(const std::vector<std::uint32_t>& by_dc, Trial* trial) const;
  [[nodiscard]] double rc_value(std::size_t i) const;
  [[nodiscard]] std::array<std::uint32_t, 4> best_steps(const std::vector<std::uint32_t>& all,
                                                        const Map& map) const;
  [[nodiscard]] std::optional<Trial> add_queue_pair(const Trial& trial,
                                                    const std::vector<std::uint32_t>& by_dc,
                                                    std::uint32_t i) const;
  [[nodiscard]] bool fits(const Usage& u, std::size_t i, ChannelKind kind) const;
  void take(Usage* u, std::size_t i, ChannelKind kind) const;
  [[nodiscard]] bool within(const Map& map) const;
  [[nodiscard]] Map fixed_map(Usage* usage) const;
  void keep_idle(Map* map, Usage usage) const;
  [[nodiscard]] Map best_map() const;
  [[nodiscard]] Map current_as_far_as_it_fits() const;
  [[nodiscard]] double error(const Map& from, const Map& to) const;
  [[nodiscard]] Reason reason(const Map& best, const Usage& usage, double active,
                              std::size_t i) const;

  const TurnoutInput& input_;
  const DeviceCosts& costs_;
  std::vector<SourceView> sources_;  // busiest_first
  std::vector<Share> shares_;
  double lead_ = 0;
  double all_messages_ = 0;
};

Selector::Selector(const TurnoutInput& input)
    : input_(input), costs_(input.terms.costs), sources_(busiest_first(input.sources)) {
  if (!sources_.empty()) lead_ = messages(0);
  shares_.reserve(sources_.size());
  for (std::size_t i = 0; i < sources_.size(); ++i) {
    shares_.push_back(share(i));
    all_messages_ += messages(i);
  }
  if (input.messages > 0) all_messages_ = static_cast<double>(input.messages);
}

Share Selector::share(std::size_t i) const {
  const SourceView& s = sources_[i];
  const DeviceCosts& c = costs_;
  const double n = messages(i);
  const double busy_sender = std::clamp<double>(s.hint.busy, 0, 1);
  const double busy = std::max(busy_sender, std::clamp(input_.terms.busy, 0.0, 1.0));
  const double switched = std::clamp<double>(s.hint.switched, 0, 1);
  const double d = c.receiver_dc_sendrecv.value - c.receiver_dc_rdma.value;
  const double r = c.receiver_dc_sendrecv.value - c.receiver_rc_rdma.value;
  const double post_dc =
      c.sender_post_dc.value + switched * (c.sender_post_dc_switch.value - c.sender_post_dc.value);
  const double credit = c.receiver_credit.value / std::max(input_.terms.ring_entries, 1u);
  const double ring = n * credit + poll_share({.poll = c.receiver_poll.value}, lead_);
  const auto setup = [busy](const CostValue& processor, const CostValue& time) {
    return (1 - busy) * std::max(time.value, processor.value) + busy * processor.value;
  };
  Share out;
  out.dc_waited = n * (1 - busy) * d;
  out.rc_waited = n * (1 - busy) * (r + switched * c.sender_switch_latency.value);
  out.dc = out.dc_waited - ring;
  out.rc = out.rc_waited + n * busy_sender * (post_dc - c.sender_post_rc.value) - ring;
  if (!has_ring(s.current)) out.dc -= setup(c.setup_dc_processor, c.setup_dc_time);
  if (!rc_exists(i)) out.rc -= setup(c.setup_rc_processor, c.setup_rc_time);
  if (!input_.limits.dc_rdma_available && s.current != ChannelKind::dc_rdma) out.dc = kNever;
  return out;
}

Selector::Contexts Selector::contexts_of(const Map& map) const {
  Contexts out{static_cast<double>(input_.terms.sending_rc), 0};
  for (std::size_t i = 0; i < map.size(); ++i) {
    if (map[i] != ChannelKind::rc_rdma) continue;
    out.active += 1;
    out.operations += messages(i);
  }
  return out;
}

double Selector::contexts(const Map& map) const {
  double theirs = 0;
  for (std::size_t i = 0; i < map.size(); ++i) {
    if (map[i] == ChannelKind::rc_rdma) theirs += shares_[i].rc - rc_value(i);
  }
  return theirs + loss(contexts_of(map));
}

double Selector::gain(const Map& map) const {
  double sum = -contexts(map);
  for (std::size_t i = 0; i < map.size(); ++i) sum += worth(i, map[i]);
  return sum;
}

std::uint64_t Selector::bytes(std::size_t i, ChannelKind kind) const {
  if (!has_ring(kind)) return 0;
  const bool queue_pair = kind == ChannelKind::rc_rdma && !rc_exists(i);
  return input_.limits.bytes_per_ring + (queue_pair ? input_.limits.bytes_per_rc : 0);
}

bool Selector::fits(const Usage& u, std::size_t i, ChannelKind kind) const {
  const Limits& l = input_.limits;
  return !has_ring(kind) ||
         (u.rings < l.max_channels && (kind != ChannelKind::rc_rdma || u.rc < l.max_active_rc) &&
          u.bytes <= l.bytes_available && bytes(i, kind) <= l.bytes_available - u.bytes);
}

void Selector::take(Usage* u, std::size_t i, ChannelKind kind) const {
  if (!has_ring(kind)) return;
  ++u->rings;
  if (kind == ChannelKind::rc_rdma) ++u->rc;
  u->bytes += bytes(i, kind);
}

bool Selector::within(const Map& map) const {
  Usage usage;
  for (std::size_t i = 0; i < map.size(); ++i) {
    if (!fits(usage, i, map[i])) return false;
    take(&usage, i, map[i]);
  }
  return true;
}

Map Selector::fixed_map(Usage* usage) const {
  Map map(sources_.size(), ChannelKind::dc_sendrecv);
  for (std::size_t i = 0; i < sources_.size(); ++i) {
    if (!fixed(i) || !fits(*usage, i, sources_[i].current)) continue;
    map[i] = sources_[i].current;
    take(usage, i, map[i]);
  }
  return map;
}

// Their place costs nothing while nobody wants it.
void Selector::keep_idle(Map* map, Usage usage) const {
  for (std::size_t i = sources_.size(); i-- > 0 && sources_[i].messages == 0;) {
    const ChannelKind kind = sources_[i].current;
    if (fixed(i) || !has_ring(kind) || !fits(usage, i, kind)) continue;
    (*map)[i] = kind;
    take(&usage, i, kind);
  }
}

Map Selector::current_as_far_as_it_fits() const {
  Usage usage;
  Map map = fixed_map(&usage);
  for (std::size_t i = 0; i < sources_.size() && sources_[i].messages > 0; ++i) {
    if (fixed(i) || !fits(usage, i, sources_[i].current)) continue;
    map[i] = sources_[i].current;
    take(&usage, i, map[i]);
  }
  keep_idle(&map, usage);
  return map;
}

Map Selector::best_map() const {
  Usage usage;
  Map best = fixed_map(&usage);
  // The sources worth a look: the best of either kind, more than limits let through.
  std::vector<std::uint32_t> all;
  for (std::uint32_t i = 0; i < sources_.size() && sources_[i].messages > 0; ++i) {
    if (!fixed(i) && std::max(shares_[i].dc, shares_[i].rc) > 0) all.push_back(i);
  }
  const std::size_t most = kCandidates * input_.limits.max_channels;
  if (all.size() > most) {
    std::vector<std::uint32_t> kept;
    for (const ChannelKind kind : {ChannelKind::dc_rdma, ChannelKind::rc_rdma}) {
      const auto at = all.begin() + static_cast<std::ptrdiff_t>(input_.limits.max_channels);
      const auto before = [&](std::uint32_t a, std::uint32_t b) {
        const double x = worth(a, kind), y = worth(b, kind);
        return x != y ? x > y : a < b;
      };
      std::nth_element(all.begin(), at, all.end(), before);
      kept.insert(kept.end(), all.begin(), at);
    }
    std::sort(kept.begin(), kept.end());
    kept.erase(std::unique(kept.begin(), kept.end()), kept.end());
    all = std::move(kept);
  }
  // Rings over DC first, the best ones that fit.
  std::vector<std::uint32_t> by_dc = all;
  std::sort(by_dc.begin(), by_dc.end(), [&](std::uint32_t a, std::uint32_t b) {
    return shares_[a].dc != shares_[b].dc ? shares_[a].dc > shares_[b].dc : a < b;
  });
  Trial trial{best, usage, 0, contexts_of(best)};
  refill(by_dc, &trial);
  Trial found = trial;
  // One queue pair more along the best exchange: a ring over DC becomes one over RC, or a new one
  // does; rings over DC that no longer fit go, the worst first, and come back, the best first.
  // Contexts cost in steps, so what loses now may gain with the next; what loses without them never
  // does.
  for (std::size_t round = 0; round < all.size(); ++round) {
    std::optional<Trial> next;
    for (const std::uint32_t i : best_steps(all, trial.map)) {
      if (i == kNobody) continue;
      std::optional<Trial> with = add_queue_pair(trial, by_dc, i);
      if (with && (!next || total(*with) > total(*next))) next = std::move(with);
    }
    if (!next || next->value <= trial.value) break;
    trial = std::move(*next);
    if (total(trial) > total(found)) found = trial;
  }
  keep_idle(&found.map, found.usage);
  return found.map;
}

// Rings over DC for the best sources that have none, as far as they fit.
void Selector::refill(const std::vector<std::uint32_t>& by_dc, Trial* trial) const {
  for (const std::uint32_t i : by_dc) {
    if (shares_[i].dc <= 0) return;
    if (trial->map[i] != ChannelKind::dc_sendrecv) continue;
    if (!fits(trial->usage, i, ChannelKind::dc_rdma)) return;
    trial->map[i] = ChannelKind::dc_rdma;
    take(&trial->usage, i, ChannelKind::dc_rdma);
    trial->value += shares_[i].dc;
  }
}

// What an RC queue pair for source i is worth, the sender's contexts included.
double Selector::rc_value(std::size_t i) const {
  const double more = sources_[i].current == ChannelKind::rc_rdma ? 0 : 1;
  return shares_[i].rc - messages(i) * context_loss(costs_, sources_[i].hint.active_rc + more);
}

// The best candidates for one more queue pair: those that differ in what they need of the limits.
std::array<std::uint32_t, 4> Selector::best_steps(const std::vector<std::uint32_t>& all,
                                                  const Map& map) const {
  std::array<std::uint32_t, 4> best;
  best.fill(kNobody);
  std::array<double, 4> most;
  most.fill(kNever);
  for (const std::uint32_t i : all) {
    if (map[i] == ChannelKind::rc_rdma) continue;
    const bool converts = map[i] == ChannelKind::dc_rdma;
    const std::size_t kind = (converts ? 2u : 0u) + (rc_exists(i) ? 1u : 0u);
    const double value = rc_value(i) - (converts ? shares_[i].dc : 0);
    if (value <= most[kind]) continue;
    most[kind] = value;
    best[kind] = i;
  }
  return best;
}

std::optional<Selector::Trial> Selector::add_queue_pair(const Trial& trial,
                                                        const std::vector<std::uint32_t>& by_dc,
                                                        std::uint32_t i) const {
  Trial t = trial;
  const auto drop = [&](std::uint32_t k) {
    t.map[k] = ChannelKind::dc_sendrecv;
    --t.usage.rings;
    t.usage.bytes -= bytes(k, ChannelKind::dc_rdma);
    t.value -= shares_[k].dc;
  };
  if (t.map[i] == ChannelKind::dc_rdma) drop(i);
  for (auto at = by_dc.rbegin(); !fits(t.usage, i, ChannelKind::rc_rdma); ++at) {
    while (at != by_dc.rend() && t.map[*at] != ChannelKind::dc_rdma) ++at;
    if (at == by_dc.rend()) return std::nullopt;
    drop(*at);
  }
  t.map[i] = ChannelKind::rc_rdma;
  take(&t.usage, i, ChannelKind::rc_rdma);
  t.value += rc_value(i);
  t.contexts.active += 1;
  t.contexts.operations += messages(i);
  refill(by_dc, &t);
  return t;
}

// The standard error of gain(to) - gain(from).
double Selector::error(const Map& from, const Map& to) const {
  double counts = 0, waited = 0;
  // How much of each cost the difference holds: the change of the gain when the cost grows by one
  // standard error, since the gain is linear in all of them but the contexts' levels.
  double d = 0, r = 0, base = 0, polls = 0, credits = 0, latency = 0;
  double setup_dc = 0, setup_rc = 0, post_dc = 0, post_switch = 0, post_rc = 0;
  for (std::size_t i = 0; i < to.size(); ++i) {
    if (to[i] == from[i]) continue;
    const double n = messages(i);
    const double busy_sender = std::clamp<double>(sources_[i].hint.busy, 0, 1);
    const double busy = std::max(busy_sender, std::clamp(input_.terms.busy, 0.0, 1.0));
    const double switched = std::clamp<double>(sources_[i].hint.switched, 0, 1);
    for (const auto& [kind, sign] : {std::pair{to[i], 1.0}, std::pair{from[i], -1.0}}) {
      if (!has_ring(kind)) continue;
      const bool rc = kind == ChannelKind::rc_rdma;
      base += sign * n * (1 - busy);
      (rc ? r : d) += sign * n * (1 - busy);
      polls += sign * lead_ / 2;
      credits += sign * n / std::max(input_.terms.ring_entries, 1u);
      waited += sign * (rc ? shares_[i].rc_waited : shares_[i].dc_waited);
      if (rc) {
        latency += sign * n * (1 - busy) * switched;
        post_dc += sign * n * busy_sender * (1 - switched);
        post_switch += sign * n * busy_sender * switched;
        post_rc += sign * n * busy_sender;
        if (!rc_exists(i)) setup_rc += sign;
      } else if (!has_ring(sources_[i].current)) {
        setup_dc += sign;
      }
    }
    if (n > 0) {
      const double each = (worth(i, to[i]) - worth(i, from[i])) / n;
      counts += n * each * each;
    }
  }
  const DeviceCosts& c = costs_;
  const double parts[] = {
      base * c.receiver_dc_sendrecv.error(),
      d * c.receiver_dc_rdma.error(),
      r * c.receiver_rc_rdma.error(),
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

Reason Selector::reason(const Map& best, const Usage& usage, double active, std::size_t i) const {
  const SourceView& s = sources_[i];
  const ChannelKind to = best[i];
  if (fixed(i)) return s.refused ? Reason::refused_by_peer : Reason::forced;
  if (s.messages == 0) {
    if (!has_ring(s.current)) return Reason::too_few_messages;
    return to == s.current ? Reason::kept : Reason::idle;
  }
  const Share& v = shares_[i];
  const double d = v.dc_waited, r = v.rc_waited;
  if (to == ChannelKind::rc_rdma) {
    const double switches = messages(i) * s.hint.switched * costs_.sender_switch_latency.value;
    return switches > r / 2 ? Reason::sender_switches : Reason::gain;
  }
  const bool more_rc_pays = v.rc > std::max(v.dc, 0.0);
  const Limits& l = input_.limits;
  if (more_rc_pays &&
      context_loss(costs_, std::max(active, static_cast<double>(s.hint.active_rc)) + 1) > 0 &&
      fits(usage, i, ChannelKind::rc_rdma)) {
    return Reason::contexts;
  }
  if (has_ring(to)) return Reason::gain;
  if (std::max(v.dc, v.rc) > 0) {
    return usage.rings >= l.max_channels              ? Reason::limit_channels
           : usage.rc >= l.max_active_rc && v.dc <= 0 ? Reason::limit_active_rc
                                                      : Reason::limit_budget;
  }
  const double waiting =
      messages(i) * (costs_.receiver_dc_sendrecv.value -
                     std::min(costs_.receiver_dc_rdma.value, costs_.receiver_rc_rdma.value));
  return std::max(d, r) < waiting / 4 ? Reason::too_busy : Reason::too_few_messages;
}

Plan Selector::plan() const {
  Plan plan;
  Map current;
  current.reserve(sources_.size());
  for (const SourceView& s : sources_) current.push_back(s.current);
  Map best = best_map();
  const Map kept = current_as_far_as_it_fits();
  if (gain(best) <= gain(kept)) best = kept;
  plan.gain_current = gain(current);
  plan.gain_best = gain(best);
  plan.forced = !within(current);
  plan.threshold = kConfidence * error(current, best);
  const double improvement = plan.gain_best - plan.gain_current;
  plan.changes =
      best != current && (plan.forced || (all_messages_ > 0 && improvement > plan.threshold));
  Usage usage;
  for (std::size_t i = 0; i < best.size(); ++i) take(&usage, i, best[i]);
  const double active = contexts_of(best).active;
  const auto add_line = [&](std::size_t i) {
    PlanLine& line = plan.lines.emplace_back();
    line.peer = sources_[i].peer;
    line.from = sources_[i].current;
    line.to = plan.changes ? best[i] : line.from;
    if (line.to == ChannelKind::rc_rdma && shares_[i].dc > 0) line.otherwise = ChannelKind::dc_rdma;
    line.reason = best[i] != line.to ? Reason::not_certain : reason(best, usage, active, i);
    line.messages = sources_[i].messages;
    if (line.messages > 0) line.gain_per_message = worth(i, line.to) / messages(i);
  };
  const auto downgrade = [&](std::size_t i) {
    return plan.changes && best[i] != current[i] &&
           (!has_ring(best[i]) || current[i] == ChannelKind::rc_rdma);
  };
  plan.lines.reserve(sources_.size());
  for (const bool first : {true, false}) {
    for (std::size_t i = 0; i < sources_.size(); ++i) {
      if (downgrade(i) == first) add_line(i);
    }
  }
  return plan;
}

}  // namespace

Plan select_turnout(const TurnoutInput& input) {
  return Selector(input).plan();
}

double busy_share(const DeviceCosts& costs, std::uint64_t sent, std::uint64_t switched,
                  std::uint64_t received, double interval) {
  if (interval <= 0) return 0;
  const double same = static_cast<double>(sent - std::min(sent, switched) + received);
  const double time = same * costs.sender_post_dc.value +
                      static_cast<double>(switched) * costs.sender_post_dc_switch.value;
  return std::clamp(time / interval, 0.0, 1.0);
}

std::uint32_t wanted_dcis(const DeviceCosts& costs) {
  constexpr double kMost = 64;
  const double ratio =
      costs.sender_dci_switch.value / std::max(costs.sender_post_dc_switch.value, 1.0);
  return std::bit_ceil(static_cast<std::uint32_t>(std::ceil(std::clamp(ratio, 1.0, kMost))));
}

}  // namespace turnout::selection
