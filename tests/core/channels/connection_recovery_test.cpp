// SPDX-License-Identifier: BSD-3-Clause
#include "core/channels/connection_recovery.h"

#include <gtest/gtest.h>

#include "tests/support/channel_world.h"

namespace turnout {
namespace {

wire::ControlMessage resumed_on(ChannelKind kind) {
  return ChannelWorld::message(wire::Control::resumed, 0, kind);
}
wire::ControlMessage replay_of_nothing(const Peer& peer) {
  auto message = ChannelWorld::message(wire::Control::replay);
  message.last_sequence = peer.tx.sequence - 1;
  return message;
}
// From the failure until both directions have resumed.
void fail_and_recover(ChannelWorld& world, Peer& peer) {
  world.recovery.fail_connection(peer, nullptr);
  world.recovery.on_error(peer, ChannelWorld::message(wire::Control::error));
  EXPECT_TRUE(world.recovery.pump_recovering());
  world.recovery.on_replay(peer, replay_of_nothing(peer));
  EXPECT_TRUE(world.recovery.pump_recovering());
  world.recovery.on_resumed(peer, resumed_on(ChannelKind::dc_sendrecv));
}

TEST(ConnectionRecovery, BothEndsReportWhereTheyStandAndResume) {
  ChannelWorld world;
  Peer& peer = world.add_peer();
  peer.rx.sequence = 7;
  peer.tx.sequence = 4;
  world.recovery.fail_connection(peer, nullptr);
  EXPECT_EQ(peer.rx.state, ReceiveState::error);
  EXPECT_EQ(peer.tx.state, SendState::error);
  const auto errors = world.sent(peer, wire::Control::error);
  ASSERT_EQ(errors.size(), 1u);
  EXPECT_EQ(errors[0].last_sequence, 3u);
  // The peer may still write until it has stopped, too.
  EXPECT_FALSE(world.recovery.pump_recovering());
  EXPECT_TRUE(world.sent(peer, wire::Control::replay).empty());

  world.recovery.on_error(peer, ChannelWorld::message(wire::Control::error));
  EXPECT_TRUE(world.recovery.pump_recovering());
  ASSERT_EQ(world.sent(peer, wire::Control::replay).size(), 1u);
  EXPECT_EQ(world.sent(peer, wire::Control::replay)[0].last_sequence, 6u);
  EXPECT_TRUE(world.sent(peer, wire::Control::resumed).empty());

  world.recovery.on_replay(peer, replay_of_nothing(peer));
  EXPECT_TRUE(world.recovery.pump_recovering());
  EXPECT_EQ(world.sent(peer, wire::Control::resumed).size(), 1u);
  EXPECT_EQ(peer.tx.state, SendState::steady);

  world.recovery.on_resumed(peer, resumed_on(ChannelKind::dc_sendrecv));
  EXPECT_EQ(peer.rx.state, ReceiveState::steady);
  EXPECT_FALSE(peer.connection->recovery);
  EXPECT_TRUE(world.recovery.recovering().empty());
  EXPECT_EQ(world.above.count("lose_peer"), 0u);
}

TEST(ConnectionRecovery, OneFailureIsRecoveredOnce) {
  ChannelWorld world;
  Peer& peer = world.add_peer();
  world.recovery.fail_connection(peer, nullptr);
  world.recovery.fail_connection(peer, nullptr);
  EXPECT_EQ(world.eviction.report().failed, 1u);
  EXPECT_EQ(world.recovery.recovering().size(), 1u);
  EXPECT_EQ(world.sent(peer, wire::Control::error).size(), 1u);
}

TEST(ConnectionRecovery, WaitsTwiceAsLongAfterEachFailureInARow) {
  ChannelWorld world;
  Peer& peer = world.add_peer();
  for (const Nanoseconds wait : {1000, 2000, 4000, 8000}) {
    fail_and_recover(world, peer);
    EXPECT_EQ(peer.change->refused_until - world.clock.time, wait);
    world.clock.time += wait;
  }
}

TEST(ConnectionRecovery, EndsTheDecisionAndTheWaitForASlot) {
  ChannelWorld world;
  world.limit_connections(1);
  Peer& peer = world.add_peer();
  peer.change.make().decision = world.context.decisions.add({});
  ASSERT_TRUE(world.slots.request_slot(peer));
  world.recovery.fail_connection(peer, nullptr);
  EXPECT_EQ(world.context.decisions.kept().back().outcome, "not done: the connection failed");
  EXPECT_FALSE(world.eviction.has_waiting());
}

TEST(ConnectionRecovery, ARingOverRcContinuesOverDc) {
  ChannelWorld world;
  Peer& peer = world.add_peer();
  peer.tx.kind = ChannelKind::rc_rdma;
  peer.tx.uses_rc = true;
  world.recovery.fail_connection(peer, nullptr);
  EXPECT_EQ(peer.tx.kind, ChannelKind::dc_rdma);
  EXPECT_FALSE(peer.tx.uses_rc);
  Peer& other = world.add_peer();
  other.tx.kind = ChannelKind::rc_srq;
  world.recovery.fail_connection(other, nullptr);
  EXPECT_EQ(other.tx.kind, ChannelKind::dc_sendrecv);
}

TEST(ConnectionRecovery, AMessageOutOfTurnLosesThePeer) {
  ChannelWorld world;
  Peer& idle = world.add_peer();
  world.recovery.on_replay(idle, replay_of_nothing(idle));
  EXPECT_EQ(world.above.count("lose_peer"), 1u);
  EXPECT_EQ(world.above.loss.code(), Code::invalid);
  world.recovery.on_resumed(idle, resumed_on(ChannelKind::dc_sendrecv));
  EXPECT_EQ(world.above.count("lose_peer"), 2u);

  Peer& failed = world.add_peer();
  world.recovery.on_error(failed, ChannelWorld::message(wire::Control::error));
  EXPECT_EQ(world.above.count("lose_peer"), 2u);
  world.recovery.on_error(failed, ChannelWorld::message(wire::Control::error));
  EXPECT_EQ(world.above.count("lose_peer"), 3u);
  auto replay = replay_of_nothing(failed);
  replay.last_sequence += 1;  // a message that was not sent yet
  world.recovery.on_replay(failed, replay);
  EXPECT_EQ(world.above.count("lose_peer"), 4u);
  EXPECT_FALSE(failed.connection->recovery->asked);
}

TEST(ConnectionRecovery, DropsWhatWasNotResent) {
  ChannelWorld world;
  Recovery recovery;
  recovery.records.resize(3);
  recovery.at = 1;
  world.recovery.give_up_lost(recovery);
  EXPECT_EQ(world.above.count("retire"), 2u);
  EXPECT_EQ(recovery.at, 3u);
}

}  // namespace
}  // namespace turnout
