// SPDX-License-Identifier: BSD-3-Clause
// What `turnout calibrate --profile` finds is what the profile has, for each value that is one
// parameter of the model or a closed form of some.
#include <gtest/gtest.h>

#include "sim/calibration/calibration.h"
#include "sim/runtime/simulation.h"

namespace turnout::sim {
namespace {

constexpr double kClose = 0.03;

double ns(std::int64_t picoseconds) {
  return static_cast<double>(picoseconds) / 1000;
}

class Found : public testing::TestWithParam<const char*> {};

TEST_P(Found, WhatTheProfileHas) {
  const Result<ProfileFile> profile = find_profile(GetParam());
  ASSERT_TRUE(profile.ok()) << profile.status().text();
  CalibrationOptions options;
  options.profile = profile.value();
  options.rounds = 3;
  const auto found = calibrate(options, run);
  ASSERT_TRUE(found.ok()) << found.status().text();
  const selection::DeviceCosts& costs = found.value().costs;
  const hca::Profile& p = profile.value().profile;
  const auto near = [&](const selection::CostValue& value, double expected, const char* what) {
    EXPECT_NEAR(value.value, expected, kClose * expected) << what;
  };
  near(costs.receiver_poll, ns(p.processor_poll_ring), "poll");
  near(costs.sender_switch_latency, ns(p.dc_connect + p.adapter_send_dc_switch - p.adapter_send_dc),
       "switch_latency");
  near(costs.context_first_entries, static_cast<double>(p.cache_first_entries), "first_entries");
  near(costs.context_first_beyond, ns(p.cache_first_miss), "first_beyond");
  // What leaves the first level is in the second: both together hold so many.
  near(costs.context_second_entries,
       static_cast<double>(p.cache_first_entries + p.cache_second_entries), "second_entries");
  // Then the adapter waits for the fetches, not for its send side.
  near(costs.context_second_beyond,
       ns(p.cache_second_miss) / static_cast<double>(p.cache_fetches) -
           ns(p.adapter_send_rc + p.cache_first_miss),
       "second_beyond");
}

INSTANTIATE_TEST_SUITE_P(Calibration, Found,
                         testing::Values("connect-ib", "connectx-5", "connectx-6"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::erase(name, '-');
                           return name;
                         });

}  // namespace
}  // namespace turnout::sim
