// SPDX-License-Identifier: BSD-3-Clause
// Random inputs of the selection: sources, limits, costs.
#pragma once

#include <algorithm>
#include <random>

#include "core/selection/policy.h"

namespace turnout::selection {

struct World {
  std::vector<SourceView> sources;
  CostModel costs;
  Limits limits;
  double gamma = 0;
  [[nodiscard]] Input input() const { return {sources, costs, limits, gamma, 0}; }
};

class Generator {
 public:
  explicit Generator(std::uint64_t seed) : random_(seed) {}
  std::uint64_t below(std::uint64_t n) { return random_() % n; }

  World world(std::size_t most_sources, bool dc) {
    World w;
    w.limits.dc_rdma_available = dc;
    const std::uint64_t most = std::uint64_t{1} << (4 + below(16));
    w.sources.resize(below(most_sources + 1));
    for (std::size_t i = 0; i < w.sources.size(); ++i) {
      SourceView& s = w.sources[i];
      s.peer = static_cast<std::uint32_t>(i);
      s.messages = below(5) == 0 ? 0 : below(4) == 0 ? most : below(most + 1);
      const std::uint64_t kind = below(4);
      s.current = kind == 0         ? ChannelKind::rc_rdma
                  : kind == 1 && dc ? ChannelKind::dc_rdma
                                    : ChannelKind::dc_sendrecv;
      s.rc_exists = s.current == ChannelKind::rc_rdma || below(5) == 0;
      s.refused = below(8) == 0;
    }
    std::shuffle(w.sources.begin(), w.sources.end(), random_);
    w.limits.bytes_per_ring = 64 << 10;
    w.limits.bytes_per_rc = (16 + below(100)) << 10;
    w.limits.max_active_rc = static_cast<std::uint32_t>(below(most_sources + 1));
    w.limits.max_channels = static_cast<std::uint32_t>(below(most_sources + 1));
    w.limits.bytes_available =
        below((w.limits.bytes_per_ring + w.limits.bytes_per_rc) * (most_sources + 1));
    w.gamma = below(2) == 0 ? 0 : 25;
    return w;
  }

  // The costs of another device, DC-RDMA better than RC-RDMA among them, and other sizes.
  void other_costs(World* w) {
    w->costs.saving_dc_rdma = static_cast<double>(below(300));
    w->costs.saving_rc_rdma = static_cast<double>(below(300));
    w->costs.poll = static_cast<double>(below(40));
    w->costs.credit = static_cast<double>(below(1000));
    w->costs.setup_dc = below(3) == 0 ? 0 : static_cast<double>(below(100'000));
    w->costs.setup_rc = below(3) == 0 ? 0 : static_cast<double>(below(100'000));
    w->costs.ring_entries = 1u << below(8);
    w->limits.bytes_per_ring = below(8) == 0 ? 0 : 1 + below(100);
    w->limits.bytes_per_rc = below(8) == 0 ? 0 : 1 + below(300);
    w->limits.bytes_available = below(150 * (w->sources.size() + 1));
  }

 private:
  std::mt19937_64 random_;
};

}  // namespace turnout::selection
