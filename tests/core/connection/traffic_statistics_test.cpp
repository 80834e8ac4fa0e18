// SPDX-License-Identifier: BSD-3-Clause
#include "core/connection/traffic_statistics.h"

#include <gtest/gtest.h>

namespace turnout {
namespace {

constexpr std::uint64_t kRoom = 1 << 20;

bool keep(TrafficStatistics& statistics, selection::Time begin, std::size_t sources) {
  return statistics.keep({begin, begin + 100}, sources, [&](auto&& count) {
    for (PeerId peer = 0; peer < sources; ++peer) count(peer, 10 + peer, false);
  });
}

TEST(TrafficStatistics, NothingIsMadeBeforeTheFirstMessage) {
  MemoryAccount account(kRoom);
  TrafficStatistics statistics(account);
  EXPECT_FALSE(keep(statistics, 0, 0));
  EXPECT_EQ(statistics.get(), nullptr);
  EXPECT_EQ(account.available(), kRoom);
}

TEST(TrafficStatistics, WhatIsKeptIsChargedToTheAccount) {
  MemoryAccount account(kRoom);
  TrafficStatistics statistics(account);
  ASSERT_TRUE(keep(statistics, 0, 5));
  ASSERT_NE(statistics.get(), nullptr);
  const auto counts = statistics.get()->counts({0, 100});
  EXPECT_EQ(counts.messages, 10u + 11 + 12 + 13 + 14);
  EXPECT_EQ(account.available(),
            kRoom - statistics.get()->bytes() - statistics.get()->index_bytes());
  for (selection::Time begin = 100; begin < 3000; begin += 100) {
    ASSERT_TRUE(keep(statistics, begin, 40));
    ASSERT_EQ(account.available(),
              kRoom - statistics.get()->bytes() - statistics.get()->index_bytes());
  }
}

TEST(TrafficStatistics, AnIntervalWithoutRoomIsNotKept) {
  MemoryAccount account(kRoom);
  TrafficStatistics statistics(account);
  ASSERT_TRUE(keep(statistics, 0, 2));
  ASSERT_TRUE(account.reserve(MemoryKind::rings, account.available()));
  EXPECT_FALSE(keep(statistics, 100, 3000));
  EXPECT_EQ(statistics.get()->newest()->end, 100);
  EXPECT_EQ(account.available(), 0u);
  account.release(MemoryKind::rings, kRoom / 2);
  EXPECT_TRUE(keep(statistics, 100, 3000)) << "the next one is";
}

TEST(TrafficStatistics, TimesThatRunBackwardsAreRefused) {
  MemoryAccount account(kRoom);
  TrafficStatistics statistics(account);
  ASSERT_TRUE(keep(statistics, 1000, 1));
  const std::uint64_t available = account.available();
  EXPECT_FALSE(keep(statistics, 0, 1));
  EXPECT_EQ(account.available(), available);
}

TEST(TrafficStatistics, AnotherStoreIsMadeWithinTheBudget) {
  MemoryAccount account(kRoom);
  TrafficStatistics statistics(account);
  std::uint64_t limit = 0;
  const StatisticsFactory factory = [&](std::uint64_t max_bytes) {
    limit = max_bytes;
    return selection::make_statistics(4096);
  };
  statistics.use(&factory);
  ASSERT_TRUE(keep(statistics, 0, 3));
  EXPECT_EQ(limit, kRoom);
}

}  // namespace
}  // namespace turnout
