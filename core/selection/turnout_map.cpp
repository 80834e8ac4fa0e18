// SPDX-License-Identifier: BSD-3-Clause
// The best map of the policy `turnout`; see turnout_policy.h.
#include <algorithm>
#include <utility>

#include "core/selection/turnout_selector.h"

namespace turnout::selection {

namespace {
constexpr std::uint32_t kNobody = std::numeric_limits<std::uint32_t>::max();
}  // namespace

TurnoutSelector::Map TurnoutSelector::best_map() const {
  Usage usage;
  Map best = fixed_map(&usage);
  std::vector<std::uint32_t> all;
  for (std::uint32_t i = 0; i < sources_.size() && sources_[i].messages > 0; ++i) {
    if (!fixed(sources_[i]) && std::max(shares_[i].dc, shares_[i].rc) > 0) all.push_back(i);
  }
  // Rings over DC first, the best ones that fit.
  Pool pool{std::move(all), {}, {}};
  for (const std::uint32_t i : pool.sources) {
    pool.steps.push_back(
        {rc_value(i), shares_[i].dc, messages(i), rc_exists(sources_[i]), over_node(sources_[i])});
  }
  for (std::uint32_t k = 0; k < pool.sources.size(); ++k) pool.by_dc.push_back(k);
  const auto dc = [&](std::uint32_t k) { return shares_[pool.sources[k]].dc; };
  std::sort(pool.by_dc.begin(), pool.by_dc.end(), [&](std::uint32_t a, std::uint32_t b) {
    return dc(a) != dc(b) ? dc(a) > dc(b) : a < b;
  });
  Trial trial{Map(pool.sources.size(), input_.default_channel), usage, 0, contexts_of(best), 0};
  refill(pool, &trial);
  Trial found = trial;
  // One queue pair more along the best exchange: a ring over DC becomes one over RC, or a new one
  // does; rings over DC that no longer fit go, the worst first, and come back, the best first.
  // What loses without the contexts never gains with them.
  for (std::size_t round = 0; round < pool.sources.size(); ++round) {
    std::optional<Trial> next;
    for (const std::uint32_t k : best_steps(pool, trial)) {
      if (k == kNobody) continue;
      std::optional<Trial> with = add_queue_pair(trial, pool, k);
      if (with && (!next || total(*with) > total(*next))) next = std::move(with);
    }
    if (!next || next->value <= trial.value) break;
    trial = std::move(*next);
    if (total(trial) > total(found)) found = trial;
  }
  for (std::size_t k = 0; k < pool.sources.size(); ++k) best[pool.sources[k]] = found.map[k];
  keep_idle(&best, found.usage);
  return best;
}

// Rings over DC for the best sources that have none, as far as they fit.
void TurnoutSelector::refill(const Pool& pool, Trial* trial) const {
  for (const std::uint32_t k : pool.by_dc) {
    const std::uint32_t i = pool.sources[k];
    if (shares_[i].dc <= 0) return;
    if (!fits(trial->usage, sources_[i], ChannelKind::dc_rdma))
      return;  // all rings are of one size
    if (trial->map[k] != input_.default_channel) continue;
    trial->map[k] = ChannelKind::dc_rdma;
    take(&trial->usage, i, ChannelKind::dc_rdma);
    trial->value += shares_[i].dc;
  }
}

// What an RC queue pair for source i is worth, the sender's contexts included.
double TurnoutSelector::rc_value(std::size_t i) const {
  const double more = sources_[i].current == ChannelKind::rc_rdma ? 0 : 1;
  return shares_[i].rc - messages(i) * context_loss(costs_, sources_[i].feedback.active_rc + more);
}

// The best candidates for one more queue pair: those that differ in what they need of the limits.
std::array<std::uint32_t, 4> TurnoutSelector::best_steps(const Pool& pool,
                                                         const Trial& trial) const {
  const std::uint32_t most_new = most_new_rc(), most_pairs = most_new_pairs();
  const double loss_then = context_loss(costs_, trial.contexts.active + 1);
  std::array<std::uint32_t, 4> best;
  best.fill(kNobody);
  std::array<double, 4> most;
  most.fill(kNever);
  for (std::uint32_t k = 0; k < pool.sources.size(); ++k) {
    if (trial.map[k] == ChannelKind::rc_rdma) continue;
    const Step& step = pool.steps[k];
    if (!step.queue_pair && trial.new_rc >= most_new) continue;
    if (!step.queue_pair && !step.of_node && trial.new_pairs >= most_pairs) continue;
    const bool converts = trial.map[k] == ChannelKind::dc_rdma;
    const std::size_t kind = (converts ? 2u : 0u) + (step.queue_pair ? 1u : 0u);
    const double value = step.rc - step.messages * loss_then - (converts ? step.dc : 0);
    if (value <= most[kind]) continue;
    most[kind] = value;
    best[kind] = k;
  }
  return best;
}

std::optional<TurnoutSelector::Trial> TurnoutSelector::add_queue_pair(const Trial& trial,
                                                                      const Pool& pool,
                                                                      std::uint32_t added) const {
  Trial t = trial;
  const auto drop = [&](std::uint32_t k) {
    const std::uint32_t i = pool.sources[k];
    t.map[k] = input_.default_channel;
    --t.usage.rings;
    t.usage.bytes -= bytes(sources_[i], ChannelKind::dc_rdma);
    t.value -= shares_[i].dc;
  };
  const std::uint32_t i = pool.sources[added];
  if (t.map[added] == ChannelKind::dc_rdma) drop(added);
  for (auto at = pool.by_dc.rbegin(); !fits(t.usage, sources_[i], ChannelKind::rc_rdma); ++at) {
    while (at != pool.by_dc.rend() && t.map[*at] != ChannelKind::dc_rdma) ++at;
    if (at == pool.by_dc.rend()) return std::nullopt;
    drop(*at);
  }
  t.map[added] = ChannelKind::rc_rdma;
  if (!pool.steps[added].queue_pair) {
    ++t.new_rc;
    if (!pool.steps[added].of_node) ++t.new_pairs;
  }
  take(&t.usage, i, ChannelKind::rc_rdma);
  t.value += pool.steps[added].rc;
  t.contexts.active += 1;
  t.contexts.operations += messages(i);
  refill(pool, &t);
  return t;
}

}  // namespace turnout::selection
