// SPDX-License-Identifier: BSD-3-Clause
// From rounds of benchmarks to costs: medians, errors, knees.
#include "core/selection/calibration.h"

#include <gtest/gtest.h>

#include <random>

namespace turnout::selection {
namespace {

TEST(Calibration, TheMedianAndItsErrorFollowTheQuartiles) {
  EXPECT_EQ(estimate({}).value, 0);
  EXPECT_EQ(estimate({7}).value, 7);
  EXPECT_EQ(estimate({7}).error, 0);
  // One round that was disturbed changes little.
  const Estimate e = estimate({100, 101, 99, 100, 100, 102, 98, 100, 9000});
  EXPECT_EQ(e.value, 100);
  EXPECT_LT(e.error, 1);
  // Of normal rounds it is the error of the median.
  std::mt19937_64 random(3);
  std::normal_distribution<double> noise(1000, 50);
  Rounds rounds;
  for (int i = 0; i < 400; ++i) rounds.push_back(noise(random));
  EXPECT_NEAR(estimate(rounds).error, 1.253 * 50 / 20, 0.8);
}

std::vector<RatePoint> rates(double first, double second) {
  std::vector<RatePoint> points;
  for (const double k : {8, 16, 32, 64, 128, 256, 512, 1024, 2048}) {
    const double time = 20 + (k > first ? 6 : 0) + (k > second ? 40 : 0);
    points.push_back({k, {time * 0.995, time, time * 1.005, time, time}});
  }
  return points;
}

TEST(Calibration, KneesAreFoundWhereTheRateStepsUp) {
  const Knees both = find_knees(rates(64, 1024));
  EXPECT_EQ(both.first.entries, 64);
  EXPECT_EQ(both.first.error, 32);
  EXPECT_NEAR(both.first.beyond, 6, 0.5);
  EXPECT_EQ(both.second.entries, 1024);
  EXPECT_NEAR(both.second.beyond, 40, 1);
  const Knees one = find_knees(rates(256, 1e9));
  EXPECT_EQ(one.first.entries, 256);
  EXPECT_EQ(one.second.beyond, 0);
  const Knees none = find_knees(rates(1e9, 1e9));
  EXPECT_EQ(none.first.beyond, 0);
  EXPECT_EQ(find_knees({}).first.beyond, 0);
}

TEST(Calibration, WhatWasNotMeasuredSaysSoAndAllReadsBack) {
  Measurements m;
  m.dc_sendrecv = {1850, 1849, 1851};
  m.dc_rdma = {1750, 1750, 1750};
  m.rc_rdma = {1480, 1480, 1480};
  m.more_rings = {1870, 1870, 1870};
  m.extra_rings = 48;  // 240 ns more for a round trip
  m.same_target = {1000, 1000, 1000};
  m.other_target = {1500, 1500, 1500};
  m.contexts = rates(64, 1e9);
  const CostsFile file = costs_of(m, "x", "a test");
  EXPECT_EQ(cost_model(file.costs, 16).saving_rc_rdma, 370);
  EXPECT_NEAR(file.costs.receiver_poll.value, 10, 1e-9);
  EXPECT_EQ(file.costs.sender_switch_latency.value, 1000);
  EXPECT_EQ(file.costs.context_second_entries.value, 2048);
  const Result<CostsFile> again = parse_costs(print_costs(file), "again");
  ASSERT_TRUE(again.ok()) << again.status().text();
  const auto& rows = cost_table();
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const bool measured = file.sources[i].starts_with("M ");
    EXPECT_EQ(measured || file.sources[i].starts_with("assumed built-in value"), true)
        << rows[i].name;
    if (!measured) {
      EXPECT_EQ((file.costs.*rows[i].field).value, rows[i].built_in.value);
    }
  }
}

// Without DC the file says what UD takes; with_ud() takes nothing off it again.
TEST(Calibration, WithoutDcUdStandsInItsPlace) {
  Measurements m;
  m.datagrams = true;
  m.ud_sendrecv = {1600, 1600, 1600};
  m.rc_rdma = {1480, 1480, 1480};
  m.more_rings = {1540, 1540, 1540};
  m.extra_rings = 48;
  m.post_rc = {90, 90, 90};
  m.post_ud = {120, 120, 120};
  const CostsFile file = costs_of(m, "x", "a test");
  const DeviceCosts costs = with_ud(file.costs);
  EXPECT_EQ(cost_model(costs, 16).saving_rc_rdma, 120);
  EXPECT_EQ(cost_model(costs, 16).saving_dc_rdma, 0);
  EXPECT_NEAR(costs.receiver_poll.value, 5, 1e-9);
  EXPECT_EQ(costs.sender_post_dc.value, 120);
  ASSERT_TRUE(parse_costs(print_costs(file), "again").ok());
  // Where there is DC, the difference of the two is told.
  m.datagrams = false;
  m.dc_sendrecv = {1650, 1650, 1650};
  m.dc_rdma = {1580, 1580, 1580};
  EXPECT_EQ(cost_model(with_ud(costs_of(m, "x", "a test").costs), 16).saving_rc_rdma, 120);
}

}  // namespace
}  // namespace turnout::selection
