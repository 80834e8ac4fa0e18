// SPDX-License-Identifier: BSD-3-Clause
#include "core/channels/ring_pool.h"

#include <gtest/gtest.h>

#include "tests/support/channel_world.h"

namespace turnout {
namespace {

struct RingWorld : ChannelWorld {
  RingWorld() { context.traits.uses_feedback = context.traits.prepares = true; }

  // The first job registers nothing: no adapter is there.
  Peer* end_first(Status status = {}) {
    auto& job = static_cast<RingJob&>(jobs->first());
    job.status = std::move(status);
    if (job.status.ok()) job.ring = std::make_unique<RingReceiver>();
    jobs->end_first(job.status);
    const std::unique_ptr<SetupJob> ended = rc.finished_job();
    return ring_pool.end_job(static_cast<RingJob&>(*ended));
  }
  [[nodiscard]] std::size_t rings_held() const {
    std::size_t rings = 0;
    for (const auto& job : jobs->held) rings += dynamic_cast<RingJob*>(job.get()) != nullptr;
    return rings;
  }
};

TEST(RingPool, MakesTheRingInTheBackgroundAndGivesItToWhoAskedFirst) {
  RingWorld world;
  Peer& first = world.add_peer();
  Peer& second = world.add_peer();
  for (Peer* peer : {&first, &second}) {
    ASSERT_TRUE(world.ring_pool.want_ring(*peer).ok());
    peer->rx.state = ReceiveState::preparing;
    EXPECT_EQ(peer->state->rx.ring, nullptr);
  }
  EXPECT_EQ(world.end_first(), &first);
  EXPECT_NE(first.state->rx.ring, nullptr);
  EXPECT_EQ(second.state->rx.ring, nullptr);
  EXPECT_EQ(world.end_first(), &second);
}

TEST(RingPool, KeepsSomeForTheNextPeers) {
  RingWorld world;
  Peer& peer = world.add_peer();
  ASSERT_TRUE(world.ring_pool.want_ring(peer).ok());
  peer.rx.state = ReceiveState::preparing;
  EXPECT_GT(world.rings_held(), 1u);
  EXPECT_EQ(world.end_first(), &peer);
  EXPECT_EQ(world.end_first(), nullptr);
  EXPECT_EQ(world.resources.spare_rings.size(), 1u);
}

TEST(RingPool, MakesNoneBeforehandWithLittleMemory) {
  RingWorld world;
  Peer& peer = world.add_peer();
  const std::uint64_t ring = world.peer_table.ring_shape().bytes();
  const std::uint64_t room = world.peer_table.room_for_channels();
  ASSERT_GT(room, 2 * ring);
  ASSERT_TRUE(world.context.account.reserve(MemoryKind::rings, room - 2 * ring));
  ASSERT_TRUE(world.ring_pool.want_ring(peer).ok());
  EXPECT_EQ(world.rings_held(), 1u);
  world.context.account.release(MemoryKind::rings, room - 2 * ring);
}

TEST(RingPool, OneThatFailedLeavesItsPeerWithout) {
  RingWorld world;
  Peer& peer = world.add_peer();
  ASSERT_TRUE(world.ring_pool.want_ring(peer).ok());
  peer.rx.state = ReceiveState::preparing;
  EXPECT_EQ(world.end_first(Status{Code::system, "no"}), &peer);
  EXPECT_EQ(peer.state->rx.ring, nullptr);
}

TEST(RingPool, APeerThatWasLostMeanwhileGetsNone) {
  RingWorld world;
  Peer& lost = world.add_peer();
  ASSERT_TRUE(world.ring_pool.want_ring(lost).ok());
  lost.rx.state = ReceiveState::preparing;
  lost.lost = true;
  EXPECT_EQ(world.end_first(), nullptr);
  EXPECT_EQ(lost.state->rx.ring, nullptr);
  EXPECT_EQ(world.resources.spare_rings.size(), 1u);
}

TEST(RingPool, PoliciesOfPapersMakeThemAtOnceAndKeepNone) {
  RingWorld world;
  world.context.traits.uses_feedback = world.context.traits.prepares = false;
  world.ring_pool.put_away(std::make_unique<RingReceiver>());
  EXPECT_TRUE(world.resources.spare_rings.empty());
  EXPECT_TRUE(world.jobs->held.empty());
}

}  // namespace
}  // namespace turnout
