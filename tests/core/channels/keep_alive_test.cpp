// SPDX-License-Identifier: BSD-3-Clause
#include "core/channels/keep_alive.h"

#include <gtest/gtest.h>

#include "tests/support/channel_world.h"

namespace turnout {
namespace {

// Peers from which a message is expected, silent for as long as the setting allows.
struct SilentPeers : ChannelWorld {
  explicit SilentPeers(int count) {
    for (int i = 0; i < count; ++i) add_peer().rx.directed_receives = 1;
    clock.time = context.settings.keepalive;
  }
  Peer& peer(std::size_t i) { return peers.peers()[i]; }
  std::size_t run() {
    keep_alive.keep_alive(clock.time);
    std::size_t probes = 0;
    for (Peer& one : peers.peers()) probes += one.probes;
    return probes;
  }
};

TEST(KeepAlive, ProbesSoManyPeersARound) {
  SilentPeers world(20);
  EXPECT_EQ(world.run(), 16u);
  EXPECT_EQ(world.run(), 20u);  // the others
  EXPECT_EQ(world.run(), 20u);  // each has one in flight
  for (Peer& peer : world.peers.peers()) EXPECT_EQ(peer.probes, 1u);
}

TEST(KeepAlive, AProbeIsAnEmptyWriteToThePeer) {
  SilentPeers world(1);
  ASSERT_EQ(world.run(), 1u);
  const auto& queue = static_cast<RecordedQueue&>(*world.resources.pool(Purpose::credit)[0]);
  ASSERT_EQ(queue.posted.size(), 1u);
  EXPECT_EQ(queue.posted[0].kind, SendRecord::Kind::probe);
  EXPECT_EQ(queue.posted[0].opcode, IBV_WR_RDMA_WRITE);
  EXPECT_EQ(queue.posted[0].length, 0u);
  EXPECT_EQ(queue.posted[0].dc_key, world.peer(0).address.id);
}

TEST(KeepAlive, ProbesOnlySilentPeersThatItExpectsSomethingFrom) {
  SilentPeers world(3);
  world.peer(0).heard_since_tick = true;
  world.peer(1).rx.directed_receives = 0;
  EXPECT_EQ(world.run(), 1u);
  EXPECT_EQ(world.peer(2).probes, 1u);
  EXPECT_EQ(world.peer(0).heard, world.clock.time);
  // An idle connection keeps its slot only while the peer lives.
  world.peer(1).connect().xrc = std::make_unique<PeerXrc>();
  EXPECT_EQ(world.run(), 2u);
  EXPECT_EQ(world.peer(1).probes, 1u);
}

TEST(KeepAlive, APeerThatCannotBeProbedIsLost) {
  SilentPeers world(1);
  static_cast<RecordedQueue&>(*world.resources.pool(Purpose::credit)[0]).result = {Code::system,
                                                                                   "broken"};
  EXPECT_EQ(world.run(), 0u);
  ASSERT_EQ(world.above.count("lose_peer"), 1u);
  EXPECT_EQ(world.above.events.back().peer, &world.peer(0));
  EXPECT_EQ(world.above.loss.code(), Code::system);
}

TEST(KeepAlive, APeerThatClosedIsLostWhenItsMessagesHaveArrived) {
  SilentPeers world(1);
  Peer& peer = world.peer(0);
  peer.shut_down = true;
  peer.change.make().last_old = 4;
  peer.rx.sequence = 4;
  world.run();
  EXPECT_EQ(world.above.count("lose_peer"), 0u);
  peer.rx.sequence = 5;
  world.run();
  EXPECT_EQ(world.above.count("lose_peer"), 1u);
  EXPECT_EQ(world.above.loss.code(), Code::peer_lost);
}

TEST(KeepAlive, TellsALostPeerAgainWhatCouldNotBeSent) {
  SilentPeers world(2);
  for (std::size_t i = 0; i < 2; ++i) world.peer(i).lost = true;
  world.peer(1).state.make().loss_unreported = true;
  EXPECT_EQ(world.run(), 0u);
  ASSERT_EQ(world.above.count("reject"), 1u);
  EXPECT_EQ(world.above.events.back().peer, &world.peer(1));
}

TEST(KeepAlive, ReturnsCreditsThatWereTooFewForAMessage) {
  SilentPeers world(1);
  world.peer(0).rx.grant.unreported = 2;
  world.run();
  const auto sent = world.sent(world.peer(0), wire::Control::credit);
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].credits, 2u);
}

}  // namespace
}  // namespace turnout
