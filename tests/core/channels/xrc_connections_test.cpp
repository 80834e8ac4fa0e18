// SPDX-License-Identifier: BSD-3-Clause
#include "core/channels/xrc_connections.h"

#include <gtest/gtest.h>

#include "tests/support/channel_world.h"

namespace turnout {
namespace {

constexpr std::uint32_t kReceiveQueue = 5;

// The first connection's initiator exists.
XrcConnection& make_initiator(ChannelWorld& world) {
  auto& job = static_cast<RcJob&>(world.jobs->first());
  IdleQueuePair::give(*job.queue, 77);
  XrcConnection& link = *job.link;
  world.jobs->end_first();
  EXPECT_TRUE(world.negotiator.pump_jobs());
  return link;
}

TEST(XrcConnections, OneConnectionServesAllProcessesOfANode) {
  ChannelWorld world;
  Peer& first = world.add_peer();
  Peer& second = world.add_peer();
  Peer& elsewhere = world.add_peer();
  RemotePort far;
  far.lid = 9;
  elsewhere.address.port = &far;
  for (Peer* const peer : {&first, &second, &elsewhere})
    world.xrc_nodes.take_xrc_request(*peer, kReceiveQueue);
  EXPECT_EQ(world.xrc_nodes.xrc_connections().size(), 2u);
  EXPECT_EQ(world.jobs->held.size(), 2u);
  EXPECT_EQ(world.rc.active_rc(), 2u);
  EXPECT_EQ(first.connection->xrc->link, second.connection->xrc->link);
  EXPECT_EQ(first.connection->xrc->link->users.size(), 2u);
}

TEST(XrcConnections, RefusesBeyondTheLimitOfConnections) {
  ChannelWorld world;
  world.context.settings.max_active_rc = 0;
  Peer& peer = world.add_peer();
  world.xrc_nodes.take_xrc_request(peer, kReceiveQueue);
  EXPECT_EQ(world.above.count("answer_refusal"), 1u);
  EXPECT_EQ(world.above.refusal, wire::Refusal::limit);
  EXPECT_FALSE(peer.connection->xrc);
  EXPECT_TRUE(world.jobs->held.empty());
}

TEST(XrcConnections, AsksOnePeerOfANodeForTheTarget) {
  ChannelWorld world;
  Peer& first = world.add_peer();
  Peer& second = world.add_peer();
  world.xrc_nodes.take_xrc_request(first, kReceiveQueue);
  world.xrc_nodes.take_xrc_request(second, kReceiveQueue);
  XrcConnection& link = make_initiator(world);
  const auto accepts = world.sent(first, wire::Control::accept);
  ASSERT_EQ(accepts.size(), 1u);
  EXPECT_EQ(accepts[0].operation, 0u);  // make one
  EXPECT_EQ(accepts[0].qp_id, link.queue->qp_id());
  EXPECT_TRUE(world.sent(second, wire::Control::accept).empty());
  EXPECT_EQ(second.tx.state, SendState::preparing);
  // The target is there: the others open it.
  auto ready = ChannelWorld::message(wire::Control::ready);
  ready.qp_id = 55;
  world.xrc_nodes.on_xrc_ready(first, ready);
  world.jobs->end_first();
  EXPECT_TRUE(world.negotiator.pump_jobs());
  EXPECT_EQ(world.above.count("switch_sending"), 1u);
  ASSERT_EQ(world.sent(second, wire::Control::accept).size(), 1u);
  EXPECT_EQ(world.sent(second, wire::Control::accept)[0].operation, 55u);
}

TEST(XrcConnections, APeerThatDoesNotMakeTheTargetDelaysOthersForALimitedTime) {
  ChannelWorld world;
  Peer& first = world.add_peer();
  Peer& second = world.add_peer();
  world.xrc_nodes.take_xrc_request(first, kReceiveQueue);
  world.xrc_nodes.take_xrc_request(second, kReceiveQueue);
  const XrcConnection& link = make_initiator(world);
  const Nanoseconds late = world.clock.time + world.context.settings.keepalive / 4;
  world.xrc_nodes.look_after_xrc_connections(late - 1);
  EXPECT_EQ(world.above.count("refuse"), 0u);
  world.xrc_nodes.look_after_xrc_connections(late);
  EXPECT_EQ(world.above.count("refuse"), 1u);
  EXPECT_EQ(world.above.refusal, wire::Refusal::late);
  EXPECT_EQ(first.tx.state, SendState::steady);
  EXPECT_FALSE(first.connection->xrc);
  EXPECT_EQ(link.asked, &second);
  EXPECT_EQ(world.sent(second, wire::Control::accept).size(), 1u);
}

TEST(XrcConnections, DestroysAConnectionWithItsLastUser) {
  ChannelWorld world;
  Peer& first = world.add_peer();
  Peer& second = world.add_peer();
  world.xrc_nodes.take_xrc_request(first, kReceiveQueue);
  world.xrc_nodes.take_xrc_request(second, kReceiveQueue);
  (void)make_initiator(world);
  world.xrc_nodes.release_xrc_connection(first);
  EXPECT_EQ(world.xrc_nodes.xrc_connections().size(), 1u);
  world.xrc_nodes.release_xrc_connection(second);
  EXPECT_TRUE(world.xrc_nodes.xrc_connections().empty());
  EXPECT_EQ(world.rc.active_rc(), 0u);
  EXPECT_EQ(world.rc.resetting_rc(), 1u);  // the job that destroys it
}

TEST(XrcConnections, APeerThatNamesNoPossibleTargetIsLost) {
  ChannelWorld world;
  Peer& peer = world.add_peer();
  auto accept = ChannelWorld::message(wire::Control::accept);
  accept.operation = 0x1000000;
  world.xrc_nodes.on_xrc_accept(peer, accept);
  EXPECT_EQ(world.above.count("lose_peer"), 1u);
  EXPECT_EQ(world.above.loss.code(), Code::invalid);
}

}  // namespace
}  // namespace turnout
