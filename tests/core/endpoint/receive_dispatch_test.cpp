// SPDX-License-Identifier: BSD-3-Clause
#include "core/endpoint/receive_dispatch.h"

#include <gtest/gtest.h>

#include "tests/support/parts_world.h"

namespace turnout {
namespace {

struct DispatchWorld : PartsWorld {
  DispatchWorld() { make_queues(); }
  [[nodiscard]] wire::WireupRequest request(std::uint64_t id) {
    wire::WireupRequest made;
    made.index = 3;
    made.address.counts = 1 | 1 << 4 | 1 << 6;
    made.address.set_sizes(kBytes, 4, false);
    made.address.id = id;
    made.address.seal();
    return made;
  }
  // One that has one credit left, and a message that gives it five.
  Peer& add_peer_in_need() {
    Peer& peer = add_peer();
    peer.tx.credits = 1;
    return peer;
  }
  const wire::ControlMessage five{.type = wire::Control::credit, .credits = 5};
  ReceiveDispatch dispatch{*this};
};

TEST(ReceiveDispatch, AWireUpRequestMakesAPeerAndIsRepliedTo) {
  DispatchWorld world;
  PeerId id = kAnyPeer;
  EXPECT_TRUE(world.dispatch.on_wireup_request(world.request(55), &id));
  ASSERT_EQ(id, 0u);
  const Peer& peer = *world.peer_table.find_peer(id);
  EXPECT_EQ(peer.address.id, 55u);
  EXPECT_EQ(peer.remote_index, 3u);
  ASSERT_EQ(world.queue(Purpose::credit).posted.size(), 1u);
  const wire::ControlMessage reply = PartsWorld::control_in(world.queue(Purpose::credit).posted[0]);
  EXPECT_EQ(reply.type, wire::Control::wireup_reply);
  EXPECT_EQ(reply.own_index, id);
  EXPECT_TRUE(world.dispatch.on_wireup_request(world.request(55), &id));
  EXPECT_EQ(world.peer_table.peers().size(), 1u) << "the same peer";
}

TEST(ReceiveDispatch, AWireUpRequestWithADamagedAddressMakesNoPeer) {
  DispatchWorld world;
  wire::WireupRequest request = world.request(55);
  request.address.id = 56;  // the checksum is of 55
  PeerId id = 0;
  EXPECT_TRUE(world.dispatch.on_wireup_request(request, &id));
  EXPECT_EQ(id, kAnyPeer);
  EXPECT_EQ(world.peer_table.peers().size(), 0u);
}

TEST(ReceiveDispatch, APeerThatCannotHaveARecordIsRejected) {
  DispatchWorld world;
  wire::WireupRequest request = world.request(55);
  request.address.set_sizes(PartsWorld::kBytes, 4, true);  // UD there, DC here
  request.address.seal();
  PeerId id = 0;
  EXPECT_TRUE(world.dispatch.on_wireup_request(request, &id));
  EXPECT_EQ(id, kAnyPeer);
  ASSERT_EQ(world.queue(Purpose::credit).posted.size(), 1u);
  EXPECT_EQ(PartsWorld::control_in(world.queue(Purpose::credit).posted[0]).type,
            wire::Control::reject);
}

TEST(ReceiveDispatch, AControlMessageReachesThePeerThatItNames) {
  DispatchWorld world;
  Peer& peer = world.add_peer_in_need();
  world.arrive(peer, world.five);
  wire::ControlMessage shutdown;
  shutdown.type = wire::Control::shutdown;
  world.arrive(peer, shutdown);
  EXPECT_TRUE(world.dispatch.poll_receive_queue());
  EXPECT_EQ(peer.tx.credits, 6u);
  EXPECT_TRUE(peer.shut_down);
  EXPECT_TRUE(peer.heard_since_tick);
  EXPECT_EQ(world.resources.to_post_control.size(), 2u) << "both receives are posted again";
  EXPECT_FALSE(world.dispatch.poll_receive_queue());
}

TEST(ReceiveDispatch, DamagedOnesAndThoseOfStrangersAreDropped) {
  DispatchWorld world;
  Peer& peer = world.add_peer_in_need();
  world.arrive(peer, world.five, sizeof world.five - 1);
  Peer stranger;
  stranger.id = 9;
  stranger.address.id = 77;
  world.arrive(stranger, world.five);
  peer.lost = true;
  world.arrive(peer, world.five);
  EXPECT_TRUE(world.dispatch.poll_receive_queue());
  EXPECT_EQ(peer.tx.credits, 1u);
  EXPECT_EQ(world.resources.to_post_control.size(), 3u);
}

TEST(ReceiveDispatch, AReceiveThatFailedIsPostedAgain) {
  DispatchWorld world;
  const std::size_t before = world.resources.to_post.size();
  PartsWorld::complete(2, IBV_WC_LOC_LEN_ERR);
  PartsWorld::complete(3 | kControlReceive, IBV_WC_WR_FLUSH_ERR);
  EXPECT_TRUE(world.dispatch.poll_receive_queue());
  ASSERT_EQ(world.resources.to_post.size(), before + 1);
  EXPECT_EQ(world.resources.to_post.back(), 2u);
  EXPECT_EQ(world.resources.to_post_control, std::vector<std::uint32_t>{3});
}

}  // namespace
}  // namespace turnout
