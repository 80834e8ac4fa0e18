// SPDX-License-Identifier: BSD-3-Clause
#include "core/messaging/private_receive_queue.h"

#include <gtest/gtest.h>

#include "tests/support/messaging_world.h"

namespace turnout {
namespace {

using State = ReceivePool::PrivateChunk::State;

// A peer that sends over RC into private receives.
struct PrivateWorld : MessagingWorld {
  PrivateWorld() {
    connect(peer);
    EXPECT_TRUE(private_receives.ready_private_receives(peer).ok());
    private_receives.post_private_receives(peer);
    peer.rx.kind = ChannelKind::rc_sr;
    peer.state.make().rx.private_queue.request = 5;
    number = peer.connection->rc->receive_chunks[0];
  }
  // A message arrives in receive `i`.
  std::uint32_t fill_receive(std::uint32_t i) {
    chunk().states[i] = State::out;
    ++chunk().out;
    --peer.state.make().rx.private_queue.granted;
    return number << 16 | i;
  }
  ReceivePool::PrivateChunk& chunk() { return *resources.receive_pool.private_chunk(number); }

  Peer& peer = add_known_peer();
  std::uint32_t number = 0;
};

TEST(PrivateReceiveQueues, GrantOneCreditForEachReceive) {
  PrivateWorld world;
  const std::uint64_t first = world.context.settings.private_receive_first;
  EXPECT_EQ(world.peer.state->rx.private_queue.count, first);
  EXPECT_EQ(world.peer.state->rx.private_queue.granted, first);
  for (const State state : world.chunk().states) EXPECT_EQ(state, State::posted);
  EXPECT_TRUE(world.resources.receive_pool.is_private(world.number << 16));
}

TEST(PrivateReceiveQueues, ReportHalfOfTheCreditsInOneMessage) {
  PrivateWorld world;
  const std::uint32_t first = world.fill_receive(0);
  world.private_receives.return_private_receive(first);
  EXPECT_EQ(world.chunk().states[0], State::posted);
  EXPECT_TRUE(world.credit.posted.empty());
  const std::uint32_t second = world.fill_receive(1);
  world.private_receives.return_private_receive(second);
  ASSERT_EQ(world.credit.posted.size(), 1u);
  const wire::ControlMessage message = MessagingWorld::control_in(world.credit.posted[0]);
  EXPECT_EQ(message.credits, 2u);
  EXPECT_EQ(message.request, 5u);
  EXPECT_EQ(message.kind, static_cast<std::uint8_t>(ChannelKind::rc_sr));
  EXPECT_EQ(world.peer.state->rx.private_queue.unreported, 0u);
  EXPECT_EQ(world.peer.state->rx.private_queue.granted, world.peer.state->rx.private_queue.count);
}

TEST(PrivateReceiveQueues, KeepABufferThatHoldsAMessageWhenTheQueueGoes) {
  PrivateWorld world;
  const std::uint32_t held = world.fill_receive(0);
  world.private_receives.close_private_receives(world.peer, *world.peer.connection->rc);
  world.private_receives.release_private_receives(*world.peer.connection->rc);
  EXPECT_TRUE(world.resources.receive_pool.is_private(held));
  world.private_receives.return_private_receive(held);
  EXPECT_FALSE(world.resources.receive_pool.is_private(held));
  EXPECT_TRUE(world.credit.posted.empty());  // the queue lends nothing any more
}

TEST(PrivateReceiveQueues, AddNoMoreThanTheCompletionQueueHasRoomFor) {
  PrivateWorld world;
  world.resources.private_room = world.peer.state->rx.private_queue.count;
  world.private_receives.grow_private_receives(world.peer);
  EXPECT_EQ(world.private_receives.private_report().refused, 1u);
  world.resources.private_room = 1000;
  world.private_receives.grow_private_receives(world.peer);
  EXPECT_EQ(world.private_receives.private_report().growths, 1u);
  EXPECT_EQ(world.peer.state->rx.private_queue.count,
            world.context.settings.private_receive_buffers);
}

TEST(PrivateReceiveQueues, AreForTheMessagesOfOnePeer) {
  PrivateWorld world;
  Peer& other = world.add_known_peer();
  wire::Parsed parsed;
  parsed.header.index = world.peer.id;
  EXPECT_TRUE(PrivateReceiveQueues::check_private_sender(world.peer, parsed).ok());
  EXPECT_EQ(PrivateReceiveQueues::check_private_sender(other, parsed).code(), Code::invalid);
  wire::WireupRequest wireup;
  wireup.address.id = other.address.id;
  parsed.wireup = &wireup;
  EXPECT_EQ(PrivateReceiveQueues::check_private_sender(world.peer, parsed).code(), Code::invalid);
}

TEST(PrivateReceiveQueues, TakeAControlMessageForACreditOfTheConnection) {
  MessagingWorld world;
  Peer& peer = world.add_known_peer();
  peer.state.make().tx.private_queue.credits = 2;
  wire::ControlMessage fin;
  fin.type = wire::Control::fin;
  EXPECT_FALSE(world.private_receives.post_private_control(peer, fin, nullptr));
  world.connect(peer);
  EXPECT_TRUE(world.private_receives.post_private_control(peer, fin, nullptr));
  EXPECT_EQ(peer.state->tx.private_queue.credits, 1u);
  EXPECT_EQ(peer.state->tx.private_queue.controls, 1u);
  EXPECT_TRUE(peer.connection->rc->newest().takes_private);
}

}  // namespace
}  // namespace turnout
