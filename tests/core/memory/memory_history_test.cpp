// SPDX-License-Identifier: BSD-3-Clause
#include "core/memory/memory_history.h"

#include <gtest/gtest.h>

namespace turnout {
namespace {

constexpr auto kRings = MemoryKind::rings;
constexpr std::size_t kRingsIndex = static_cast<std::size_t>(kRings);

TEST(MemoryHistory, KeepsChangesOnly) {
  MemoryAccount account(64 << 20);
  MemoryHistory history(account);
  history.tick(5);
  EXPECT_TRUE(history.points(6).empty()) << "not opened";
  history.open();
  ASSERT_TRUE(account.reserve(kRings, 1000));
  history.tick(10);
  history.tick(10 + MemoryHistory::kFirstInterval);
  history.tick(10 + 2 * MemoryHistory::kFirstInterval);
  account.release(kRings, 400);
  history.tick(10 + 3 * MemoryHistory::kFirstInterval);
  const auto points = history.points(9'000'000);
  // The second look saw the points' own bytes, the third nothing new.
  ASSERT_EQ(points.size(), 4u);
  EXPECT_EQ(points[0].time, 10);
  EXPECT_EQ(points[0].bytes[kRingsIndex], 1000u);
  EXPECT_EQ(points[2].bytes[kRingsIndex], 600u);
  EXPECT_EQ(points[3].time, 9'000'000);
}

TEST(MemoryHistory, StaysBoundedAndKeepsPeaks) {
  MemoryAccount account(64 << 20);
  MemoryHistory history(account);
  history.open();
  Nanoseconds now = 0;
  for (int i = 0; i < 100'000; ++i) {
    ASSERT_TRUE(account.reserve(kRings, 64));
    if (i == 500) {  // for longer than two looks are apart
      ASSERT_TRUE(account.reserve(kRings, 10 << 20));
    }
    history.tick(now += MemoryHistory::kFirstInterval);
    if (i == 510) account.release(kRings, 10 << 20);
  }
  const auto points = history.points(now);
  EXPECT_LE(points.size(), MemoryHistory::kMost);
  EXPECT_GE(points.size(), MemoryHistory::kMost / 2);
  std::uint64_t most = 0;
  for (std::size_t i = 1; i < points.size(); ++i) {
    EXPECT_LE(points[i - 1].time, points[i].time);
    most = std::max(most, points[i].bytes[kRingsIndex]);
  }
  EXPECT_GT(most, 10u << 20);
  EXPECT_EQ(account.line(MemoryKind::decisions).now,
            (MemoryHistory::kMost - 1) * sizeof(MemoryHistory::Point));
}

TEST(MemoryHistory, CoarsensWhereTheBudgetHasNoRoom) {
  MemoryAccount account(10'000);
  {
    MemoryHistory history(account);
    history.open();
    Nanoseconds now = 0;
    for (int i = 0; i < 1000; ++i) {
      ASSERT_TRUE(account.reserve(kRings, 1));
      history.tick(now += MemoryHistory::kFirstInterval);
    }
    EXPECT_LE(history.points(now).size(), 65u);
    EXPECT_GT(history.points(now).size(), 8u);
  }
  EXPECT_EQ(account.used(), 1000u) << "its bytes are given back";
  MemoryAccount full(100);
  MemoryHistory none(full);
  none.open();
  none.tick(1);
  EXPECT_TRUE(none.points(2).empty());
}

}  // namespace
}  // namespace turnout
