// SPDX-License-Identifier: BSD-3-Clause
#include "core/channels/rejection.h"

#include <gtest/gtest.h>

#include "tests/support/channel_world.h"

namespace turnout {
namespace {

TEST(PeerRejection, ARejectedProcessLearnsTheReason) {
  ChannelWorld world;
  Peer& peer = world.add_peer();
  auto message = ChannelWorld::message(wire::Control::reject);
  message.operation = 12345;  // the peer's budget
  message.status = static_cast<std::uint32_t>(Code::over_budget);
  world.rejection.on_rejection(peer, message);
  EXPECT_EQ(world.above.loss.code(), Code::peer_lost);
  EXPECT_NE(world.above.loss.text().find("no memory for a peer record"), std::string::npos);
  EXPECT_NE(world.above.loss.text().find("TURNOUT_MEMORY_BUDGET=12345"), std::string::npos);
  message.own_index = 3;  // it had a record
  world.rejection.on_rejection(peer, message);
  EXPECT_NE(world.above.loss.text().find("exceeded the memory budget"), std::string::npos);
  message.status = static_cast<std::uint32_t>(Code::system);
  world.rejection.on_rejection(peer, message);
  EXPECT_EQ(world.above.loss.text().find("TURNOUT_MEMORY_BUDGET"), std::string::npos);
  EXPECT_EQ(world.above.count("lose_peer"), 3u);
}

TEST(PeerRejection, ARejectionWithoutRoomIsToBeSentAgain) {
  ChannelWorld world;
  Peer& peer = world.add_peer();
  peer.state.make().given_up = Code::over_budget;
  world.rejection.reject(peer);  // no buffer of the control pool is free
  EXPECT_TRUE(peer.state->loss_unreported);
  const auto& queue = static_cast<RecordedQueue&>(*world.resources.pool(Purpose::credit)[0]);
  EXPECT_TRUE(queue.posted.empty());
  EXPECT_TRUE(world.control.pending_control().empty());
}

}  // namespace
}  // namespace turnout
