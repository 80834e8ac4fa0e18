// SPDX-License-Identifier: BSD-3-Clause
// Which sources the policy `turnout` looks at; see turnout_policy.h.
#include <algorithm>
#include <utility>

#include "core/selection/source_order.h"
#include "core/selection/turnout_selector.h"

namespace turnout::selection {

namespace {

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

}  // namespace turnout::selection
