// SPDX-License-Identifier: BSD-3-Clause
#include "core/report/call_time.h"

#include <gtest/gtest.h>

#include <random>

namespace turnout {
namespace {

class CountedClock final : public Clock {
 public:
  Nanoseconds now() noexcept override {
    ++looks;
    return time;
  }
  Nanoseconds time = 0;
  std::uint64_t looks = 0;
};

void call(CallTime& time, CountedClock& clock, Nanoseconds takes) {
  EXPECT_TRUE(time.run(clock, [&] {
    clock.time += takes;
    return true;
  }));
}

TEST(CallTime, EachCallIsMeasuredWhereLookingTakesNoTime) {
  CallTime time(true);
  CountedClock clock;
  std::uint64_t all = 0;
  for (int i = 0; i < 1000; ++i) {
    call(time, clock, i);
    all += static_cast<std::uint64_t>(i);
    clock.time += 10'000;  // of the program
  }
  ProfileReport report;
  time.report(&report);
  EXPECT_EQ(report.calls, 1000u);
  EXPECT_EQ(report.calls_measured, 1000u);
  EXPECT_EQ(report.library_time, all);
  EXPECT_EQ(report.library_time_error, 0u);
}

TEST(CallTime, ASampleTellsTheWholeWithinItsError) {
  std::mt19937_64 random(1);
  int beyond = 0;
  for (int run = 0; run < 40; ++run) {
    CallTime time(false);
    CountedClock clock;
    double all = 0;
    const auto skipped = random() % 50;  // other calls are caught
    for (std::uint64_t i = 0; i < skipped; ++i) call(time, clock, 0);
    for (int i = 0; i < 200'000; ++i) {
      const auto takes = static_cast<Nanoseconds>(random() % 10 == 0 ? 1000 : 50);
      call(time, clock, takes);
      all += static_cast<double>(takes);
    }
    ProfileReport report;
    time.report(&report);
    EXPECT_EQ(report.calls, 200'000u + skipped);
    EXPECT_LT(clock.looks, 2 * (200'000 / (CallTime::kEvery / 2) + CallTime::kFirst));
    EXPECT_EQ(clock.looks, 2 * report.calls_measured);
    const double off = static_cast<double>(report.library_time) - all;
    if (std::abs(off) > 2 * static_cast<double>(report.library_time_error)) ++beyond;
    EXPECT_LT(static_cast<double>(report.library_time_error), 0.25 * all);
  }
  EXPECT_LE(beyond, 6) << "of 40, where 2 are expected beyond twice the error";
}

// A program that repeats eight calls of which the first takes long.
TEST(CallTime, RepeatedCallsAreNotCaughtAtTheSameOneAlways) {
  for (int phase = 0; phase < 8; ++phase) {
    CallTime time(false);
    CountedClock clock;
    for (int i = 0; i < 400'000; ++i) call(time, clock, i % 8 == phase ? 800 : 0);
    ProfileReport report;
    time.report(&report);
    EXPECT_NEAR(static_cast<double>(report.library_time), 400'000.0 * 100, 400'000.0 * 40);
  }
}

TEST(CallTime, ACallWithinACallIsAPartOfIt) {
  CallTime time(true);
  CountedClock clock;
  for (int i = 0; i < 100; ++i) {
    EXPECT_TRUE(time.run(clock, [&] {
      clock.time += 3;
      call(time, clock, 4);
      return true;
    }));
  }
  ProfileReport report;
  time.report(&report);
  EXPECT_EQ(report.library_time, 700u);
  EXPECT_EQ(report.calls, 100u);
}

TEST(CallTime, NothingIsKnownBeforeTheFirstSample) {
  CallTime time(false);
  CountedClock clock;
  call(time, clock, 5);
  ProfileReport report;
  time.report(&report);
  EXPECT_EQ(report.calls, 1u);
  EXPECT_EQ(report.calls_measured, 0u);
  EXPECT_EQ(report.library_time, 0u);
}

}  // namespace
}  // namespace turnout
