// SPDX-License-Identifier: BSD-3-Clause
#include "core/channels/connection_slots.h"

#include <gtest/gtest.h>

#include "tests/support/channel_world.h"

namespace turnout {
namespace {

// One slot, which the first of two peers has.
struct OneSlot : ChannelWorld {
  OneSlot() {
    limit_connections(1);
    connect(holder);
  }
  Peer& holder = add_peer();
  Peer& waiter = add_peer();
};

TEST(ConnectionSlots, ALimitOfConnectionsHoldsForAllOthers) {
  Settings settings = Settings::defaults();
  settings.policy = "rc-rdma-od";
  settings.max_conn = 4;
  settings.eviction = "lru";
  ChannelWorld world(settings);
  world.slots.limit_connections();
  EXPECT_TRUE(world.eviction.active());
  EXPECT_TRUE(world.context.traits.connects_first);
  EXPECT_EQ(world.context.settings.max_active_rc, 4u);
  EXPECT_EQ(world.context.settings.rc_pool, 4u);
}

TEST(ConnectionSlots, NoConnectionIsEvictedUnderAPolicyThatChooses) {
  Settings settings = Settings::defaults();
  settings.max_conn = 4;
  ChannelWorld world(settings);
  world.slots.limit_connections();
  EXPECT_FALSE(world.eviction.active());
  EXPECT_LE(world.context.settings.max_active_rc, 4u);
}

TEST(ConnectionSlots, EvictsAConnectionForAPeerThatWaits) {
  OneSlot world;
  world.clock.time += 2000;  // two set-up times, as it carried nothing
  EXPECT_FALSE(world.slots.may_have_slot(world.waiter, false));
  EXPECT_TRUE(world.slots.request_slot(world.waiter));
  const auto sent = world.sent(world.holder, wire::Control::disconnect);
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].qp_id, world.holder.connection->rc->qp_id());
  EXPECT_TRUE(world.holder.connection->eviction.disconnecting);
  EXPECT_EQ(world.above.count("change_channel"), 1u);   // of the direction that we receive
  EXPECT_TRUE(world.slots.request_slot(world.waiter));  // queued once
  EXPECT_EQ(world.eviction.waiting(), 1u);
}

TEST(ConnectionSlots, LeavesAConnectionThatWasJustMade) {
  OneSlot world;
  world.clock.time += 1999;
  EXPECT_TRUE(world.slots.request_slot(world.waiter));
  EXPECT_TRUE(world.sent(world.holder, wire::Control::disconnect).empty());
  world.clock.time += 1;
  world.slots.serve_slot_waiters();
  EXPECT_EQ(world.sent(world.holder, wire::Control::disconnect).size(), 1u);
}

TEST(ConnectionSlots, ServesAWaitingRequestWhenASlotIsFree) {
  OneSlot world;
  ASSERT_TRUE(world.slots.park(world.waiter, 7));
  world.slots.serve_slot_waiters();
  EXPECT_EQ(world.above.count("take_request"), 0u);
  world.holder.rx.kind = ChannelKind::dc_sendrecv;
  world.rc.drop_rc_if_unused(world.holder);
  world.rc.count_reset_end();
  world.slots.serve_slot_waiters();
  EXPECT_EQ(world.above.count("take_request"), 1u);
  EXPECT_FALSE(world.eviction.has_waiting());
}

TEST(ConnectionSlots, AnswersARequestThatWaitedForTooLong) {
  OneSlot world;
  ASSERT_TRUE(world.slots.park(world.waiter, 7));
  world.holder.rx.state = ReceiveState::draining;  // it cannot be evicted any more
  world.clock.time += world.eviction.slot_timeout() - 1;
  world.slots.serve_slot_waiters();
  EXPECT_EQ(world.above.count("take_request"), 0u);
  world.clock.time += 1;
  world.slots.serve_slot_waiters();
  EXPECT_EQ(world.above.count("take_request"), 1u);
  EXPECT_EQ(world.eviction.report().gave_up, 1u);
}

TEST(ConnectionSlots, QueuesNoRequestThatNoEvictionCanServe) {
  OneSlot world;
  world.holder.rx.state = ReceiveState::requested;
  EXPECT_FALSE(world.slots.park(world.waiter, 7));
  EXPECT_FALSE(world.eviction.has_waiting());
  EXPECT_EQ(world.waiter.connection->eviction.parked_qp_id, 0u);
}

TEST(ConnectionSlots, IgnoresADisconnectOfAnEarlierConnection) {
  OneSlot world;
  auto message = ChannelWorld::message(wire::Control::disconnect);
  message.qp_id = 9;  // ours is connected to none
  world.slots.on_disconnect(world.holder, message);
  EXPECT_FALSE(world.holder.connection->eviction.disconnecting);
  message.qp_id = world.holder.connection->rc->connected_to();
  world.slots.on_disconnect(world.holder, message);
  EXPECT_TRUE(world.holder.connection->eviction.disconnecting);
  EXPECT_EQ(world.eviction.report().tear_downs_by_peers, 1u);
}

}  // namespace
}  // namespace turnout
