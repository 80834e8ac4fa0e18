// SPDX-License-Identifier: BSD-3-Clause
#include "core/channels/data_paths.h"

#include <gtest/gtest.h>

#include "tests/support/channel_world.h"

namespace turnout {
namespace {

// Without DC, where large messages need a connection.
struct DatagramWorld : ChannelWorld {
  DatagramWorld() {
    context.default_channel = ChannelKind::ud_sendrecv;
    context.traits.first_message = ChannelKind::rc_rdma;
  }
  Peer& add_peer() {
    Peer& peer = ChannelWorld::add_peer();
    peer.state.make().rx.ring = std::make_unique<RingReceiver>();  // no adapter makes one
    return peer;
  }
};

TEST(DataPaths, DcNeedsNoConnection) {
  ChannelWorld world;
  Peer& peer = world.add_peer();
  EXPECT_EQ(world.data_paths.data_path(peer), DataPath::dc);
  peer.connect().recovery = std::make_unique<Recovery>();
  EXPECT_EQ(world.data_paths.data_path(peer), DataPath::wait);
}

TEST(DataPaths, APolicyThatNeverConnectsSendsFragments) {
  DatagramWorld world;
  world.context.traits.never_connects = true;
  EXPECT_EQ(world.data_paths.data_path(world.add_peer()), DataPath::fragments);
  EXPECT_TRUE(world.jobs->held.empty());
}

TEST(DataPaths, ALargeMessageAsksForAConnectionOnceAndWaits) {
  DatagramWorld world;
  Peer& peer = world.add_peer();
  EXPECT_EQ(world.data_paths.data_path(peer), DataPath::wait);
  EXPECT_EQ(world.data_paths.data_path(peer), DataPath::wait);
  EXPECT_EQ(world.jobs->held.size(), 1u);
  EXPECT_EQ(world.context.decisions.kept().size(), 1u);
  EXPECT_EQ(peer.change->wanted, ChannelKind::rc_rdma);
}

TEST(DataPaths, AConnectionCarriesTheDataUntilItIsEvicted) {
  DatagramWorld world;
  Peer& peer = world.add_peer();
  world.make_rc(peer);
  peer.rx.kind = ChannelKind::rc_rdma;
  EXPECT_EQ(world.data_paths.data_path(peer), DataPath::rc);
  peer.connect().eviction.disconnecting = true;
  EXPECT_EQ(world.data_paths.data_path(peer), DataPath::fragments);
  peer.connect().eviction.disconnecting = false;
  peer.lost = true;
  EXPECT_EQ(world.data_paths.data_path(peer), DataPath::wait);
}

TEST(DataPaths, SendsFragmentsWhileAPeerRefuses) {
  DatagramWorld world;
  Peer& peer = world.add_peer();
  peer.change.make().refused_until = 100;
  world.clock.time = 99;
  EXPECT_EQ(world.data_paths.data_path(peer), DataPath::fragments);
  EXPECT_TRUE(world.jobs->held.empty());
  world.clock.time = 100;
  EXPECT_EQ(world.data_paths.data_path(peer), DataPath::wait);
  EXPECT_EQ(world.jobs->held.size(), 1u);
}

TEST(DataPaths, SendsFragmentsBeyondTheLimitOfConnections) {
  DatagramWorld world;
  world.context.settings.max_active_rc = 1;
  world.make_rc(world.add_peer());
  EXPECT_EQ(world.data_paths.data_path(world.add_peer()), DataPath::fragments);
  EXPECT_TRUE(world.context.decisions.kept().empty());
}

TEST(DataPaths, SendsFragmentsWhileItWaitsForASlot) {
  for (const bool waits : {false, true}) {
    DatagramWorld world;
    world.limit_connections(1);
    world.context.traits.waits_for_connections = waits;
    world.make_rc(world.add_peer());
    Peer& peer = world.add_peer();
    const DataPath path = waits ? DataPath::wait : DataPath::fragments;
    EXPECT_EQ(world.data_paths.data_path(peer), path);
    EXPECT_TRUE(peer.connection->eviction.waits_for_slot);
    EXPECT_EQ(world.data_paths.data_path(peer), path);
    EXPECT_EQ(world.eviction.waiting(), 1u);
  }
}

TEST(DataPaths, AOneSidedOperationCountsAsAUse) {
  ChannelWorld world;
  world.limit_connections(1);
  world.context.traits.first_message = ChannelKind::rc_srq;
  Peer& peer = world.add_peer();
  world.data_paths.use_one_sided(peer);
  EXPECT_EQ(peer.connection->eviction.count, 1u);
  EXPECT_EQ(peer.rx.state, ReceiveState::preparing);
}

}  // namespace
}  // namespace turnout
