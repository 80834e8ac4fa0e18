// SPDX-License-Identifier: BSD-3-Clause
// FIND_MAP against the paper's double loop, and the arithmetic of spec/aqps.md.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <random>

#include "core/selection/policy.h"
#include "tests/core/selection/oracle.h"

namespace turnout::selection {
namespace {

// Sums of up to some 10^12 ns in doubles, added in another order.
void expect_same_gain(double a, double b) {
  EXPECT_NEAR(a, b, 1e-9 * std::max(1.0, std::abs(b)));
}

TEST(FindMap, NothingHeardNothingGiven) {
  const MapChoice choice = find_map({}, CostModel{}, 26, 256, true);
  EXPECT_EQ(choice.channels, 0u);
  EXPECT_EQ(choice.gain, 0);
}

// spec/aqps.md: at Table 2's values a ring pays from 80 messages (RC) or 132 (DC) per window for
// equal sources. r - c/s = 131.25 ns and a poll of 5 ns a message leave 126.25 ns: 10 us / 126.25
// ns = 79.2.
TEST(FindMap, RingPaysFrom80Or132MessagesForOneSource) {
  const CostModel costs;
  for (const auto& [dc, least] : {std::pair{false, 80u}, std::pair{true, 132u}}) {
    const std::uint32_t h = dc ? 0 : 26;
    const std::uint64_t below[] = {least - 1}, at[] = {least};
    EXPECT_EQ(find_map(below, costs, h, 256, dc).channels, 0u) << least;
    EXPECT_EQ(find_map(at, costs, h, 256, dc).channels, 1u) << least;
  }
}

TEST(FindMap, EqualSourcesAllPayFromTheSameCount) {
  const CostModel costs;
  const std::vector<std::uint64_t> below(20, 79), at(20, 80);
  EXPECT_EQ(find_map(below, costs, 26, 256, false).channels, 0u);
  EXPECT_EQ(find_map(at, costs, 26, 256, false).channels, 20u);
  const std::vector<std::uint64_t> dc_below(20, 131), dc_at(20, 132);
  EXPECT_EQ(find_map(dc_below, costs, 0, 256, true).channels, 0u);
  EXPECT_EQ(find_map(dc_at, costs, 0, 256, true).channels, 20u);
}

// A source joins only above 3.8 % (RC) or 6.2 % (DC) of the busiest one's count: 5 / 131.25 = 3.81
// %, 5 / 81.25 = 6.15 % once the counts are so large that set-up does not matter.
TEST(FindMap, SourceJoinsAbove38Or62PermilleOfTheBusiest) {
  CostModel costs;
  costs.setup_dc = costs.setup_rc = 0;
  const std::uint64_t busiest = 10'000'000;
  const auto joins = [&](double share, bool dc) {
    const std::uint64_t counts[] = {
        busiest, static_cast<std::uint64_t>(share * static_cast<double>(busiest))};
    return find_map(counts, costs, dc ? 0 : 26, 256, dc).channels == 2;
  };
  EXPECT_FALSE(joins(0.0380, false));
  EXPECT_TRUE(joins(0.0382, false));
  EXPECT_FALSE(joins(0.0615, true));
  EXPECT_TRUE(joins(0.0616, true));
}

// The printed loop lets m exceed l, which buys a negative number of DC channels.
TEST(FindMap, NeverMoreQueuePairsThanChannels) {
  CostModel costs;
  costs.setup_dc = 1e9;
  costs.setup_rc = 0;
  const std::vector<std::uint64_t> counts(10, 1000);
  const MapChoice choice = find_map(counts, costs, 26, 256, true);
  EXPECT_LE(choice.rc, choice.channels);
  EXPECT_EQ(choice.channels, 10u);
}

TEST(FindMap, KeepsHAndTau) {
  const std::vector<std::uint64_t> counts(1000, 100'000);
  const MapChoice both = find_map(counts, CostModel{}, 26, 256, true);
  EXPECT_EQ(both.rc, 26u);
  EXPECT_EQ(both.channels, 256u);
  const MapChoice only_rc = find_map(counts, CostModel{}, 26, 256, false);
  EXPECT_EQ(only_rc.rc, 26u);
  EXPECT_EQ(only_rc.channels, 26u);
  EXPECT_EQ(find_map(counts, CostModel{}, 26, 3, false).channels, 3u);
}

struct Case {
  std::vector<std::uint64_t> counts;
  CostModel costs;
  std::uint32_t h = 0, tau = 0;
  bool dc = false;
};

void compare_with_the_paper(const Case& c) {
  const MapChoice expected = oracle::find_map(c.counts, c.costs, c.h, c.tau, c.dc);
  std::vector<std::uint64_t> sorted = c.counts;
  std::sort(sorted.begin(), sorted.end(), std::greater<>());
  const MapChoice choice = find_map(sorted, c.costs, c.h, c.tau, c.dc);
  expect_same_gain(choice.gain, expected.gain);
  EXPECT_LE(choice.rc, std::min(choice.channels, c.h));
  EXPECT_LE(choice.channels, c.tau);
  // Among equals any map will do, if it really gains what is said.
  expect_same_gain(choice.gain, oracle::x(sorted, choice.channels, choice.rc, c.costs));
  const MapChoice unsorted = find_map_unsorted(c.counts, c.costs, c.h, c.tau, c.dc);
  EXPECT_EQ(unsorted.gain, choice.gain);
  EXPECT_EQ(unsorted.channels, choice.channels);
  EXPECT_EQ(unsorted.rc, choice.rc);
}

// Small sizes with many ties, costs around the thresholds, then sizes of real jobs.
TEST(FindMap, TenThousandRandomCasesEqualThePapersDoubleLoop) {
  constexpr std::uint64_t kSeed = 20150901;
  std::mt19937_64 random(kSeed);
  const auto below = [&](std::uint64_t n) { return random() % n; };
  for (int round = 0; round < 10'000; ++round) {
    Case c;
    const std::uint64_t most = std::uint64_t{1} << below(21);
    c.counts.resize(below(round % 20 == 0 ? 200 : 30));
    for (auto& n : c.counts) n = below(3) == 0 ? most : below(most + 1);
    if (below(2) == 0) {
      c.costs.saving_dc_rdma = static_cast<double>(below(300));
      c.costs.saving_rc_rdma = static_cast<double>(below(300));
      c.costs.poll = static_cast<double>(below(40));
      c.costs.credit = static_cast<double>(below(1000));
      c.costs.setup_dc = static_cast<double>(below(100'000));
      c.costs.setup_rc = static_cast<double>(below(100'000));
      c.costs.ring_entries = 1u << below(8);
    }
    c.h = static_cast<std::uint32_t>(below(40));
    c.tau = static_cast<std::uint32_t>(below(80));
    c.dc = below(2) == 0;
    compare_with_the_paper(c);
    ASSERT_FALSE(HasFailure()) << "seed " << kSeed << ", round " << round;
  }
}

RC_GTEST_PROP(FindMapProperty, EqualsThePapersDoubleLoop, ()) {
  Case c;
  c.counts = *rc::gen::container<std::vector<std::uint64_t>>(rc::gen::inRange(0, 1'000'000));
  c.h = *rc::gen::inRange<std::uint32_t>(0, 30);
  c.tau = *rc::gen::inRange<std::uint32_t>(0, 60);
  c.dc = *rc::gen::arbitrary<bool>();
  const MapChoice expected = oracle::find_map(c.counts, c.costs, c.h, c.tau, c.dc);
  const MapChoice choice = find_map_unsorted(c.counts, c.costs, c.h, c.tau, c.dc);
  RC_ASSERT(std::abs(choice.gain - expected.gain) <= 1e-9 * std::max(1.0, expected.gain));
}

RC_GTEST_PROP(FindMapProperty, MoreRoomNeverGainsLess, ()) {
  const auto counts =
      *rc::gen::container<std::vector<std::uint64_t>>(rc::gen::inRange(0, 1'000'000));
  const auto h = *rc::gen::inRange<std::uint32_t>(0, 30);
  const auto tau = *rc::gen::inRange<std::uint32_t>(0, 60);
  const bool dc = *rc::gen::arbitrary<bool>();
  const double gain = find_map_unsorted(counts, CostModel{}, h, tau, dc).gain;
  RC_ASSERT(gain >= 0);
  RC_ASSERT(find_map_unsorted(counts, CostModel{}, h + 1, tau, dc).gain >= gain);
  RC_ASSERT(find_map_unsorted(counts, CostModel{}, h, tau + 1, dc).gain >= gain);
  RC_ASSERT(find_map_unsorted(counts, CostModel{}, h, tau, true).gain >= gain);
}

}  // namespace
}  // namespace turnout::selection
