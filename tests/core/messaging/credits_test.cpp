// SPDX-License-Identifier: BSD-3-Clause
#include "core/messaging/credits.h"

#include <gtest/gtest.h>

#include "tests/support/messaging_world.h"

namespace turnout {
namespace {

TEST(Credits, AreReturnedOnce) {
  MessagingWorld world;
  Peer& peer = world.add_known_peer();
  world.credits.return_credit(peer);
  EXPECT_TRUE(world.credit.posted.empty());  // fewer than half of them
  world.credits.return_credit(peer);
  ASSERT_EQ(world.credit.posted.size(), 1u);
  const wire::ControlMessage message = MessagingWorld::control_in(world.credit.posted[0]);
  EXPECT_EQ(message.type, wire::Control::credit);
  // Two for the messages, and as many as it has now that it may have twice as many.
  EXPECT_EQ(message.credits, 2u + world.flow.first());
  world.credits.send_credits(peer);
  EXPECT_EQ(world.credit.posted.size(), 1u);
  EXPECT_EQ(world.credits.credit_messages(), 1u);
}

TEST(Credits, WaitForTheWireUpReply) {
  MessagingWorld world;
  Peer& peer = world.add_known_peer();
  peer.remote_index = wire::kUnknownIndex;
  peer.rx.grant.unreported = 3;
  world.credits.send_credits(peer);
  EXPECT_TRUE(world.credit.posted.empty());
  EXPECT_EQ(peer.rx.grant.unreported, 3u);
  peer.remote_index = 0;
  world.credits.send_credits(peer);
  ASSERT_EQ(world.credit.posted.size(), 1u);
  EXPECT_EQ(MessagingWorld::control_in(world.credit.posted[0]).credits, 3u);
}

TEST(Credits, OfAnEarlierRingAreIgnored) {
  MessagingWorld world;
  Peer& peer = world.add_known_peer(1);
  peer.tx.kind = ChannelKind::dc_rdma;
  peer.state.make().tx.ring.entries = 8;
  peer.state.make().tx.ring.credits = 2;
  peer.state.make().tx.ring.request = 6;
  wire::Header header;
  header.credits = 1;
  header.ring_credits = 3;
  header.ring = 5;
  world.credits.credits_given(peer, header);
  EXPECT_EQ(peer.state->tx.ring.credits, 2u);
  EXPECT_EQ(peer.tx.credits, 2u);
  header.ring = 6;
  world.credits.credits_given(peer, header);
  EXPECT_EQ(peer.state->tx.ring.credits, 5u);
  world.credits.credits_given(peer, header);
  EXPECT_EQ(peer.state->tx.ring.credits, 8u);  // never more than it has entries
}

TEST(Credits, OfPrivateReceivesCountOnlyForTheRequestThatGrantedThem) {
  MessagingWorld world;
  Peer& peer = world.add_known_peer();
  world.credits.on_private_credits(peer, 0, 4);  // it has none
  EXPECT_EQ(peer.state->tx.private_queue.credits, 0u);
  peer.state.make().tx.private_queue.request = 9;
  world.credits.on_private_credits(peer, 8, 4);
  EXPECT_EQ(peer.state->tx.private_queue.credits, 0u);
  world.credits.on_private_credits(peer, 9, 4);
  EXPECT_EQ(peer.state->tx.private_queue.credits, 4u);
}

}  // namespace
}  // namespace turnout
