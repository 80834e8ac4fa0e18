// SPDX-License-Identifier: BSD-3-Clause
#include "core/endpoint/peer_loss.h"

#include <gtest/gtest.h>

#include "tests/support/parts_world.h"

namespace turnout {
namespace {

struct PeerLossWorld : PartsWorld {
  PeerLossWorld() { make_queues(); }
  RecvOperation& post_receive(PeerId from) {
    RecvOperation& receive = *records.receives.take();
    receive.match.peer = from;
    receive.match.tagged = receive.posted = true;
    receive.report = report();
    records.matcher.post(&receive);
    if (Peer* const peer = peer_table.find_peer(from)) ++peer->rx.directed_receives;
    return receive;
  }
  PeerLoss loss{*this};
};

TEST(PeerLoss, EndsWhatWaitsForThePeerAndNothingElse) {
  PeerLossWorld world;
  Peer& peer = world.add_peer();
  Peer& other = world.add_peer();
  world.post_receive(peer.id);
  world.post_receive(other.id);
  world.post_receive(kAnyPeer);
  SendOperation& send = *world.records.sends.take();
  send.peer = &peer;
  send.report = world.report();
  world.operations.backlog.enqueue(send);
  world.loss.lose_peer(peer, Status{Code::peer_lost, "gone"});
  EXPECT_TRUE(peer.lost);
  EXPECT_EQ(peer.state->loss.code(), Code::peer_lost);
  EXPECT_EQ(peer.state->loss.sys_errno(), EHOSTDOWN);
  EXPECT_TRUE(peer.state->tx.backlog.empty());
  EXPECT_EQ(peer.rx.directed_receives, 0u);
  EXPECT_TRUE(peer.rx.grant.closed);
  int errors = 0;
  for (; world.completions.has_error(); ++errors) {
    EXPECT_EQ(world.completions.pop_error().status.code(), Code::peer_lost);
  }
  EXPECT_EQ(errors, 2);  // the receive from it, and the send to it
  EXPECT_EQ(other.rx.directed_receives, 1u);
  EXPECT_FALSE(other.lost);
}

TEST(PeerLoss, TellsThePeerOfALocalReasonOnly) {
  PeerLossWorld world;
  Peer& silent = world.add_peer();
  Peer& greedy = world.add_peer();
  world.loss.lose_peer(silent, Status{Code::peer_lost, "does not respond"});
  EXPECT_TRUE(world.queue(Purpose::credit).posted.empty());
  world.loss.lose_peer(greedy, Status{Code::over_budget, "its messages fill the budget"});
  ASSERT_EQ(world.queue(Purpose::credit).posted.size(), 1u);
  const wire::ControlMessage told = PartsWorld::control_in(world.queue(Purpose::credit).posted[0]);
  EXPECT_EQ(told.type, wire::Control::reject);
  EXPECT_EQ(told.status, static_cast<std::uint32_t>(Code::over_budget));
  EXPECT_FALSE(greedy.state->loss_unreported);
  world.loss.lose_peer(greedy, Status{Code::over_budget, "again"});
  EXPECT_EQ(world.queue(Purpose::credit).posted.size(), 1u) << "a peer is lost once";
}

TEST(PeerLoss, APeerThatWaitsForAConnectionSlotLeavesTheQueue) {
  PeerLossWorld world;
  world.eviction.configure(VictimOrder::lru, 1);
  Peer& peer = world.add_peer();
  ASSERT_TRUE(world.eviction.wait(peer.connect().eviction, 1));
  world.loss.lose_peer(peer, Status{Code::peer_lost, "gone"});
  EXPECT_FALSE(world.eviction.has_waiting());
}

}  // namespace
}  // namespace turnout
