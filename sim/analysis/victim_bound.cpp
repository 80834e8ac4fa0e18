// SPDX-License-Identifier: BSD-3-Clause
#include "sim/analysis/victim_bound.h"

#include <algorithm>
#include <limits>
#include <set>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

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

}  // namespace turnout::sim
