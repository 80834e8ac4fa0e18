// SPDX-License-Identifier: BSD-3-Clause
#include "core/memory/account.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace turnout {
namespace {

TEST(MemoryAccount, RefusesBeyondTheBudgetAndLeavesNothingChanged) {
  MemoryAccount account(100);
  EXPECT_TRUE(account.reserve(MemoryKind::rings, 60));
  EXPECT_FALSE(account.reserve(MemoryKind::unexpected, 41));
  EXPECT_EQ(account.used(), 60u);
  EXPECT_TRUE(account.reserve(MemoryKind::unexpected, 40));
  account.release(MemoryKind::rings, 60);
  EXPECT_EQ(account.used(), 40u);
  EXPECT_EQ(account.peak(), 100u);
  EXPECT_EQ(account.line(MemoryKind::rings).peak, 60u);
}

TEST(MemoryAccount, ObjectsGoWithTheirBytes) {
  MemoryAccount account(100);
  const MemoryAccount::Line& line = account.line(MemoryKind::rings);
  {
    const Reservation ring = Reservation::take(account, MemoryKind::rings, 60, 0, 16);
    Reservation other = Reservation::take(account, MemoryKind::rings, 10, 0, 2);
    Reservation moved = std::move(other);
    EXPECT_FALSE(account.reserve(MemoryKind::rings, 60, 0, 16));
    EXPECT_TRUE(account.reserve(MemoryKind::rings, 5));  // of no object in particular
    EXPECT_EQ(line.objects, 18u);
  }
  EXPECT_EQ(line.objects, 0u);
  EXPECT_EQ(line.objects_peak, 18u);
  EXPECT_EQ(account.used(), 5u);
}

TEST(MemoryAccount, WhatIsPromisedIsRefusedToNobodyElse) {
  MemoryAccount account(100);
  EXPECT_FALSE(account.promise(101));
  ASSERT_TRUE(account.promise(30));
  ASSERT_TRUE(account.promise(10));
  EXPECT_FALSE(account.promise(61));
  EXPECT_EQ(account.used(), 0u) << "a promise takes nothing";
  EXPECT_FALSE(account.reserve(MemoryKind::rings, 61));
  EXPECT_FALSE(account.reserve(MemoryKind::rings, 51, 50))
      << "what is promised is a part of `spare`";
  EXPECT_TRUE(account.reserve(MemoryKind::rings, 50, 50));
  account.reserve_promised(MemoryKind::operations, 15, 1);
  EXPECT_EQ(account.used(), 65u);
  EXPECT_FALSE(account.reserve(MemoryKind::unexpected, 11));
  EXPECT_TRUE(account.reserve(MemoryKind::unexpected, 10));
  account.reserve_promised(MemoryKind::operations, 25, 1);
  EXPECT_EQ(account.used(), 100u);
  EXPECT_EQ(account.line(MemoryKind::operations).objects, 2u);
  account.release(MemoryKind::operations, 40, 2);
  EXPECT_TRUE(account.reserve(MemoryKind::unexpected, 40)) << "taken once";
}

TEST(MemoryAccount, KindsAlwaysAddUp) {
  std::mt19937_64 random(7);
  MemoryAccount account(1 << 20);
  std::vector<Reservation> held;
  for (int i = 0; i < 20000; ++i) {
    if (random() % 2 == 0) {
      const auto kind = static_cast<MemoryKind>(random() % static_cast<int>(MemoryKind::count));
      Reservation r = Reservation::take(account, kind, random() % 40000);
      if (r) held.push_back(std::move(r));
    } else if (!held.empty()) {
      std::swap(held[random() % held.size()], held.back());
      held.pop_back();
    }
    std::uint64_t sum = 0;
    for (int k = 0; k < static_cast<int>(MemoryKind::count); ++k) {
      sum += account.line(static_cast<MemoryKind>(k)).now;
    }
    ASSERT_EQ(sum, account.used());
    ASSERT_LE(account.used(), account.budget());
  }
  held.clear();
  EXPECT_EQ(account.used(), 0u);
}

// spec/cost-model.md: roundup_pow2(max_send_wr x align64(max(ov + 16 sge, ov + align16(4 +
// inline)))), ov = 16 + 16, and 48 more for a DC initiator; 4 KiB for the context.
TEST(MemoryAccount, QueuePairBytesFollowTheMlx5Formula) {
  EXPECT_EQ(queue_pair_bytes(QpService::rc, 128, 2, 256), 4096u + 65536u);  // 128 x 320
  EXPECT_EQ(queue_pair_bytes(QpService::dci, 128, 2, 0), 4096u + 16384u);   // 128 x 128
  EXPECT_EQ(queue_pair_bytes(QpService::dct, 0, 0, 0), 4096u);
}

}  // namespace
}  // namespace turnout
