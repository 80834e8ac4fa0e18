// SPDX-License-Identifier: BSD-3-Clause
#include "core/channels/xrc_recovery.h"

#include <gtest/gtest.h>

#include "tests/support/channel_world.h"

namespace turnout {
namespace {

// A peer whose ring is written over its XRC connection to our node.
Peer& peer_with_ring(ChannelWorld& world) {
  Peer& peer = world.add_peer();
  peer.rx.kind = ChannelKind::xrc_rdma;
  peer.rx.sequence = 5;
  world.rings.add(peer);
  return peer;
}

TEST(XrcRecovery, TheReceiverStopsReadingItsRingUntilTheSenderResumes) {
  ChannelWorld world;
  Peer& peer = peer_with_ring(world);
  world.xrc_recovery.on_xrc_error(peer, ChannelWorld::message(wire::Control::xrc_error));
  EXPECT_EQ(peer.rx.state, ReceiveState::error);
  EXPECT_TRUE(world.rings.speaking().empty());
  const auto replays = world.sent(peer, wire::Control::xrc_replay);
  ASSERT_EQ(replays.size(), 1u);
  EXPECT_EQ(replays[0].last_sequence, 4u);
  EXPECT_GT(peer.change->refused_until, world.clock.time);
  world.xrc_recovery.on_xrc_resumed(
      peer, ChannelWorld::message(wire::Control::xrc_resumed, 0, ChannelKind::dc_rdma));
  EXPECT_EQ(world.above.count("lose_peer"), 0u);
  EXPECT_EQ(peer.rx.state, ReceiveState::steady);
  EXPECT_EQ(peer.rx.kind, ChannelKind::dc_rdma);
  EXPECT_EQ(world.rings.speaking().size(), 1u);
  EXPECT_FALSE(peer.connection->xrc);
}

TEST(XrcRecovery, AMessageOutOfTurnLosesThePeer) {
  ChannelWorld world;
  Peer& first = peer_with_ring(world);
  const auto error = ChannelWorld::message(wire::Control::xrc_error);
  world.xrc_recovery.on_xrc_error(first, error);
  world.xrc_recovery.on_xrc_error(first, error);
  EXPECT_EQ(world.above.count("lose_peer"), 1u);
  Peer& second = peer_with_ring(world);
  world.xrc_recovery.on_xrc_replay(second, ChannelWorld::message(wire::Control::xrc_replay));
  EXPECT_EQ(world.above.count("lose_peer"), 2u);
  world.xrc_recovery.on_xrc_error(second, error);
  world.xrc_recovery.on_xrc_resumed(
      second, ChannelWorld::message(wire::Control::xrc_resumed, 0, ChannelKind::dc_sendrecv));
  EXPECT_EQ(world.above.count("lose_peer"), 3u);  // it has a ring, which is not drained
}

TEST(XrcRecovery, TheSenderReportsAFailureToAllPeersThatItWroteTo) {
  ChannelWorld world;
  Peer& first = world.add_peer();
  Peer& second = world.add_peer();
  Peer& waiting = world.add_peer();
  for (Peer* const peer : {&first, &second, &waiting}) world.xrc_nodes.take_xrc_request(*peer, 5);
  auto& job = static_cast<RcJob&>(world.jobs->first());
  IdleQueuePair::give(*job.queue, 77);
  XrcConnection& link = *job.link;
  world.jobs->end_first();
  ASSERT_TRUE(world.negotiator.pump_jobs());
  for (Peer* const peer : {&first, &second}) {
    peer->tx.state = SendState::steady;
    peer->tx.kind = ChannelKind::xrc_rdma;
  }
  SendRecord record;
  record.kind = SendRecord::Kind::message;
  record.peer = first.id;
  ASSERT_TRUE(link.queue->post(record).ok());
  record.kind = SendRecord::Kind::probe;
  ASSERT_TRUE(link.queue->post(record).ok());

  ibv_wc wc{};
  wc.status = IBV_WC_RETRY_EXC_ERR;
  world.xrc_recovery.fail_xrc_connection(link, wc);
  EXPECT_TRUE(world.xrc_nodes.xrc_connections().empty());
  EXPECT_EQ(world.sent(first, wire::Control::xrc_error).size(), 1u);
  EXPECT_EQ(world.sent(second, wire::Control::xrc_error).size(), 1u);
  EXPECT_EQ(first.tx.kind, ChannelKind::dc_rdma);
  EXPECT_EQ(first.tx.state, SendState::error);
  EXPECT_EQ(first.connection->xrc->lost->records.size(), 1u);
  EXPECT_TRUE(second.connection->xrc->lost->records.empty());
  EXPECT_EQ(world.above.count("retire"), 1u);  // the probe
  // The request that waited for the connection is refused.
  EXPECT_EQ(world.above.count("answer_refusal"), 1u);
  EXPECT_EQ(world.above.refusal, wire::Refusal::error);
  EXPECT_TRUE(world.sent(waiting, wire::Control::xrc_error).empty());

  // Nothing of the second's was lost: it goes on when it has said where it stands.
  EXPECT_FALSE(world.xrc_recovery.pump_xrc_lost());
  auto replay = ChannelWorld::message(wire::Control::xrc_replay);
  replay.last_sequence = second.tx.sequence - 1;
  world.xrc_recovery.on_xrc_replay(second, replay);
  EXPECT_TRUE(world.xrc_recovery.pump_xrc_lost());
  EXPECT_EQ(second.tx.state, SendState::steady);
  const auto resumed = world.sent(second, wire::Control::xrc_resumed);
  ASSERT_EQ(resumed.size(), 1u);
  EXPECT_EQ(resumed[0].kind, static_cast<std::uint8_t>(ChannelKind::dc_rdma));
  EXPECT_EQ(world.xrc_nodes.xrc_lost().size(), 1u);
}

}  // namespace
}  // namespace turnout
