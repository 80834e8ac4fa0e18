#include "core/selection/policy.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>

namespace turnout::selection {

namespace {

// What one message saves on a ring, its share of the credit messages taken off.
double saving(const CostModel& costs, ChannelKind kind) {
  const double credit = costs.credit / static_cast<double>(std::max(costs.ring_entries, 1u));
  switch (kind) {
    case ChannelKind::dc_rdma:
      return costs.saving_dc_rdma - credit;
    case ChannelKind::rc_rdma:
      return costs.saving_rc_rdma - credit;
    default:
      return 0;
  }
}

// What one more ring costs in the window: every message of the leading source is waited for, and
// half of the other rings are polled in vain meanwhile (AQPS 3.2). The leading count is the largest
// of all sources, as the paper has it; it is asked for in this one place.
double poll_share(const CostModel& costs, std::uint64_t leading) {
  return static_cast<double>(leading) * costs.poll / 2;
}

bool has_ring(ChannelKind kind) {
  return kind == ChannelKind::dc_rdma || kind == ChannelKind::rc_rdma;
}

// The best (l, m) at a given cost of polling one more ring.
MapChoice best_prefix(std::span<const std::uint64_t> counts_descending, double poll,
                      const CostModel& costs, std::uint32_t max_rc, std::uint32_t max_channels,
                      bool dc_rdma_available) {
  MapChoice best;
  const double dc = saving(costs, ChannelKind::dc_rdma);
  const double rc = saving(costs, ChannelKind::rc_rdma);
  const std::size_t last = std::min<std::size_t>(
      counts_descending.size(), dc_rdma_available ? max_channels : std::min(max_channels, max_rc));
  // x(l,m) = A(l) + B(m), m <= min(l,h): one pass over l with the best B so far. Without DC-RDMA
  // every channel is an RC, m = l.
  double a = 0, b = 0, best_b = 0;
  std::uint32_t best_m = 0;
  for (std::size_t l = 1; l <= last; ++l) {
    const auto n = static_cast<double>(counts_descending[l - 1]);
    const auto m = static_cast<std::uint32_t>(l);
    a += n * dc - poll - costs.setup_dc;
    if (l <= max_rc) {
      b += n * (rc - dc) - (costs.setup_rc - costs.setup_dc);
      if (b > best_b || !dc_rdma_available) {
        best_b = b;
        best_m = m;
      }
    }
    if (a + best_b > best.gain) best = {best_m, m, a + best_b};
  }
  return best;
}

struct Usage {
  std::uint32_t rc = 0;
  std::uint32_t rings = 0;
  std::uint64_t bytes = 0;
};

using Map = std::vector<ChannelKind>;  // by position in Selector::sources_

class Selector {
 public:
  explicit Selector(const Input& input);
  [[nodiscard]] Plan plan() const;

 private:
  [[nodiscard]] bool rc_exists(std::size_t i) const {
    return sources_[i].rc_exists || sources_[i].current == ChannelKind::rc_rdma;
  }
  [[nodiscard]] double setup(std::size_t i, ChannelKind kind) const {
    if (kind == sources_[i].current) return 0;
    if (kind == ChannelKind::rc_rdma) return rc_exists(i) ? 0 : input_.costs.setup_rc;
    return kind == ChannelKind::dc_rdma ? input_.costs.setup_dc : 0;
  }
  // This source's own share of the gain.
  [[nodiscard]] double value(std::size_t i, ChannelKind kind) const {
    if (!has_ring(kind)) return 0;
    return static_cast<double>(sources_[i].messages) * saving(input_.costs, kind) - poll_ -
           setup(i, kind);
  }
  [[nodiscard]] bool allowed(std::size_t i, ChannelKind kind) const {
    return kind != ChannelKind::dc_rdma || input_.limits.dc_rdma_available ||
           sources_[i].current == ChannelKind::dc_rdma;
  }
  [[nodiscard]] std::uint64_t bytes(std::size_t i, ChannelKind kind) const;
  [[nodiscard]] bool fits(const Usage& usage, std::size_t i, ChannelKind kind) const;
  void take(Usage* usage, std::size_t i, ChannelKind kind) const;
  void give(Usage* usage, std::size_t i, ChannelKind kind) const;

  [[nodiscard]] double gain(const Map& map) const;
  [[nodiscard]] std::optional<Usage> usage_of(const Map& map) const;  // none: beyond a limit
  [[nodiscard]] Map fixed_map(Usage* usage) const;
  [[nodiscard]] Map best_of_queue_pairs() const;
  [[nodiscard]] Map paper_map() const;
  [[nodiscard]] Map by_advantage() const;
  [[nodiscard]] Map current_as_far_as_it_fits() const;
  void improve(Map* map) const;
  [[nodiscard]] Map best_map() const;
  [[nodiscard]] Reason limit_met(const Usage& usage, std::size_t i) const;
  [[nodiscard]] Reason reason(const Map& map, const Usage& usage, std::size_t i) const;

  const Input& input_;
  std::vector<SourceView> sources_;  // busiest first; equals: the one with a ring, then by peer
  std::vector<bool> fixed_;  // not ours to choose: refused, or a kind outside this selection
  std::vector<std::size_t> active_;  // positions with messages that are not fixed
  std::vector<std::size_t> idle_;    // silent ones with a ring
  double poll_ = 0;
  std::uint64_t messages_ = 0;
};

Selector::Selector(const Input& input)
    : input_(input), sources_(input.sources.begin(), input.sources.end()) {
  std::sort(sources_.begin(), sources_.end(), [](const SourceView& a, const SourceView& b) {
    if (a.messages != b.messages) return a.messages > b.messages;
    if (has_ring(a.current) != has_ring(b.current)) return has_ring(a.current);
    return a.peer < b.peer;
  });
  for (std::size_t i = 0; i < sources_.size(); ++i) {
    const SourceView& source = sources_[i];
    messages_ += source.messages;
    const bool fixed =
        source.refused || (source.current != ChannelKind::dc_sendrecv && !has_ring(source.current));
    fixed_.push_back(fixed);
    if (fixed) continue;
    if (source.messages > 0) {
      active_.push_back(i);
    } else if (has_ring(source.current)) {
      idle_.push_back(i);
    }
  }
  poll_ = sources_.empty() ? 0 : poll_share(input.costs, sources_.front().messages);
}

std::uint64_t Selector::bytes(std::size_t i, ChannelKind kind) const {
  if (!has_ring(kind)) return 0;
  const bool queue_pair = kind == ChannelKind::rc_rdma && !rc_exists(i);
  return input_.limits.bytes_per_ring + (queue_pair ? input_.limits.bytes_per_rc : 0);
}

bool Selector::fits(const Usage& usage, std::size_t i, ChannelKind kind) const {
  if (!has_ring(kind)) return true;
  const Limits& limits = input_.limits;
  return usage.rings < limits.max_channels &&
         (kind != ChannelKind::rc_rdma || usage.rc < limits.max_active_rc) &&
         usage.bytes <= limits.bytes_available &&
         bytes(i, kind) <= limits.bytes_available - usage.bytes;
}

void Selector::take(Usage* usage, std::size_t i, ChannelKind kind) const {
  if (!has_ring(kind)) return;
  ++usage->rings;
  if (kind == ChannelKind::rc_rdma) ++usage->rc;
  usage->bytes += bytes(i, kind);
}

void Selector::give(Usage* usage, std::size_t i, ChannelKind kind) const {
  if (!has_ring(kind)) return;
  --usage->rings;
  if (kind == ChannelKind::rc_rdma) --usage->rc;
  usage->bytes -= bytes(i, kind);
}

double Selector::gain(const Map& map) const {
  double sum = 0;
  for (std::size_t i = 0; i < map.size(); ++i) sum += value(i, map[i]);
  return sum;
}

std::optional<Usage> Selector::usage_of(const Map& map) const {
  Usage usage;
  for (std::size_t i = 0; i < map.size(); ++i) {
    if (!fits(usage, i, map[i])) return std::nullopt;
    take(&usage, i, map[i]);
  }
  return usage;
}

// DC-sendrecv for all but the sources that are not ours to choose. Those keep what they have while
// the limits, which may have shrunk, leave room for it.
Map Selector::fixed_map(Usage* usage) const {
  Map map(sources_.size(), ChannelKind::dc_sendrecv);
  for (std::size_t i = 0; i < map.size(); ++i) {
    if (!fixed_[i] || !fits(*usage, i, sources_[i].current)) continue;
    map[i] = sources_[i].current;
    take(usage, i, map[i]);
  }
  return map;
}

// The exact optimum over maps of RC-RDMA only. Sources are of two prices, with and without a queue
// pair of their own, and within each the busier is worth more: the optimum is a prefix of each.
Map Selector::best_of_queue_pairs() const {
  Usage usage;
  Map map = fixed_map(&usage);
  std::vector<std::size_t> existing, fresh;
  for (const std::size_t i : active_) {
    if (value(i, ChannelKind::rc_rdma) > 0) (rc_exists(i) ? existing : fresh).push_back(i);
  }
  std::vector<double> sum_existing = {0};
  for (const std::size_t i : existing) {
    sum_existing.push_back(sum_existing.back() + value(i, ChannelKind::rc_rdma));
  }
  double best = 0, sum_fresh = 0;
  std::size_t best_existing = 0, best_fresh = 0;
  for (std::size_t f = 0; f <= fresh.size(); ++f) {
    if (f > 0) {
      if (!fits(usage, fresh[f - 1], ChannelKind::rc_rdma)) break;
      take(&usage, fresh[f - 1], ChannelKind::rc_rdma);
      sum_fresh += value(fresh[f - 1], ChannelKind::rc_rdma);
    }
    // How many of the others fit beside them; they are of equal size.
    std::uint64_t room =
        std::min(input_.limits.max_active_rc - std::min(input_.limits.max_active_rc, usage.rc),
                 input_.limits.max_channels - std::min(input_.limits.max_channels, usage.rings));
    if (input_.limits.bytes_per_ring > 0) {
      const std::uint64_t left =
          input_.limits.bytes_available - std::min(input_.limits.bytes_available, usage.bytes);
      room = std::min(room, left / input_.limits.bytes_per_ring);
    }
    const std::size_t e = std::min<std::size_t>(existing.size(), room);
    if (sum_existing[e] + sum_fresh > best) {
      best = sum_existing[e] + sum_fresh;
      best_existing = e;
      best_fresh = f;
    }
  }
  for (std::size_t e = 0; e < best_existing; ++e) map[existing[e]] = ChannelKind::rc_rdma;
  for (std::size_t f = 0; f < best_fresh; ++f) map[fresh[f]] = ChannelKind::rc_rdma;
  return map;
}

// FIND_MAP's answer as if no channel existed, cut where the limits end.
Map Selector::paper_map() const {
  Usage usage;
  Map map = fixed_map(&usage);
  std::vector<std::uint64_t> counts;
  for (const std::size_t i : active_) counts.push_back(sources_[i].messages);
  const MapChoice choice =
      best_prefix(counts, poll_, input_.costs, input_.limits.max_active_rc - usage.rc,
                  input_.limits.max_channels - usage.rings, input_.limits.dc_rdma_available);
  for (std::size_t k = 0; k < choice.channels; ++k) {
    const ChannelKind kind = k < choice.rc ? ChannelKind::rc_rdma : ChannelKind::dc_rdma;
    if (!fits(usage, active_[k], kind)) break;
    map[active_[k]] = kind;
    take(&usage, active_[k], kind);
  }
  return map;
}

// RC-RDMA to those who gain most over their next best channel, then the rest by improve().
Map Selector::by_advantage() const {
  Usage usage;
  Map map = fixed_map(&usage);
  std::vector<std::pair<double, std::size_t>> order;
  for (const std::size_t i : active_) {
    const double other =
        allowed(i, ChannelKind::dc_rdma) ? std::max(value(i, ChannelKind::dc_rdma), 0.0) : 0.0;
    const double advantage = value(i, ChannelKind::rc_rdma) - other;
    if (advantage > 0) order.emplace_back(-advantage, i);
  }
  std::sort(order.begin(), order.end());
  for (const auto& [unused, i] : order) {
    if (!fits(usage, i, ChannelKind::rc_rdma)) continue;
    map[i] = ChannelKind::rc_rdma;
    take(&usage, i, ChannelKind::rc_rdma);
  }
  return map;
}

Map Selector::current_as_far_as_it_fits() const {
  Usage usage;
  Map map = fixed_map(&usage);
  for (const std::size_t i : active_) {
    if (!fits(usage, i, sources_[i].current)) continue;
    map[i] = sources_[i].current;
    take(&usage, i, map[i]);
  }
  return map;
}

// Takes away what does not pay, gives what pays and fits, and keeps the channels of silent sources
// in the room that is left: their place costs nothing while nobody wants it.
void Selector::improve(Map* map) const {
  for (const std::size_t i : active_) {
    if (value(i, (*map)[i]) < 0) (*map)[i] = ChannelKind::dc_sendrecv;
  }
  Usage usage = *usage_of(*map);
  for (const ChannelKind kind : {ChannelKind::rc_rdma, ChannelKind::dc_rdma}) {
    std::vector<std::pair<double, std::size_t>> order;
    for (const std::size_t i : active_) {
      if (!allowed(i, kind)) continue;
      const double more = value(i, kind) - value(i, (*map)[i]);
      if (more > 0) order.emplace_back(-more, i);
    }
    std::sort(order.begin(), order.end());
    for (const auto& [unused, i] : order) {
      Usage changed = usage;
      give(&changed, i, (*map)[i]);
      if (!fits(changed, i, kind)) continue;
      take(&changed, i, kind);
      usage = changed;
      (*map)[i] = kind;
    }
  }
  for (const std::size_t i : idle_) {
    if (!fits(usage, i, sources_[i].current)) continue;
    (*map)[i] = sources_[i].current;
    take(&usage, i, (*map)[i]);
  }
}

Map Selector::best_map() const {
  // The first stays when others are only as good, so that nothing changes without a gain.
  Map best = current_as_far_as_it_fits();
  improve(&best);
  double most = gain(best);
  std::vector<Map> candidates;
  candidates.push_back(best_of_queue_pairs());
  if (input_.limits.dc_rdma_available) {
    candidates.push_back(paper_map());
    candidates.push_back(by_advantage());
  }
  for (Map& candidate : candidates) {
    improve(&candidate);
    if (const double g = gain(candidate); g > most) {
      most = g;
      best = std::move(candidate);
    }
  }
  return best;
}

// Which limit keeps source i, which would pay, from a ring beside `usage`.
Reason Selector::limit_met(const Usage& usage, std::size_t i) const {
  const Limits& limits = input_.limits;
  if (usage.rings >= limits.max_channels) return Reason::limit_channels;
  const bool by_dc = allowed(i, ChannelKind::dc_rdma) && value(i, ChannelKind::dc_rdma) > 0;
  if (!by_dc && usage.rc >= limits.max_active_rc) return Reason::limit_active_rc;
  return Reason::limit_budget;
}

Reason Selector::reason(const Map& map, const Usage& usage, std::size_t i) const {
  const SourceView& source = sources_[i];
  const ChannelKind to = map[i];
  if (fixed_[i]) {
    if (to != source.current) return limit_met(usage, i);
    return source.refused ? Reason::refused_by_peer : Reason::forced;
  }
  if (source.messages == 0) {
    if (!has_ring(source.current)) return Reason::too_few_messages;
    return to == source.current ? Reason::kept : Reason::idle;
  }
  if (to == ChannelKind::rc_rdma) return Reason::gain;
  if (to == ChannelKind::dc_rdma) {
    const bool displaced =
        source.current == ChannelKind::rc_rdma && value(i, ChannelKind::rc_rdma) > value(i, to);
    if (!displaced) return Reason::gain;
    return usage.rc >= input_.limits.max_active_rc ? Reason::limit_active_rc : Reason::limit_budget;
  }
  const bool pays = value(i, ChannelKind::rc_rdma) > 0 ||
                    (allowed(i, ChannelKind::dc_rdma) && value(i, ChannelKind::dc_rdma) > 0);
  return pays ? limit_met(usage, i) : Reason::too_few_messages;
}

Plan Selector::plan() const {
  Plan plan;
  Map current;
  for (const SourceView& source : sources_) current.push_back(source.current);
  const Map best = best_map();
  const Usage usage = *usage_of(best);
  plan.gain_current = gain(current);
  plan.gain_best = gain(best);
  const bool differs = best != current;
  const bool forced = !usage_of(current).has_value();
  const bool worth = messages_ > 0 && (plan.gain_best - plan.gain_current) >
                                          input_.gain_threshold * static_cast<double>(messages_);
  plan.changes = differs && (forced || worth);

  for (std::size_t i = 0; i < sources_.size(); ++i) {
    PlanLine line;
    line.peer = sources_[i].peer;
    line.from = sources_[i].current;
    line.to = plan.changes ? best[i] : line.from;
    if (line.to == ChannelKind::rc_rdma && allowed(i, ChannelKind::dc_rdma) &&
        value(i, ChannelKind::dc_rdma) > 0) {
      line.otherwise = ChannelKind::dc_rdma;
    }
    line.reason = best[i] != line.to ? Reason::below_threshold : reason(best, usage, i);
    line.messages = sources_[i].messages;
    if (line.messages > 0) {
      line.gain_per_message = value(i, line.to) / static_cast<double>(line.messages);
    }
    plan.lines.push_back(line);
  }
  std::stable_partition(plan.lines.begin(), plan.lines.end(), [](const PlanLine& line) {
    return line.from != line.to && (!has_ring(line.to) || line.from == ChannelKind::rc_rdma);
  });
  return plan;
}

}  // namespace

std::string_view explain(Reason reason) noexcept {
  switch (reason) {
    case Reason::gain:
      return "busy enough to pay for its channel";
    case Reason::too_few_messages:
      return "too few messages to pay for a channel";
    case Reason::limit_active_rc:
      return "would pay, but all RC queue pairs allowed are in use";
    case Reason::limit_channels:
      return "would pay, but all channels allowed are in use";
    case Reason::limit_budget:
      return "would pay, but the memory budget has no room";
    case Reason::below_threshold:
      return "a better map gains too little per message to change";
    case Reason::refused_by_peer:
      return "the peer refused a channel lately";
    case Reason::first_message:
      return "first message from this peer";
    case Reason::forced:
      return "asked for by the settings";
    case Reason::idle:
      return "silent, and its channel is wanted elsewhere";
    case Reason::kept:
      return "silent, kept while nobody else wants its place";
  }
  return "?";
}

MapChoice find_map(std::span<const std::uint64_t> counts_descending, const CostModel& costs,
                   std::uint32_t max_rc, std::uint32_t max_channels, bool dc_rdma_available) {
  if (counts_descending.empty()) return {};
  return best_prefix(counts_descending, poll_share(costs, counts_descending.front()), costs, max_rc,
                     max_channels, dc_rdma_available);
}

MapChoice find_map_unsorted(std::span<const std::uint64_t> counts, const CostModel& costs,
                            std::uint32_t max_rc, std::uint32_t max_channels,
                            bool dc_rdma_available) {
  std::vector<std::uint64_t> busiest(std::min<std::size_t>(counts.size(), max_channels));
  std::partial_sort_copy(counts.begin(), counts.end(), busiest.begin(), busiest.end(),
                         std::greater<>());
  return find_map(busiest, costs, max_rc, max_channels, dc_rdma_available);
}

Plan select_aqps(const Input& input) {
  return Selector(input).plan();
}

}  // namespace turnout::selection
