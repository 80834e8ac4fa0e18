// SPDX-License-Identifier: BSD-3-Clause
#include "core/messaging/shared_receive_queue.h"

#include <gtest/gtest.h>

#include "tests/support/messaging_world.h"

namespace turnout {
namespace {

constexpr std::uint32_t kMore = 4;

// With a second chunk of receives.
struct GrownWorld : MessagingWorld {
  GrownWorld() {
    EXPECT_TRUE(
        resources.receive_pool.grow(*context.device, context.account, kMore, 0, &resources.to_post)
            .ok());
    shared_receives.post_receives();
  }
};

TEST(SharedReceiveQueue, PostsEachFreeReceiveOnce) {
  MessagingWorld world;
  EXPECT_EQ(world.shared_receives.shared().posted, MessagingWorld::kReceives);
  EXPECT_TRUE(world.resources.to_post.empty());
  world.resources.to_post = {3, 1};
  world.shared_receives.post_receives();
  world.shared_receives.post_receives();
  EXPECT_EQ(world.shared_receives.shared().posted, MessagingWorld::kReceives + 2);
}

TEST(SharedReceiveQueue, HasItsWatermarkAtAQuarterOfTheReceivesAtMost) {
  MessagingWorld world;
  EXPECT_EQ(world.shared_receives.shared().watermark, MessagingWorld::kReceives / 4);
  EXPECT_TRUE(world.shared_receives.shared().armed);
}

TEST(SharedReceiveQueue, LetsUnusedReceivesGo) {
  GrownWorld world;
  EXPECT_EQ(world.resources.receive_pool.count(), MessagingWorld::kReceives + kMore);
  world.clock.time += world.context.settings.receive_idle;
  world.shared_receives.look_after_receives(world.clock.time);
  EXPECT_EQ(world.resources.receive_pool.count(), MessagingWorld::kReceives);
  // Its buffers are not posted again, those of the first chunk are.
  const std::uint32_t before = world.shared_receives.shared().posted;
  for (std::uint32_t i = 0; i < kMore; ++i) world.resources.to_post.push_back(1u << 16 | i);
  world.resources.to_post.push_back(0);
  world.shared_receives.post_receives();
  EXPECT_EQ(world.shared_receives.shared().posted, before + 1);
  EXPECT_EQ(world.resources.receive_pool.chunks_gone(), 1u);
}

TEST(SharedReceiveQueue, KeepsReceivesThatWereNeeded) {
  GrownWorld world;
  world.shared_receives.shared().least = 5;  // since the last look
  world.clock.time += world.context.settings.receive_idle;
  world.shared_receives.look_after_receives(world.clock.time);
  EXPECT_FALSE(world.resources.receive_pool.shrinking());
}

}  // namespace
}  // namespace turnout
