// SPDX-License-Identifier: BSD-3-Clause
// Which sources the policy `turnout` looks at, and its best map; see turnout_policy.h.
#include <algorithm>
#include <limits>
#include <utility>

#include "core/selection/source_order.h"
#include "core/selection/turnout_selector.h"

namespace turnout::selection {

namespace {
constexpr std::uint32_t kNobody = std::numeric_limits<std::uint32_t>::max();

// Of the sources that no limit names, this many times the rings allowed are looked at.
constexpr std::size_t kCandidates = 2;

// The places of the `wanted` sources worth most, of any number offered, in memory for a few of
// those wanted: the thousands that come too late need one comparison.
class MostWorth {
 public:
  MostWorth(std::span<const SourceView> sources, std::size_t wanted)
      : sources_(sources), wanted_(wanted) {}

  void offer(double worth, std::uint32_t place) {
    if (worth < least_ || wanted_ == 0) return;
    ranked_.emplace_back(worth, place);
    if (ranked_.size() >= kCandidates * wanted_) cut();
  }
  void take(std::vector<std::uint32_t>* places) {
    cut();
    for (const auto& [worth, place] : ranked_) places->push_back(place);
  }

 private:
  using Ranked = std::pair<double, std::uint32_t>;
  void cut() {
    if (ranked_.size() <= wanted_) return;
    const auto last = ranked_.begin() + static_cast<std::ptrdiff_t>(wanted_ - 1);
    std::nth_element(ranked_.begin(), last, ranked_.end(),
                     [this](const Ranked& a, const Ranked& b) {
                       if (a.first != b.first) return a.first > b.first;
                       return busier(sources_[a.second], sources_[b.second]);
                     });
    least_ = last->first;
    ranked_.resize(wanted_);
  }

  std::span<const SourceView> sources_;
  std::size_t wanted_;
  std::vector<Ranked> ranked_;
  double least_ = 0;
};

}  // namespace

void TurnoutSelector::choose_sources() {
  const std::size_t rings = input_.limits.max_channels;
  std::vector<std::uint32_t> worthy;  // all of them, while there are few
  MostWorth over_dc(input_.sources, rings), over_rc(input_.sources, rings);
  std::vector<std::uint32_t> places;
  for (std::uint32_t i = 0; i < input_.sources.size(); ++i) {
    const SourceView& s = input_.sources[i];
    if (s.current != input_.default_channel) {
      places.push_back(i);
      continue;
    }
    if (s.refused || s.messages == 0) continue;
    const Share value = share(s);
    if (std::max(value.dc, value.rc) <= 0) continue;
    if (worthy.size() <= kCandidates * rings) worthy.push_back(i);
    if (value.dc > 0) over_dc.offer(value.dc, i);
    if (value.rc > 0) over_rc.offer(value.rc, i);
  }
  if (worthy.size() > kCandidates * rings) {
    worthy.clear();
    over_dc.take(&worthy);
    over_rc.take(&worthy);
  }
  places.insert(places.end(), worthy.begin(), worthy.end());
  std::vector<SourceView> chosen;
  for (const std::uint32_t i : places) {
    if (chosen_[i]) continue;
    chosen_[i] = true;
    chosen.push_back(input_.sources[i]);
  }
  sources_ = busiest_first(chosen);
}

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
