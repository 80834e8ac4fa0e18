// SPDX-License-Identifier: BSD-3-Clause
#include "sim/analysis/partner_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "sim/analysis/victim_bound.h"

namespace turnout::sim {

namespace {

using Strings = std::vector<std::vector<std::uint32_t>>;

struct Victims {
  const char* name;
  VictimBound count;
};
constexpr std::array<Victims, 3> kVictims = {{{"lru", lru_connections},
                                              {"lru-m", lru_m_connections},
                                              {"clairvoyant", clairvoyant_connections}}};

std::string line_of(const Strings& partners, std::uint64_t limit, const Victims& victims) {
  const Connections all = connections_of_all(partners, limit, victims.count);
  const auto ranks = static_cast<double>(partners.size());
  return fmt::format("  {:>7}  {:<11}  {:>9.1f}  {:>9.1f}\n", limit, victims.name,
                     static_cast<double>(all.made) / ranks,
                     static_cast<double>(all.torn_down) / ranks);
}

}  // namespace

std::string format_partners(const Study& study, std::span<const std::uint64_t> limits) {
  std::string out;
  for (const PolicyResult& r : study.results) {
    const Strings& partners = r.outcome.partners;
    if (partners.empty()) continue;
    std::vector<std::uint64_t> distinct;
    std::uint64_t changes = 0;
    for (const std::vector<std::uint32_t>& needed : partners) {
      distinct.push_back(distinct_partners(needed));
      changes += needed.size();
    }
    std::sort(distinct.begin(), distinct.end());
    out += fmt::format(
        "partners per process, {}: {} to {}, median {}; {:.1f} changes of partner on average\n",
        r.policy, distinct.front(), distinct.back(), distinct[distinct.size() / 2],
        static_cast<double>(changes) / static_cast<double>(partners.size()));
    if (limits.empty()) continue;
    out += "  at most  eviction          made    evicted  (mean per process)\n";
    for (const std::uint64_t limit : limits) {
      for (const Victims& victims : kVictims) out += line_of(partners, limit, victims);
    }
  }
  return out;
}

}  // namespace turnout::sim
