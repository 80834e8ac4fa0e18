// SPDX-License-Identifier: BSD-3-Clause
// The optimum: select_aqps against every map there is, and against a table for more sources.
//
// Silent sources cost polls and are kept all the same, so the comparisons leave them out.
#include "core/selection/best_map.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/core/selection/oracle.h"
#include "tests/core/selection/random_world.h"

namespace turnout::selection {
namespace {

// Rounding of sums of doubles.
double tolerance(double gain) {
  return 1e-3 + 1e-9 * std::abs(gain);
}

template <class Oracle>
int compare(std::uint64_t seed, int rounds, std::size_t sources, Oracle oracle) {
  Generator generator(seed);
  int compared = 0;
  for (int round = 0; round < rounds; ++round) {
    World w = generator.world(sources, round % 4 != 0);
    if (round % 2 == 0) generator.other_costs(&w);
    std::erase_if(w.sources, [](const SourceView& s) { return s.messages == 0; });
    const double best = oracle(w.input());
    if (!std::isfinite(best)) continue;  // refused sources alone are beyond the limits
    ++compared;
    const Plan plan = select_aqps(w.input());
    EXPECT_NEAR(plan.gain_best, best, tolerance(best)) << "seed " << seed << ", round " << round;
    if (testing::Test::HasFailure()) break;
  }
  return compared;
}

TEST(BestMap, IsTheBestOfAllMaps) {
  EXPECT_GT(compare(11, 20'000, 7, oracle::best_gain), 10'000);
}

TEST(BestMap, OfTensOfSourcesIsTheTables) {
  EXPECT_GT(compare(13, 6000, 24, oracle::best_gain_by_table), 1500);
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
