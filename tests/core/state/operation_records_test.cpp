// SPDX-License-Identifier: BSD-3-Clause
#include "core/state/operation_records.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/support/component_world.h"

namespace turnout {
namespace {

TEST(OperationRecords, RefuseForGoodAfterThirtyKeepAliveTimes) {
  Settings settings;
  settings.keepalive = 100;
  ComponentWorld world(settings);
  EXPECT_EQ(world.records.refusal().code(), Code::again);
  world.clock.time += 30 * 100 - 1;
  EXPECT_EQ(world.records.refusal().code(), Code::again);
  world.clock.time += 1;
  EXPECT_EQ(world.records.refusal().code(), Code::over_budget);
}

TEST(OperationRecords, CountTheTimeSinceTheLatestAcceptedOperation) {
  Settings settings = Settings::defaults();
  settings.keepalive = 100;
  ComponentWorld world(settings);
  EXPECT_EQ(world.records.refusal().code(), Code::again);
  world.clock.time += 2900;
  SendOperation* const accepted = world.records.take_for_caller(world.records.sends);
  ASSERT_NE(accepted, nullptr);
  world.clock.time += 2900;
  EXPECT_EQ(world.records.refusal().code(), Code::again);
  world.records.sends.give_back(accepted);
}

TEST(OperationRecords, KeepSomeBlocksOfLongCopies) {
  ComponentWorld world;
  OperationRecords& records = world.records;
  const std::uint64_t before = world.context.account.available();
  constexpr std::size_t kMore = OperationRecords::kMostSpareBlocks + 10;
  std::vector<std::byte*> copies;
  for (std::size_t i = 0; i < kMore; ++i) copies.push_back(records.take_copy(kInjectLimit - i));
  EXPECT_EQ(before - world.context.account.available(), kMore * kInjectLimit);
  for (std::size_t i = 0; i < kMore; ++i) records.give_back_copy(copies[i], kInjectLimit - i);
  const std::uint64_t kept = before - world.context.account.available();
  EXPECT_EQ(kept, OperationRecords::kMostSpareBlocks * kInjectLimit);
  std::byte* const again = records.take_copy(kInjectLimit);
  EXPECT_EQ(before - world.context.account.available(), kept);
  records.give_back_copy(again, kInjectLimit);
  // A shorter one takes what it has.
  std::byte* const shorter = records.take_copy(InjectCopy::kMost + 1);
  EXPECT_EQ(before - world.context.account.available(), kept + InjectCopy::kMost + 1);
  records.give_back_copy(shorter, InjectCopy::kMost + 1);
  EXPECT_EQ(before - world.context.account.available(), kept);
}

TEST(OperationRecords, FreeTheCopiesOfWhatWasNeverSent) {
  ComponentWorld world;
  const std::uint64_t before = world.context.account.available();
  {
    OperationRecords records(world.context, 0);
    for (const std::size_t bytes : {InjectCopy::kMost, InjectCopy::kMost + 1, kInjectLimit}) {
      SendOperation* const send = records.sends.take();
      ASSERT_NE(send, nullptr);
      send->copy = records.take_copy(bytes);
      send->iov.total = bytes;
      Transfer* const transfer = records.transfers.take();
      ASSERT_NE(transfer, nullptr);
      transfer->copy = records.take_copy(bytes);
      transfer->total = bytes;
    }
  }
  EXPECT_EQ(world.context.account.available(), before);
}

}  // namespace
}  // namespace turnout
