// SPDX-License-Identifier: BSD-3-Clause
#include "core/selection/policy.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/index_of.h"
#include "core/selection/best_map.h"
#include "core/selection/channel_map.h"
#include "core/selection/costs.h"
#include "core/selection/source_order.h"

namespace turnout::selection {

namespace {

// Sources alike but for their counts; see best_map.h.
struct Group {
  std::vector<double> counts;
  std::vector<std::uint32_t> positions;
};
// By whether a ring exists, a queue pair exists, DC-RDMA is allowed.
constexpr std::size_t kGroups = 8;

constexpr std::size_t group_number(bool ring, bool queue_pair, bool dc_allowed) {
  // What exists comes first: among equals it is preferred.
  return (ring ? 0u : 4u) + (queue_pair ? 0u : 2u) + (dc_allowed ? 0u : 1u);
}

class Selector : ChannelMaps {
 public:
  explicit Selector(const Input& input)
      : ChannelMaps(input.limits, input.default_channel), input_(input) {
    sources_ = busiest_first(input.sources);
    for (SourceView& source : sources_) source.over_node = false;  // AQPS knows queue pairs only
    for (std::uint32_t i = 0; i < sources_.size(); ++i) {
      const SourceView& source = sources_[i];
      messages_ += source.messages;
      if (fixed(source)) continue;
      const bool ring = over_ring(source.current);
      if (ring && source.messages == 0) idle_.push_back(i);
      if (source.messages == 0) continue;
      const auto messages = static_cast<double>(source.messages);
      Group& group =
          groups_[group_number(ring, rc_exists(source), allowed(i, ChannelKind::dc_rdma))];
      // The busiest of a group come first in any map.
      if (group.counts.size() >= input.limits.max_channels) continue;
      group.counts.push_back(messages);
      group.positions.push_back(i);
    }
    if (input.messages > 0) messages_ = input.messages;
  }
  [[nodiscard]] Plan plan() {
    Plan plan;
    const Map current = this->current();
    const Map best = best_map();
    const Usage usage = *usage_of(best);
    plan.gain_current = gain(current);
    plan.gain_best = gain(best);
    const bool differs = best != current;
    plan.forced = !usage_of(current).has_value();
    const bool worth = messages_ > 0 && (plan.gain_best - plan.gain_current) >
                                            input_.gain_threshold * static_cast<double>(messages_);
    plan.changes = differs && (plan.forced || worth);

    const double each = poll();
    const auto add_line = [&](std::size_t i) {
      PlanLine& line = plan.lines.emplace_back();
      line.peer = sources_[i].peer;
      line.from = sources_[i].current;
      line.to = plan.changes ? best[i] : line.from;
      if (line.to == ChannelKind::rc_rdma && allowed(i, ChannelKind::dc_rdma) &&
          value(i, ChannelKind::dc_rdma, each) > 0) {
        line.fallback = ChannelKind::dc_rdma;
      }
      line.reason = best[i] != line.to ? Reason::below_threshold : reason(best, usage, i);
      line.messages = sources_[i].messages;
      if (line.messages > 0) {
        line.gain_per_message = value(i, line.to, each) / static_cast<double>(line.messages);
      }
    };
    plan.lines.reserve(sources_.size());
    for (const bool first : {true, false}) {
      for (std::size_t i = 0; i < sources_.size(); ++i) {
        if ((plan.changes && is_downgrade(current[i], best[i])) == first) add_line(i);
      }
    }
    return plan;
  }

 private:
  [[nodiscard]] double setup(std::size_t i, ChannelKind kind) const {
    if (kind == ChannelKind::rc_rdma) return rc_exists(sources_[i]) ? 0 : input_.costs.setup_rc;
    return over_ring(sources_[i].current) ? 0 : input_.costs.setup_dc;
  }
  // This source's own share of the gain.
  [[nodiscard]] double value(std::size_t i, ChannelKind kind, double poll) const {
    if (!over_ring(kind)) return 0;
    if (sources_[i].messages == 0) return -silent_share(poll) - setup(i, kind);
    return static_cast<double>(sources_[i].messages) * saving(input_.costs, kind) - poll -
           setup(i, kind);
  }
  [[nodiscard]] bool allowed(std::size_t i, ChannelKind kind) const {
    return kind != ChannelKind::dc_rdma || input_.limits.dc_rdma_available ||
           sources_[i].current == ChannelKind::dc_rdma;
  }
  [[nodiscard]] double leading() const {  // n_1
    return sources_.empty() ? 0 : static_cast<double>(sources_.front().messages);
  }
  [[nodiscard]] double poll() const { return poll_share(input_.costs, leading()); }
  [[nodiscard]] double gain(const Map& map, bool of_silent = true) const {
    const double each = poll();
    double sum = 0;
    for (std::size_t i = 0; i < map.size(); ++i) {
      if (over_ring(map[i]) && (of_silent || sources_[i].messages > 0))
        sum += value(i, map[i], each);
    }
    return sum;
  }
  // Keeps the channels of silent sources in the room that is left: their place costs nothing while
  // nobody wants it.
  void keep_idle(Map* map, Usage usage) const {
    for (const std::uint32_t i : idle_) keep(map, &usage, i);
  }
  [[nodiscard]] Map current_as_far_as_it_fits() const {
    Usage usage;
    Map map = current_of_busy(&usage);
    keep_idle(&map, usage);
    return map;
  }
  [[nodiscard]] RingRoom room_beside(const Usage& usage) const {
    const Limits& limits = input_.limits;
    const auto left = [](std::uint64_t limit, std::uint64_t used) {
      return limit > used ? limit - used : 0;
    };
    return {left(limits.max_channels, usage.rings), left(limits.max_active_rc, usage.rc),
            left(limits.bytes_available, usage.bytes), limits.bytes_per_ring, limits.bytes_per_rc};
  }
  void give(const Group& group, const GroupShare& share, Map* map, Usage* usage) const {
    const bool rc_first =
        saving(input_.costs, ChannelKind::rc_rdma) >= saving(input_.costs, ChannelKind::dc_rdma);
    const std::uint32_t first = rc_first ? share.rc : share.dc;
    for (std::uint32_t k = 0; k < share.rc + share.dc; ++k) {
      const std::size_t i = group.positions[k];
      const ChannelKind kind =
          (k < first) == rc_first ? ChannelKind::rc_rdma : ChannelKind::dc_rdma;
      if (!fits(*usage, sources_[i], kind)) continue;
      (*map)[i] = kind;
      take(usage, i, kind);
    }
  }
  // The optimum over the sources that spoke and are ours to choose.
  [[nodiscard]] Map exact_map(Usage* usage) const {
    Map map = fixed_map(usage);
    const CostModel& costs = input_.costs;
    std::vector<SourceGroup> groups;
    for (std::size_t g = 0; g < kGroups; ++g) {
      const bool ring = g < 4, queue_pair = g % 4 < 2, dc_allowed = g % 2 == 0;
      groups.push_back({groups_[g].counts, ring ? 0 : costs.setup_dc,
                        queue_pair ? 0 : costs.setup_rc, dc_allowed, !queue_pair});
    }
    const double dc = saving(costs, ChannelKind::dc_rdma), rc = saving(costs, ChannelKind::rc_rdma);
    const BestShares best = best_shares(groups, {dc, rc, poll()}, room_beside(*usage));
    for (std::size_t g = 0; g < kGroups; ++g) give(groups_[g], best.shares[g], &map, usage);
    return map;
  }
  [[nodiscard]] Map best_map() const {
    Map current = current_as_far_as_it_fits();
    Usage usage;
    Map best = exact_map(&usage);
    keep_idle(&best, usage);
    // Nothing changes without a gain. Silent sources kept are polled, so maps are compared by what
    // the others gain.
    const double now = gain(current, false), then = gain(best, false);
    const double rounding =
        1e-12 * leading() *
        std::max(std::abs(input_.costs.saving_rc_rdma), std::abs(input_.costs.saving_dc_rdma));
    return then > now + rounding ? best : current;
  }
  // Which limit keeps source i, which would pay, from a ring beside `usage`.
  [[nodiscard]] Reason limit_met(const Usage& usage, std::size_t i, double poll) const {
    const Limits& limits = input_.limits;
    if (usage.rings >= limits.max_channels) return Reason::limit_channels;
    const bool by_dc = allowed(i, ChannelKind::dc_rdma) && value(i, ChannelKind::dc_rdma, poll) > 0;
    if (!by_dc && usage.rc >= limits.max_active_rc) return Reason::limit_active_rc;
    return Reason::limit_budget;
  }
  [[nodiscard]] Reason reason(const Map& map, const Usage& usage, std::size_t i) const {
    const SourceView& source = sources_[i];
    const ChannelKind to = map[i];
    const double poll = this->poll();
    if (fixed(source)) {
      if (to != source.current) return limit_met(usage, i, poll);
      return source.refused ? Reason::refused_by_peer : Reason::forced;
    }
    if (source.messages == 0) {
      if (!over_ring(source.current)) return Reason::too_few_messages;
      return to == source.current ? Reason::kept : Reason::idle;
    }
    if (to == ChannelKind::rc_rdma) return Reason::gain;
    if (to == ChannelKind::dc_rdma) {
      const bool displaced = source.current == ChannelKind::rc_rdma &&
                             value(i, ChannelKind::rc_rdma, poll) > value(i, to, poll);
      if (!displaced) return Reason::gain;
      return usage.rc >= input_.limits.max_active_rc ? Reason::limit_active_rc
                                                     : Reason::limit_budget;
    }
    const bool pays =
        value(i, ChannelKind::rc_rdma, poll) > 0 ||
        (allowed(i, ChannelKind::dc_rdma) && value(i, ChannelKind::dc_rdma, poll) > 0);
    if (!pays) return Reason::too_few_messages;
    return limit_met(usage, i, poll);
  }

  const Input& input_;
  std::vector<std::uint32_t> idle_;  // silent ones with a ring, not fixed
  std::array<Group, kGroups> groups_;
  std::uint64_t messages_ = 0;
};

}  // namespace

std::string_view explain(Reason reason) noexcept {
  constexpr std::array<std::string_view, 18> kWords = {
      "message rate justifies the channel",
      "message rate too low for a channel",
      "channel justified, but the RC queue pair limit is reached",
      "channel justified, but the channel limit is reached",
      "channel justified, but the memory budget has no room",
      "channel justified, but the peer's memory budget has no room",
      "estimated gain per message is below the threshold",
      "the peer recently refused a channel",
      "first message from this peer",
      "set by configuration",
      "idle; another peer needs its channel",
      "idle; kept because no peer needs the slot",
      "its sender is delayed by DC switches",
      "not on RC: the adapters' QP contexts are exhausted",
      "CPU-bound: earlier arrival would save nothing",
      "more messages over its queue pair than the ring threshold",
      "estimated gain is within the measurement error",
      "predicted by the last run (TURNOUT_PREDICTION)",
  };
  return name_of(kWords, reason);
}

Plan select_aqps(const Input& input) {
  return Selector(input).plan();
}

}  // namespace turnout::selection
