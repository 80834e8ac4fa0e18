// SPDX-License-Identifier: BSD-3-Clause
// What the selection is judged by: the paper's own double loop, and every map there is.
//
// Slow and plain on purpose. Pure functions.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "core/selection/costs.h"
#include "core/selection/policy.h"

namespace turnout::selection::oracle {

// AQPS Fig. 6 with m <= min(l, h): x(l,m), term by term.
inline double x(const std::vector<std::uint64_t>& n, std::size_t l, std::size_t m,
                const CostModel& costs) {
  double gain = 0;
  for (std::size_t i = 0; i < m; ++i) gain += static_cast<double>(n[i]) * costs.saving_rc_rdma;
  for (std::size_t i = m; i < l; ++i) gain += static_cast<double>(n[i]) * costs.saving_dc_rdma;
  for (std::size_t i = 0; i < l; ++i) {
    gain -= static_cast<double>(n[i]) * costs.credit / static_cast<double>(costs.ring_entries);
  }
  const std::uint64_t most = n.empty() ? 0 : *std::max_element(n.begin(), n.end());
  gain -= static_cast<double>(most) * static_cast<double>(l) / 2 * costs.poll;
  gain -= static_cast<double>(m) * costs.setup_rc + static_cast<double>(l - m) * costs.setup_dc;
  return gain;
}

struct MapChoice {
  std::uint32_t rc = 0;        // m: the first m of the sorted sources
  std::uint32_t channels = 0;  // l
  double gain = 0;             // x(l,m), ns
};

inline MapChoice find_map(std::vector<std::uint64_t> n, const CostModel& costs, std::uint32_t h,
                          std::uint32_t tau, bool dc_rdma_available) {
  std::sort(n.begin(), n.end(), std::greater<>());
  MapChoice best;
  best.gain = -std::numeric_limits<double>::infinity();
  for (std::size_t l = 0; l <= tau && l <= n.size(); ++l) {
    for (std::size_t m = 0; m <= h && m <= l; ++m) {
      if (!dc_rdma_available && m != l) continue;
      const double gain = x(n, l, m, costs);
      if (gain > best.gain) {
        best = {static_cast<std::uint32_t>(m), static_cast<std::uint32_t>(l), gain};
      }
    }
  }
  return best;
}

inline bool ring(ChannelKind kind) {
  return kind == ChannelKind::dc_rdma || kind == ChannelKind::rc_rdma;
}

// Gain in the window of any map, set-up charged for what does not exist.
inline double gain(const Input& input, const std::vector<ChannelKind>& map) {
  const CostModel& costs = input.costs;
  std::uint64_t most = 0;
  for (std::size_t i = 0; i < map.size(); ++i) {
    most = std::max(most, input.sources[i].messages);
  }
  double sum = 0;
  for (std::size_t i = 0; i < map.size(); ++i) {
    const SourceView& s = input.sources[i];
    if (!ring(map[i])) continue;
    const bool rc = map[i] == ChannelKind::rc_rdma;
    sum += static_cast<double>(s.messages) * (rc ? costs.saving_rc_rdma : costs.saving_dc_rdma);
    sum -= static_cast<double>(s.messages) * costs.credit / static_cast<double>(costs.ring_entries);
    sum -= static_cast<double>(most) * costs.poll / 2 / (s.messages == 0 ? kSilentRounds : 1);
    if (map[i] == s.current) continue;
    if (rc && !s.rc_exists) sum -= costs.setup_rc;
    if (!rc && !ring(s.current)) sum -= costs.setup_dc;
  }
  return sum;
}

inline bool within_limits(const Input& input, const std::vector<ChannelKind>& map) {
  std::uint64_t rc = 0, rings = 0, bytes = 0;
  for (std::size_t i = 0; i < map.size(); ++i) {
    if (!ring(map[i])) continue;
    const SourceView& s = input.sources[i];
    ++rings;
    bytes += input.limits.bytes_per_ring;
    if (map[i] == ChannelKind::rc_rdma) {
      ++rc;
      if (!s.rc_exists && s.current != ChannelKind::rc_rdma) bytes += input.limits.bytes_per_rc;
    }
  }
  return rc <= input.limits.max_active_rc && rings <= input.limits.max_channels &&
         bytes <= input.limits.bytes_available;
}

// The most any map within the limits gains; refused sources keep what they have. 3^n maps: n <= 8.
inline double best_gain(const Input& input) {
  const std::size_t n = input.sources.size();
  std::vector<ChannelKind> map(n, ChannelKind::dc_sendrecv);
  std::size_t maps = 1;
  for (std::size_t i = 0; i < n; ++i) maps *= 3;
  double best = -std::numeric_limits<double>::infinity();
  for (std::size_t code = 0; code < maps; ++code) {
    bool possible = true;
    std::size_t rest = code;
    for (std::size_t i = 0; i < n; ++i, rest /= 3) {
      map[i] = static_cast<ChannelKind>(rest % 3);
      const SourceView& s = input.sources[i];
      if (s.refused && map[i] != s.current) possible = false;
      if (map[i] == ChannelKind::dc_rdma && !input.limits.dc_rdma_available &&
          s.current != ChannelKind::dc_rdma) {
        possible = false;
      }
    }
    if (possible && within_limits(input, map)) best = std::max(best, gain(input, map));
  }
  return best;
}

// The same by a table over (rings, RC, bytes' worth of new queue pairs), source after source: for
// some tens of sources. `lead`: sources busier than that get no ring, and polls are priced by it.
inline double best_gain_if_led_by(const Input& input, std::uint64_t lead) {
  const Limits& limits = input.limits;
  const CostModel& costs = input.costs;
  const double never = -std::numeric_limits<double>::infinity();
  const std::size_t n = input.sources.size();
  const std::size_t rings = std::min<std::size_t>(limits.max_channels, n);
  const std::size_t rcs = std::min<std::size_t>(limits.max_active_rc, n);
  const auto at = [&](std::size_t l, std::size_t m, std::size_t f) {
    return (l * (rcs + 1) + m) * (rcs + 1) + f;
  };
  std::vector<double> table((rings + 1) * (rcs + 1) * (rcs + 1), never);
  table[0] = 0;
  for (const SourceView& s : input.sources) {
    std::vector<double> next(table.size(), never);
    const double credit = costs.credit / static_cast<double>(costs.ring_entries);
    const double poll = static_cast<double>(lead) * costs.poll / 2;
    const bool exists = s.rc_exists || s.current == ChannelKind::rc_rdma;
    for (const ChannelKind kind :
         {ChannelKind::dc_sendrecv, ChannelKind::dc_rdma, ChannelKind::rc_rdma}) {
      if (s.refused && kind != s.current) continue;
      if (kind == ChannelKind::dc_rdma && !limits.dc_rdma_available &&
          s.current != ChannelKind::dc_rdma) {
        continue;
      }
      if (ring(kind) && s.messages > lead) continue;
      const bool rc = kind == ChannelKind::rc_rdma;
      double value = 0;
      if (ring(kind)) {
        value = static_cast<double>(s.messages) *
                    ((rc ? costs.saving_rc_rdma : costs.saving_dc_rdma) - credit) -
                poll;
        if (rc && !exists) value -= costs.setup_rc;
        if (!rc && !ring(s.current)) value -= costs.setup_dc;
      }
      const std::size_t dl = ring(kind) ? 1 : 0, dm = rc ? 1 : 0, df = rc && !exists ? 1 : 0;
      for (std::size_t l = 0; l + dl <= rings; ++l) {
        for (std::size_t m = 0; m + dm <= rcs; ++m) {
          for (std::size_t f = 0; f + df <= rcs; ++f) {
            if ((l + dl) * limits.bytes_per_ring + (f + df) * limits.bytes_per_rc >
                limits.bytes_available) {
              continue;
            }
            double& to = next[at(l + dl, m + dm, f + df)];
            to = std::max(to, table[at(l, m, f)] + value);
          }
        }
      }
    }
    table = std::move(next);
  }
  return *std::max_element(table.begin(), table.end());
}

inline double best_gain_by_table(const Input& input) {
  std::uint64_t most = 0;
  for (const SourceView& s : input.sources) most = std::max(most, s.messages);
  return best_gain_if_led_by(input, most);
}

}  // namespace turnout::selection::oracle
