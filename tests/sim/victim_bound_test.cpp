// SPDX-License-Identifier: BSD-3-Clause
// Connections that a limit makes, against naive models and against every choice of victims.
#include "sim/analysis/victim_bound.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <vector>

namespace turnout::sim {
namespace {

using String = std::vector<std::uint32_t>;

String draw(std::uint32_t partners, std::size_t most) {
  return *rc::gen::resize(static_cast<int>(most),
                          rc::gen::container<String>(rc::gen::inRange(0u, partners)));
}

// A list, the most recently used in front.
std::uint64_t naive_lru(const String& needed, std::size_t limit) {
  String list;
  std::uint64_t made = 0;
  for (const std::uint32_t partner : needed) {
    const auto found = std::find(list.begin(), list.end(), partner);
    if (found != list.end()) {
      list.erase(found);
    } else {
      ++made;
      if (list.size() == limit) list.pop_back();
    }
    list.insert(list.begin(), partner);
  }
  return made;
}

// As the paper has it: a list for each number of tear-downs, the most recently used in front; the
// victim is at the tail of the first that is not empty.
std::uint64_t naive_lru_m(const String& needed, std::size_t limit) {
  std::map<std::uint64_t, String> queues;
  std::map<std::uint32_t, std::uint64_t> torn_down;
  std::uint64_t made = 0;
  std::size_t connected = 0;
  for (const std::uint32_t partner : needed) {
    String& own = queues[torn_down[partner]];
    const auto found = std::find(own.begin(), own.end(), partner);
    if (found != own.end()) {
      own.erase(found);
    } else {
      ++made;
      if (connected == limit) {
        for (auto& [times, queue] : queues) {
          if (queue.empty()) continue;
          ++torn_down[queue.back()];
          queue.pop_back();
          --connected;
          break;
        }
      }
      ++connected;
    }
    own.insert(own.begin(), partner);
  }
  return made;
}

// Of all choices of victims: the fewest made to be at a set of connections (bits), partner for
// partner.
std::uint64_t best_of_all(const String& needed, std::size_t limit) {
  std::map<unsigned, std::uint64_t> states = {{0u, 0}};
  for (const std::uint32_t partner : needed) {
    std::map<unsigned, std::uint64_t> next;
    const auto reach = [&](unsigned state, std::uint64_t made) {
      const auto [found, first] = next.try_emplace(state, made);
      if (!first) found->second = std::min(found->second, made);
    };
    for (const auto& [state, made] : states) {
      const unsigned with = state | 1u << partner;
      if (with == state) {
        reach(state, made);
      } else if (static_cast<std::size_t>(__builtin_popcount(state)) < limit) {
        reach(with, made + 1);
      } else {
        for (unsigned bits = state; bits != 0; bits &= bits - 1) {
          reach(with & ~(bits & -bits), made + 1);
        }
      }
    }
    states = std::move(next);
  }
  std::uint64_t best = ~std::uint64_t{0};
  for (const auto& [state, made] : states) best = std::min(best, made);
  return best;
}

TEST(VictimBound, CountsSmallExamples) {
  // 1 2 3, then 1 instead of 2 and so on: a cycle is LRU's worst.
  const String cycle = {1, 2, 3, 1, 2, 3, 1, 2, 3};
  EXPECT_EQ(lru_connections(cycle, 2), (Connections{9, 7}));
  // 1 2, 3 for 2, (1), 2 for 3 or 1, ...
  EXPECT_EQ(clairvoyant_connections(cycle, 2), (Connections{6, 4}));
  // A counter that is asked now and then, and partners that are needed once: torn down once, the
  // counter stays.
  const String counter = {9, 1, 2, 9, 3, 4, 9, 5, 6, 9, 7, 8, 9};
  EXPECT_EQ(lru_connections(counter, 2).made, 13u);
  EXPECT_EQ(lru_m_connections(counter, 2).made, 10u);
  EXPECT_EQ(clairvoyant_connections(counter, 2).made, 9u);
  EXPECT_EQ(lru_connections({}, 4), Connections{});
  EXPECT_EQ(lru_m_connections({}, 0), Connections{});
  EXPECT_EQ(clairvoyant_connections(cycle, 0), clairvoyant_connections(cycle, 1));
}

TEST(PartnerTable, IsOfAllProcesses) {
  Study study;
  study.results.resize(2);
  study.results[0].policy = "aqps";
  study.results[0].outcome.partners = {{1, 2, 1, 2}, {}, {0, 1, 3, 0}};
  const std::vector<std::uint64_t> limits = {2};
  EXPECT_EQ(format_partners(study, limits),
            "partners per process, aqps: 0 to 3, median 2; 2.7 changes of partner on average\n"
            "  at most  eviction          made    evicted  (mean per process)\n"
            "        2  lru                2.0        0.7\n"
            "        2  lru-m              2.0        0.7\n"
            "        2  clairvoyant        1.7        0.3\n");
}

RC_GTEST_PROP(VictimBound, IsWhatNaiveModelsCount, ()) {
  const String needed = draw(*rc::gen::inRange(1u, 40u), 400);
  const std::size_t limit = *rc::gen::inRange(1u, 20u);
  RC_ASSERT(lru_connections(needed, limit).made == naive_lru(needed, limit));
  RC_ASSERT(lru_m_connections(needed, limit).made == naive_lru_m(needed, limit));
}

RC_GTEST_PROP(VictimBound, NoChoiceIsBetterThanTheClairvoyants, ()) {
  const String needed = draw(*rc::gen::inRange(1u, 8u), 40);
  const std::size_t limit = *rc::gen::inRange(1u, 6u);
  RC_ASSERT(clairvoyant_connections(needed, limit).made == best_of_all(needed, limit));
}

RC_GTEST_PROP(VictimBound, KeepsItsLimits, ()) {
  const String needed = draw(*rc::gen::inRange(1u, 60u), 600);
  const std::uint64_t distinct = std::set<std::uint32_t>(needed.begin(), needed.end()).size();
  RC_ASSERT(distinct_partners(needed) == distinct);
  const std::size_t limit = *rc::gen::inRange(1u, 60u);
  const Connections best = clairvoyant_connections(needed, limit);
  for (auto* const policy : {&lru_connections, &lru_m_connections, &clairvoyant_connections}) {
    const Connections c = (*policy)(needed, limit);
    RC_ASSERT(c.made >= best.made);
    RC_ASSERT(c.made >= distinct);
    RC_ASSERT(c.made - c.torn_down == std::min<std::uint64_t>(distinct, limit));
    RC_ASSERT(limit < distinct || c.made == distinct);
    // A partner twice in a row is no need of another connection.
    String doubled;
    for (const std::uint32_t partner : needed) doubled.insert(doubled.end(), 2, partner);
    RC_ASSERT((*policy)(doubled, limit) == c);
  }
  // More room is never worse for these two.
  RC_ASSERT(lru_connections(needed, limit + 1).made <= lru_connections(needed, limit).made);
  RC_ASSERT(clairvoyant_connections(needed, limit + 1).made <= best.made);
}

}  // namespace
}  // namespace turnout::sim
