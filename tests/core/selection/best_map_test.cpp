// SPDX-License-Identifier: BSD-3-Clause
// The optimum: select_aqps against every map there is, and against a table for more sources.
//
// Silent sources cost polls and are kept all the same, so the comparisons leave them out.
#include "core/selection/best_map.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/selection/leading_ring.h"
#include "tests/core/selection/oracle.h"
#include "tests/core/selection/random_world.h"

namespace turnout::selection {
namespace {

// Rounding of sums of doubles.
double tolerance(double gain) {
  return 1e-3 + 1e-9 * std::abs(gain);
}

template <class Oracle>
int compare(std::uint64_t seed, int rounds, std::size_t sources, Leading leading, Oracle oracle) {
  Generator generator(seed);
  int compared = 0;
  for (int round = 0; round < rounds; ++round) {
    World w = generator.world(sources, round % 4 != 0);
    if (round % 2 == 0) generator.other_costs(&w);
    w.leading = leading;
    std::erase_if(w.sources, [](const SourceView& s) { return s.messages == 0; });
    const double best = oracle(w.input());
    if (!std::isfinite(best)) continue;  // refused sources alone are beyond the limits
    ++compared;
    const Plan plan = select_aqps(w.input());
    EXPECT_NEAR(plan.gain_best, best, tolerance(best)) << "seed " << seed << ", round " << round;
    EXPECT_EQ(plan.shortfall, 0);
    if (testing::Test::HasFailure()) break;
  }
  return compared;
}

TEST(BestMap, IsTheBestOfAllMaps) {
  EXPECT_GT(compare(11, 20'000, 7, Leading::paper, oracle::best_gain), 10'000);
}

TEST(BestMap, IsTheBestOfAllMapsByTheRingsPolled) {
  EXPECT_GT(compare(12, 20'000, 7, Leading::rings, oracle::best_gain), 10'000);
}

TEST(BestMap, OfTensOfSourcesIsTheTables) {
  EXPECT_GT(compare(13, 6000, 24, Leading::paper, oracle::best_gain_by_table), 1500);
}

TEST(BestMap, OfTensOfSourcesByTheRingsPolledIsTheTables) {
  EXPECT_GT(compare(14, 1200, 18, Leading::rings, oracle::best_gain_by_table), 300);
}

// spec/aqps.md: one source of 200,000 messages beside 250 of 6,000.
TEST(LeadingRing, TheBusiestIsLeftOutWhereItSlowsTheOthers) {
  World w;
  w.leading = Leading::rings;
  w.limits.max_active_rc = 251;
  w.limits.bytes_available = ~std::uint64_t{0};
  w.sources.push_back({0, ChannelKind::dc_sendrecv, 200'000});
  for (std::uint32_t peer = 1; peer <= 250; ++peer) {
    w.sources.push_back({peer, ChannelKind::dc_sendrecv, 6'000});
  }
  const Plan plan = select_aqps(w.input());
  EXPECT_TRUE(plan.changes);
  EXPECT_EQ(plan.shortfall, 0);
  for (const PlanLine& line : plan.lines) {
    EXPECT_EQ(line.to, line.peer == 0 ? ChannelKind::dc_sendrecv : ChannelKind::rc_rdma);
    EXPECT_EQ(line.reason, line.peer == 0 ? Reason::slows_others : Reason::gain);
  }
  // 250 x (6,000 x (131.25 ns - 250 x 5 ns / 250) - 10 us)
  EXPECT_NEAR(plan.gain_best, 250 * (6000 * 126.25 - 10'000), 1);
  w.leading = Leading::paper;
  const Plan paper = select_aqps(w.input());
  EXPECT_EQ(paper.lines.front().to, ChannelKind::rc_rdma);
  EXPECT_LT(paper.gain_best, plan.gain_best);
}

// A refused peer's ring is polled, so its count leads whatever is chosen.
TEST(LeadingRing, FixedRingsLead) {
  World w;
  w.leading = Leading::rings;
  w.gamma = 0;
  w.limits.bytes_available = ~std::uint64_t{0};
  w.sources.push_back({0, ChannelKind::rc_rdma, 1'000'000, true, true});
  w.sources.push_back({1, ChannelKind::dc_sendrecv, 10'000});
  EXPECT_FALSE(select_aqps(w.input()).changes) << "1 % of the leader";
  w.sources[0].current = ChannelKind::dc_sendrecv;
  EXPECT_TRUE(select_aqps(w.input()).changes);
}

// Many counts that could lead: the work is bounded, and what may be missed is said.
TEST(LeadingRing, ShortfallBoundsWhatTheCutMisses) {
  std::mt19937_64 random(21);
  for (int round = 0; round < 12; ++round) {
    World w;
    w.leading = Leading::rings;
    w.limits.dc_rdma_available = round % 2 == 0;
    w.limits.bytes_available = ~std::uint64_t{0};
    w.limits.max_channels = 16;
    w.limits.max_active_rc = 6;
    w.costs.poll = 16;
    for (std::uint32_t peer = 0; peer < 400; ++peer) {
      const double n = 1e6 * std::pow(0.98 + 0.0001 * round, static_cast<double>(peer % 300));
      w.sources.push_back(
          {peer, ChannelKind::dc_sendrecv, static_cast<std::uint64_t>(n) + random() % 1000});
    }
    const Plan plan = select_aqps(w.input());
    double best = 0;
    for (const SourceView& s : w.sources) {
      // Rings of the 16 next below a leader: what any set of that size can gain at least.
      std::vector<SourceView> below;
      for (const SourceView& t : w.sources) {
        if (t.messages <= s.messages) below.push_back(t);
      }
      World part = w;
      part.leading = Leading::paper;
      part.sources = below;
      best = std::max(best, select_aqps(part.input()).gain_best);
    }
    EXPECT_LE(plan.gain_best, best + tolerance(best)) << round;
    EXPECT_GE(plan.gain_best + plan.shortfall, best - tolerance(best)) << round;
  }
}

// Neither room nor groups: nothing to choose from.
TEST(BestMap, WithoutSourcesOrRoom) {
  EXPECT_EQ(best_shares({}, {100, 150, 0}, {10, 10, 1000, 1, 1}).gain, 0);
  const std::vector<double> counts = {1000, 500};
  const SourceGroup group{counts, 0, 0, true, true};
  EXPECT_EQ(best_shares({&group, 1}, {100, 150, 0}, {}).gain, 0);
  // A ring fits, a queue pair beside it does not.
  const BestShares one = best_shares({&group, 1}, {100, 150, 0}, {10, 10, 100, 64, 44});
  EXPECT_EQ(one.gain, 100'000);
  EXPECT_EQ(one.shares[0].dc, 1u);
  // Two rings, or one with a queue pair: two rings.
  const BestShares two = best_shares({&group, 1}, {100, 150, 0}, {10, 10, 128, 64, 44});
  EXPECT_EQ(two.gain, 150'000);
  const BestShares three = best_shares({&group, 1}, {100, 151, 0}, {10, 10, 128, 64, 44});
  EXPECT_EQ(three.gain, 151'000);
  EXPECT_EQ(three.shares[0].rc, 1u);
  EXPECT_EQ(three.shares[0].dc, 0u);
}

}  // namespace
}  // namespace turnout::selection
