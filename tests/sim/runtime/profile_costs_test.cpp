// SPDX-License-Identifier: BSD-3-Clause
#include "sim/runtime/rank_environment.h"

#include <gtest/gtest.h>

#include "tests/sim/runtime/fake_world.h"

namespace turnout::sim {
namespace {

TEST(ProfileCosts, WorkTakesTheTimeOfTheProfile) {
  FakeWorld world;
  world.costs.processor_poll_ring = 5;
  world.costs.processor_match = 7;
  ProfileCosts costs(world);
  costs.charge(Work::poll_ring, 3);
  EXPECT_EQ(world.time, 15);
  costs.charge(Work::match, 2);
  EXPECT_EQ(world.time, 29);
  costs.charge(Work::post, 10);  // the driver's
  EXPECT_EQ(world.time, 29);
}

TEST(ProfileCosts, ObjectsAreAsLargeAsTheProfileSaysOrAsTheDriverComputes) {
  FakeWorld world;
  world.costs.memory_rc_qp = 0;
  world.costs.memory_dc_data_qp = 100;
  world.costs.memory_dc_data_fixed = 7;
  const ProfileCosts costs(world);
  EXPECT_EQ(costs.bytes(Object::rc_queue_pair, 4, 12345), 12345u);
  EXPECT_EQ(costs.bytes(Object::dc_data_pool, 4, 12345), 407u);
}

}  // namespace
}  // namespace turnout::sim
