// SPDX-License-Identifier: BSD-3-Clause
#include "sim/analysis/victim_bound.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <set>
#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace turnout::sim {
namespace {

// The smallest goes first.
using Worth = std::pair<std::uint64_t, std::uint64_t>;

// `worth(position, torn_down)`: of a connection that is used there, to a partner that was torn down
// so often.
template <class WorthOf>
Connections play(std::span<const std::uint32_t> needed, std::size_t limit, WorthOf worth_of) {
  struct Partner {
    bool connected = false;
    std::uint64_t torn_down = 0;
    Worth worth;
  };
  std::unordered_map<std::uint32_t, Partner> partners;
  std::set<std::pair<Worth, std::uint32_t>> connected;
  Connections result;
  for (std::size_t at = 0; at < needed.size(); ++at) {
    Partner& partner = partners[needed[at]];
    if (partner.connected) {
      connected.erase({partner.worth, needed[at]});
    } else {
      if (connected.size() >= std::max<std::size_t>(limit, 1)) {
        Partner& victim = partners[connected.begin()->second];
        connected.erase(connected.begin());
        victim.connected = false;
        ++victim.torn_down;
        ++result.torn_down;
      }
      ++result.made;
    }
    partner.connected = true;
    partner.worth = worth_of(at, partner.torn_down);
    connected.insert({partner.worth, needed[at]});
  }
  return result;
}

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

Connections lru_connections(std::span<const std::uint32_t> needed, std::size_t limit) {
  return play(needed, limit, [](std::size_t at, std::uint64_t) { return Worth{at, 0}; });
}

Connections lru_m_connections(std::span<const std::uint32_t> needed, std::size_t limit) {
  return play(needed, limit, [](std::size_t at, std::uint64_t torn_down) {
    return Worth{torn_down, at};
  });
}

Connections clairvoyant_connections(std::span<const std::uint32_t> needed, std::size_t limit) {
  constexpr auto kNever = std::numeric_limits<std::uint64_t>::max();
  std::vector<std::uint64_t> next(needed.size(), kNever);
  std::unordered_map<std::uint32_t, std::uint64_t> seen;  // from the end
  for (std::size_t at = needed.size(); at-- > 0;) {
    const auto [found, first] = seen.try_emplace(needed[at], at);
    if (!first) next[at] = std::exchange(found->second, at);
  }
  return play(needed, limit, [&](std::size_t at, std::uint64_t) {
    return Worth{kNever - next[at], 0};
  });
}

Connections connections_of_all(std::span<const std::vector<std::uint32_t>> needed,
                               std::size_t limit, VictimBound bound) {
  Connections all;
  for (const std::vector<std::uint32_t>& one : needed) {
    const Connections own = bound(one, limit);
    all.made += own.made;
    all.torn_down += own.torn_down;
  }
  return all;
}

std::uint64_t distinct_partners(std::span<const std::uint32_t> needed) {
  return std::unordered_set<std::uint32_t>(needed.begin(), needed.end()).size();
}

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
