// SPDX-License-Identifier: BSD-3-Clause
// FIND_MAP in one pass.
#include <algorithm>
#include <functional>

#include "core/selection/costs.h"
#include "core/selection/policy.h"

namespace turnout::selection {

namespace {

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

}  // namespace

MapChoice find_map(std::span<const std::uint64_t> counts_descending, const CostModel& costs,
                   std::uint32_t max_rc, std::uint32_t max_channels, bool dc_rdma_available) {
  if (counts_descending.empty()) return {};
  return best_prefix(counts_descending,
                     poll_share(costs, static_cast<double>(counts_descending.front())), costs,
                     max_rc, max_channels, dc_rdma_available);
}

MapChoice find_map_unsorted(std::span<const std::uint64_t> counts, const CostModel& costs,
                            std::uint32_t max_rc, std::uint32_t max_channels,
                            bool dc_rdma_available) {
  std::vector<std::uint64_t> busiest(std::min<std::size_t>(counts.size(), max_channels));
  std::partial_sort_copy(counts.begin(), counts.end(), busiest.begin(), busiest.end(),
                         std::greater<>());
  return find_map(busiest, costs, max_rc, max_channels, dc_rdma_available);
}

}  // namespace turnout::selection
