// SPDX-License-Identifier: BSD-3-Clause
#include "core/state/operation_records.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace turnout
