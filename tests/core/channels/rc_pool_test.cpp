// SPDX-License-Identifier: BSD-3-Clause
#include "core/channels/rc_pool.h"

#include <gtest/gtest.h>

#include "tests/support/channel_world.h"

namespace turnout {
namespace {

TEST(RcPool, CountsQueuePairsThatAreBeingReset) {
  ChannelWorld world;
  world.context.settings.max_active_rc = world.context.settings.rc_pool = 2;
  Peer& first = world.add_peer();
  Peer& second = world.add_peer();
  Peer& third = world.add_peer();
  EXPECT_TRUE(world.rc.want_rc(first).ok());
  EXPECT_TRUE(world.rc.want_rc(second).ok());
  EXPECT_EQ(world.rc.want_rc(third).code(), Code::again);
  world.rc.discard_rc(first);  // its job still has the queue pair
  EXPECT_EQ(world.rc.active_rc(), 1u);
  EXPECT_FALSE(world.rc.may_make_rc());
  EXPECT_EQ(world.rc.want_rc(third).code(), Code::again);
  world.rc.count_reset_end();
  EXPECT_TRUE(world.rc.may_make_rc());
  EXPECT_TRUE(world.rc.want_rc(third).ok());
  EXPECT_EQ(world.jobs->held.size(), 3u);
}

TEST(RcPool, GivesAPooledQueuePairBeforeItMakesOne) {
  ChannelWorld world;
  world.add_pooled_rc();
  Peer& peer = world.add_peer();
  EXPECT_TRUE(world.rc.want_rc(peer).ok());
  EXPECT_TRUE(peer.connection->rc);
  EXPECT_EQ(world.rc.active_rc(), 1u);
  EXPECT_TRUE(world.jobs->held.empty());
}

TEST(RcPool, AQueuePairLeavesNoCreditsBehind) {
  ChannelWorld world;
  Peer& peer = world.add_peer();
  RcQueue& rc = world.make_rc(peer);
  alignas(64) std::uint64_t word = CreditWord::value(5, 7);
  rc.credit_word = {reinterpret_cast<std::byte*>(&word), 1};
  peer.connect().credits_rkey = 3;
  RingSender& ring = peer.state.make().tx.ring;
  ring = {0x10000, 77, 16, 4096, 0, 5, {}, false};
  PeerRxState& rx = peer.state.make().rx;
  rx.ring = std::make_unique<RingReceiver>();  // no adapter makes one
  rx.ring_request = 9;
  rx.returned_ring = 24;
  ASSERT_TRUE(rc.post({.kind = SendRecord::Kind::credit, .peer = peer.id}).ok());
  world.rc.discard_rc(peer);
  EXPECT_EQ(ring.credits, 7u);
  EXPECT_EQ(peer.connection->credits_rkey, 0u);
  const auto sent = world.sent(peer, wire::Control::credit);
  ASSERT_EQ(sent.size(), 1u);  // its latest write may be lost
  EXPECT_EQ(sent[0].request, 9u);
  EXPECT_EQ(sent[0].ring_entries, 24u);
}

TEST(RcPool, APooledQueuePairHasNoCreditsOfAnotherPeer) {
  ChannelWorld world;
  world.add_pooled_rc();
  alignas(64) std::uint64_t word = CreditWord::value(1, 7);
  world.resources.rc_pool.back()->credit_word = {reinterpret_cast<std::byte*>(&word), 1};
  EXPECT_TRUE(world.rc.want_rc(world.add_peer()).ok());
  EXPECT_EQ(word, 0u);
}

TEST(RcPool, FreesPooledQueuePairsForTheBudget) {
  ChannelWorld world;
  world.add_pooled_rc();
  const std::uint64_t spare = world.peers.reserved_headroom();
  ASSERT_TRUE(
      world.context.account.reserve(MemoryKind::rings, world.context.account.available() - spare));
  EXPECT_TRUE(world.rc.reserve_rc());
  EXPECT_TRUE(world.resources.rc_pool.empty());
  EXPECT_FALSE(world.rc.reserve_rc());
  Peer& peer = world.add_peer();
  EXPECT_EQ(world.rc.want_rc(peer).code(), Code::over_budget);
}

TEST(RcPool, KeepsAsManyForReuseAsTheSettingSays) {
  ChannelWorld world;
  world.context.settings.rc_pool = 1;
  for (const auto after : {RcJob::After::pool, RcJob::After::nothing}) {
    Peer& peer = world.add_peer();
    world.make_rc(peer);
    world.rc.drop_rc_if_unused(peer);
    EXPECT_FALSE(peer.connection->has_rc());
    EXPECT_EQ(static_cast<RcJob&>(*world.jobs->held.back()).after, after);
  }
  EXPECT_EQ(world.rc.active_rc(), 0u);
  EXPECT_EQ(world.rc.resetting_rc(), 2u);
}

TEST(RcPool, KeepsAQueuePairThatADirectionUses) {
  ChannelWorld world;
  Peer& peer = world.add_peer();
  world.make_rc(peer);
  peer.tx.uses_rc = true;  // until the peer's `closed`
  world.rc.drop_rc_if_unused(peer);
  EXPECT_TRUE(peer.connection->rc);
  peer.tx.uses_rc = false;
  peer.rx.state = ReceiveState::requested;
  world.rc.drop_rc_if_unused(peer);
  EXPECT_TRUE(peer.connection->rc);
}

TEST(RcPool, WaitsTwiceAsLongAfterEachFailureInARow) {
  ChannelWorld world;
  Peer& peer = world.add_peer();
  const auto wait = [&] {
    world.rc.wait_after_failure(peer, world.clock.time);
    return peer.change->refused_until - world.clock.time;
  };
  for (int n = 0; n <= 12; ++n) EXPECT_EQ(wait(), 1000 << std::min(n, 10)) << n;
  // A connection that carried few messages does not end the row, one that carried 16 does.
  peer.rx.kind = ChannelKind::rc_rdma;
  for (int n = 0; n < 15; ++n) peer.rx.carried.count(1);
  EXPECT_EQ(wait(), 1024 * 1000);
  peer.rx.carried.count(1);
  EXPECT_EQ(wait(), 1000);
}

TEST(RcPool, TellsAPeerWhyItsRequestIsRefused) {
  ChannelWorld world;
  const Peer& peer = world.add_peer();
  EXPECT_EQ(RcPool::refusal_of(peer, {Code::over_budget, "full"}), wire::Refusal::budget);
  EXPECT_EQ(RcPool::refusal_of(peer, {Code::again, "later"}), wire::Refusal::limit);
  EXPECT_EQ(RcPool::refusal_of(peer, {Code::system, "failed"}), wire::Refusal::device);
}

}  // namespace
}  // namespace turnout
