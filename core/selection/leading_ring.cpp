// SPDX-License-Identifier: BSD-3-Clause
#include "core/selection/leading_ring.h"

#include <algorithm>
#include <functional>
#include <limits>

namespace turnout::selection {

namespace {

// Paths followed in all: a millisecond or two.
constexpr std::uint64_t kMostPaths = 5'000;

class Search {
 public:
  explicit Search(const LeadingProblem& problem) : p_(problem) {
    sums_.reserve(p_.counts.size() + 1);
    sums_.push_back(0);
    for (const double n : p_.counts) sums_.push_back(sums_.back() + n);
    rings_ = p_.room.rings_beside(0);
    rc_ = std::min(p_.room.rc, rings_);
    std::uint64_t dc_sources = 0;
    for (const SourceGroup& g : p_.groups) dc_sources += g.dc_allowed ? g.counts.size() : 0;
    any_dc_ = dc_sources > 0;
    dc_ = std::min(rings_ - rc_, dc_sources);
    saving_first_ = any_dc_ ? std::max(p_.saving_rc, p_.saving_dc) : p_.saving_rc;
    setup_first_ = any_dc_ ? std::min(p_.setup_rc, p_.setup_dc) : p_.setup_rc;
    free_first_ = p_.existing_queue_pairs + (any_dc_ ? p_.existing_rings : 0);
  }

  LeadingShares run() {
    best_.gain = -std::numeric_limits<double>::infinity();
    consider(p_.fixed_lead);
    if (p_.counts.empty() || p_.counts.front() <= p_.fixed_lead) return best_;
    consider(p_.counts.front());  // the paper's
    struct Leader {
      double bound;
      double count;
    };
    std::vector<Leader> leaders;
    double last = p_.counts.front();
    for (std::size_t i = 0; i < p_.counts.size(); ++i) {
      const double n = p_.counts[i];
      if (n <= p_.fixed_lead) break;
      if (n == last) continue;
      last = n;
      if (rough_bound(n) <= best_.gain) break;  // falls with n
      if (const double bound = this->bound(n, i); bound > best_.gain) leaders.push_back({bound, n});
    }
    std::sort(leaders.begin(), leaders.end(), [](const Leader& a, const Leader& b) {
      return a.bound != b.bound ? a.bound > b.bound : a.count > b.count;
    });
    for (const Leader& leader : leaders) {
      if (leader.bound <= best_.gain) break;
      if (paths_ >= kMostPaths) {
        best_.shortfall = leader.bound - best_.gain;
        break;
      }
      consider(leader.count);
    }
    return best_;
  }

 private:
  [[nodiscard]] double poll(double lead) const { return lead * p_.poll / 2; }

  void consider(double lead) {
    std::vector<SourceGroup> groups(p_.groups.begin(), p_.groups.end());
    std::vector<std::size_t> starts;
    for (SourceGroup& group : groups) {
      const auto first =
          std::lower_bound(group.counts.begin(), group.counts.end(), lead, std::greater<>());
      starts.push_back(static_cast<std::size_t>(first - group.counts.begin()));
      group.counts = group.counts.subspan(starts.back());
    }
    BestShares found = best_shares(groups, {p_.saving_dc, p_.saving_rc, poll(lead)}, p_.room);
    paths_ += found.paths;
    const double gain = found.gain - static_cast<double>(p_.fixed_rings) * poll(lead);
    if (gain > best_.gain) best_ = {std::move(starts), std::move(found.shares), lead, gain, 0};
  }

  // At most `slots` sources from the i-th on, each saving `saving` a message less poll, all but
  // `free` of them less set-up: the sum of what is above 0.
  [[nodiscard]] double sum_above(std::size_t i, std::uint64_t slots, double saving, double poll,
                                 std::uint64_t free, double setup) const {
    const std::size_t end = i + std::min<std::size_t>(slots, p_.counts.size() - i);
    const std::size_t middle = i + std::min<std::size_t>(free, end - i);
    return part(i, middle, saving, poll) + part(middle, end, saving, poll + setup);
  }
  [[nodiscard]] double part(std::size_t from, std::size_t to, double saving, double cost) const {
    if (saving <= 0 || from == to) return 0;
    const auto begin = p_.counts.begin();
    const auto stop = std::partition_point(begin + static_cast<std::ptrdiff_t>(from),
                                           begin + static_cast<std::ptrdiff_t>(to),
                                           [&](double n) { return n * saving > cost; });
    const auto end = static_cast<std::size_t>(stop - begin);
    return (sums_[end] - sums_[from]) * saving - static_cast<double>(end - from) * cost;
  }

  // No map led by counts[i] gains more: as if each of the busiest got the best channel there is,
  // and those that exist were theirs.
  [[nodiscard]] double bound(double lead, std::size_t i) const {
    double sum = sum_above(i, rc_, saving_first_, poll(lead), free_first_, setup_first_);
    if (any_dc_ && i + rc_ < p_.counts.size()) {
      sum += sum_above(i + rc_, dc_, p_.saving_dc, poll(lead), p_.existing_rings, p_.setup_dc);
    }
    return sum - static_cast<double>(p_.fixed_rings) * poll(lead);
  }
  // The same as if all counts were `lead`, never less than bound(), and never less for a larger
  // lead.
  [[nodiscard]] double rough_bound(double lead) const {
    const auto slots = [&](std::uint64_t count, double saving, std::uint64_t free, double setup) {
      const double each = lead * saving - poll(lead);
      const std::uint64_t without = std::min(count, free);
      return static_cast<double>(without) * std::max(0.0, each) +
             static_cast<double>(count - without) * std::max(0.0, each - setup);
    };
    const auto sources = static_cast<std::uint64_t>(p_.counts.size());
    const std::uint64_t rc = std::min(rc_, sources);
    double sum = slots(rc, saving_first_, free_first_, setup_first_);
    if (any_dc_) {
      sum += slots(std::min(dc_, sources - rc), p_.saving_dc, p_.existing_rings, p_.setup_dc);
    }
    return sum - static_cast<double>(p_.fixed_rings) * poll(p_.fixed_lead);
  }

  const LeadingProblem& p_;
  std::vector<double> sums_;                   // of the first i counts
  std::uint64_t rings_ = 0, rc_ = 0, dc_ = 0;  // most of all, of queue pairs, beside those
  bool any_dc_ = false;
  // What the first rc_ rings cannot beat.
  double saving_first_ = 0, setup_first_ = 0;
  std::uint64_t free_first_ = 0;
  LeadingShares best_;
  std::uint64_t paths_ = 0;
};

}  // namespace

LeadingShares best_with_leading_ring(const LeadingProblem& problem) {
  return Search(problem).run();
}

}  // namespace turnout::selection
