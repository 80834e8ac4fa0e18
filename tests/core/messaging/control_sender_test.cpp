// SPDX-License-Identifier: BSD-3-Clause
#include "core/messaging/control_sender.h"

#include <gtest/gtest.h>

#include "tests/support/messaging_world.h"

namespace turnout {
namespace {

ControlBytes bytes_of(const wire::ControlMessage& message) {
  return {nullptr, &message, sizeof message, nullptr};
}

TEST(ControlSender, UsesTheQueueAndTheTargetOfThePurpose) {
  MessagingWorld world;
  Peer& peer = world.add_known_peer();
  const wire::ControlMessage message;
  EXPECT_TRUE(world.control_sender.post_control(peer, true, bytes_of(message)));
  EXPECT_TRUE(world.control_sender.post_control(peer, false, bytes_of(message)));
  ASSERT_EQ(world.credit.posted.size(), 1u);
  ASSERT_EQ(world.establishment.posted.size(), 1u);
  EXPECT_EQ(world.credit.posted[0].dct, 101u);  // behind the target for data
  EXPECT_EQ(world.establishment.posted[0].dct, 102u);
  EXPECT_EQ(world.credit.posted[0].length, sizeof message);
}

TEST(ControlSender, TakesNoBufferForAMessageThatFindsTheQueueFull) {
  MessagingWorld world;
  Peer& peer = world.add_known_peer();
  world.fill(world.credit);
  const std::size_t free = world.resources.control_send_pool.available();
  EXPECT_FALSE(world.control_sender.post_control(peer, true, bytes_of({})));
  EXPECT_EQ(world.resources.control_send_pool.available(), free);
}

TEST(ControlSender, LosesThePeerAndKeepsNoBufferIfThePostFails) {
  MessagingWorld world;
  Peer& peer = world.add_known_peer();
  const std::size_t free = world.resources.control_send_pool.available();
  world.credit.result = {Code::system, "broken"};
  EXPECT_TRUE(world.control_sender.post_control(peer, true, bytes_of({})));
  EXPECT_EQ(world.above.count("lose_peer"), 1u);
  EXPECT_EQ(world.resources.control_send_pool.available(), free);
}

}  // namespace
}  // namespace turnout
