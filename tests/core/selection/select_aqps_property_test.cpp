// SPDX-License-Identifier: BSD-3-Clause
// select_aqps on random worlds: limits, purity, optimum, reasons.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <set>

#include "core/selection/policy.h"
#include "tests/core/selection/oracle.h"
#include "tests/core/selection/random_world.h"

namespace turnout::selection {
namespace {

std::vector<ChannelKind> current_map(const World& w) {
  std::vector<ChannelKind> map;
  for (const SourceView& s : w.sources) map.push_back(s.current);
  return map;
}

std::vector<ChannelKind> map_of(const World& w, const Plan& plan) {
  std::map<std::uint32_t, ChannelKind> to;
  for (const PlanLine& line : plan.lines) to[line.peer] = line.to;
  std::vector<ChannelKind> map;
  for (const SourceView& s : w.sources) map.push_back(to.at(s.peer));
  return map;
}

std::uint64_t messages(const World& w) {
  std::uint64_t sum = 0;
  for (const SourceView& s : w.sources) sum += s.messages;
  return sum;
}

// What holds in every world.
void check(const World& w, const Plan& plan) {
  ASSERT_EQ(plan.lines.size(), w.sources.size());
  const auto current = current_map(w), chosen = map_of(w, plan);
  const bool current_fits = oracle::within_limits(w.input(), current);
  EXPECT_TRUE(oracle::within_limits(w.input(), chosen)) << "beyond a limit";
  EXPECT_EQ(plan.changes, chosen != current);
  EXPECT_NEAR(plan.gain_current, oracle::gain(w.input(), current), 1e-3);
  if (plan.changes) {
    const double gain = oracle::gain(w.input(), chosen);
    EXPECT_NEAR(plan.gain_best, gain, 1e-3);
    if (current_fits) {
      EXPECT_GT(gain - plan.gain_current, w.gamma * static_cast<double>(messages(w)) - 1e-3);
    }
  }
  std::map<std::uint32_t, SourceView> views;
  for (const SourceView& s : w.sources) views[s.peer] = s;
  std::set<std::uint32_t> seen;
  bool upgrades_began = false;
  for (const PlanLine& line : plan.lines) {
    const SourceView& s = views.at(line.peer);
    EXPECT_TRUE(seen.insert(line.peer).second);
    EXPECT_EQ(line.from, s.current);
    EXPECT_EQ(line.messages, s.messages);
    const bool downgrade = line.from != line.to && (line.to == ChannelKind::dc_sendrecv ||
                                                    line.from == ChannelKind::rc_rdma);
    if (!downgrade) upgrades_began = true;
    EXPECT_FALSE(downgrade && upgrades_began) << "downgrades come first";
    switch (line.reason) {
      case Reason::gain:
        EXPECT_NE(line.to, ChannelKind::dc_sendrecv);
        break;
      case Reason::refused_by_peer:
        EXPECT_TRUE(s.refused);
        EXPECT_EQ(line.to, line.from);
        break;
      case Reason::idle:
        EXPECT_EQ(s.messages, 0u);
        EXPECT_NE(line.to, line.from);
        break;
      case Reason::kept:
        EXPECT_EQ(s.messages, 0u);
        EXPECT_EQ(line.to, line.from);
        break;
      case Reason::below_threshold:
        EXPECT_EQ(line.to, line.from);
        break;
      default:
        EXPECT_NE(line.to, ChannelKind::rc_rdma);
        break;
    }
  }
}

bool same(const Plan& a, const Plan& b) {
  return std::equal(a.lines.begin(), a.lines.end(), b.lines.begin(), b.lines.end(),
                    [](const PlanLine& x, const PlanLine& y) {
                      return x.peer == y.peer && x.to == y.to && x.reason == y.reason &&
                             x.gain_per_message == y.gain_per_message;
                    }) &&
         a.gain_best == b.gain_best && a.gain_current == b.gain_current && a.changes == b.changes;
}

TEST(SelectAqpsProperty, TenThousandRandomWorldsKeepLimitsAndReasons) {
  constexpr std::uint64_t kSeed = 7;
  Generator generator(kSeed);
  for (int round = 0; round < 10'000; ++round) {
    World w = generator.world(round % 10 == 0 ? 120 : 12, round % 2 == 0);
    const Plan plan = select_aqps(w.input());
    check(w, plan);
    // Pure, and blind to the order of its input.
    ASSERT_TRUE(same(plan, select_aqps(w.input())));
    std::reverse(w.sources.begin(), w.sources.end());
    ASSERT_TRUE(same(plan, select_aqps(w.input())));
    ASSERT_FALSE(HasFailure()) << "seed " << kSeed << ", round " << round;
  }
}

// Nothing established, room for all: the gain is FIND_MAP's.
TEST(SelectAqpsProperty, FromNothingItIsFindMap) {
  constexpr std::uint64_t kSeed = 17;
  Generator generator(kSeed);
  for (int round = 0; round < 2000; ++round) {
    World w = generator.world(60, round % 2 == 0);
    w.gamma = 0;
    w.limits.bytes_available = ~std::uint64_t{0};
    std::vector<std::uint64_t> counts;
    for (SourceView& s : w.sources) {
      s.current = ChannelKind::dc_sendrecv;
      s.rc_exists = s.refused = false;
      counts.push_back(s.messages);
    }
    const oracle::MapChoice choice = oracle::find_map(
        counts, w.costs, w.limits.max_active_rc, w.limits.max_channels, w.limits.dc_rdma_available);
    const Plan plan = select_aqps(w.input());
    ASSERT_NEAR(plan.gain_best, choice.gain, 1e-3) << "seed " << kSeed << ", round " << round;
    const auto rings = static_cast<std::uint32_t>(
        std::count_if(plan.lines.begin(), plan.lines.end(),
                      [](const PlanLine& line) { return oracle::ring(line.to); }));
    if (plan.changes) {
      ASSERT_EQ(rings, choice.channels);
    }
  }
}

// Acting on plans leads to rest while the counts stay the same. More than one step is possible: a
// queue pair that exists costs no bytes any more, which may make room.
TEST(SelectAqpsProperty, SameCountsLeadToRest) {
  constexpr std::uint64_t kSeed = 19;
  Generator generator(kSeed);
  for (int round = 0; round < 2000; ++round) {
    World w = generator.world(30, round % 2 == 0);
    for (int step = 0; step < 10; ++step) {
      const Plan plan = select_aqps(w.input());
      if (!plan.changes) break;
      ASSERT_LT(step, 9) << "seed " << kSeed << ", round " << round;
      const auto map = map_of(w, plan);
      for (std::size_t i = 0; i < map.size(); ++i) {
        w.sources[i].current = map[i];
        if (map[i] == ChannelKind::rc_rdma) w.sources[i].rc_exists = true;
      }
    }
  }
}

}  // namespace
}  // namespace turnout::selection
