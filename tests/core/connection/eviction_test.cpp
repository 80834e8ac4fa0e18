// SPDX-License-Identifier: BSD-3-Clause
#include "core/connection/eviction.h"

#include <gtest/gtest.h>

#include <vector>

namespace turnout {
namespace {

constexpr Nanoseconds kSetUp = 1000;

class Eviction : public testing::Test {
 protected:
  Eviction() : peers_(8) {
    eviction_.configure(VictimOrder::lru, 4);
    eviction_.set_setup_time(kSetUp);
    for (std::uint32_t i = 0; i < peers_.size(); ++i) peers_[i].peer = i;
  }
  void connect(std::uint32_t peer, Nanoseconds now) {
    eviction_.made(peers_[peer], now);
    eviction_.touch(peers_[peer], true);
  }
  PeerEviction* choose(Nanoseconds now) {
    return eviction_.choose(now, [](const PeerEviction& peer) { return !peer.disconnecting; });
  }
  ConnectionEviction eviction_;
  std::vector<PeerEviction> peers_;
};

TEST_F(Eviction, IsOffUntilAnOrderIsGiven) {
  ConnectionEviction none;
  EXPECT_FALSE(none.active());
  PeerEviction peer;
  none.made(peer, 5);
  EXPECT_EQ(none.report().made, 1u) << "connections are counted all the same";
  EXPECT_FALSE(peer.connected());
  EXPECT_TRUE(eviction_.active());
}

TEST_F(Eviction, TheLeastRecentlyUsedGoes) {
  for (std::uint32_t i = 0; i < 4; ++i) connect(i, 0);
  eviction_.touch(peers_[0], true);
  ASSERT_EQ(choose(10 * kSetUp), &peers_[1]);
  eviction_.begin_disconnect(peers_[1], true, 10 * kSetUp);
  EXPECT_EQ(choose(10 * kSetUp), &peers_[2]);
  EXPECT_EQ(eviction_.gone(peers_[1]), 10 * kSetUp);
  eviction_.freed(10 * kSetUp, 12 * kSetUp);
  EXPECT_EQ(eviction_.report().tear_downs, 1u);
  EXPECT_EQ(eviction_.report().freed, 1u);
  EXPECT_EQ(eviction_.report().time_most, 2u * kSetUp);
}

TEST_F(Eviction, NoneGoesSoonerThanASetUpTime) {
  connect(0, 0);
  eviction_.made(peers_[1], 0);  // carries nothing
  EXPECT_EQ(choose(kSetUp - 1), nullptr);
  EXPECT_EQ(choose(kSetUp), &peers_[0]) << "the other gets twice that time";
  eviction_.begin_disconnect(peers_[0], true, kSetUp);
  EXPECT_EQ(choose(kSetUp), nullptr);
  EXPECT_EQ(choose(2 * kSetUp), &peers_[1]);
}

TEST_F(Eviction, NoMoreWaitThanThereAreSlots) {
  EXPECT_EQ(eviction_.next_service(), INT64_MAX);
  for (std::uint32_t i = 0; i < 4; ++i) EXPECT_TRUE(eviction_.wait(peers_[i], 100));
  EXPECT_FALSE(eviction_.wait(peers_[4], 100));
  EXPECT_FALSE(peers_[4].waits_for_slot);
  EXPECT_EQ(eviction_.waiting(), 4u);
  EXPECT_EQ(eviction_.next_service(), 100 + kSetUp / 4);
  EXPECT_EQ(eviction_.first_waiting(), &peers_[0]);
  eviction_.stop_waiting(peers_[0]);
  EXPECT_EQ(eviction_.first_waiting(), &peers_[1]);
  EXPECT_TRUE(eviction_.wait(peers_[4], 200));
  EXPECT_FALSE(eviction_.is_late(peers_[4], 200 + 8 * kSetUp - 1));
  EXPECT_TRUE(eviction_.is_late(peers_[4], 200 + 8 * kSetUp));
  for (std::uint32_t i = 1; i < 5; ++i) eviction_.stop_waiting(peers_[i]);
  eviction_.served(300);
  EXPECT_EQ(eviction_.next_service(), INT64_MAX);
}

// A request of the peer's waits only if a slot will be free for it.
TEST_F(Eviction, ARequestIsParkedOnlyForASlotThatComes) {
  const auto none = [](const PeerEviction&) { return false; };
  const auto all = [](const PeerEviction& peer) { return !peer.disconnecting; };
  EXPECT_FALSE(eviction_.can_park(peers_[7], 0, 0, all)) << "nothing is connected";
  EXPECT_TRUE(eviction_.can_park(peers_[7], 1, 0, all)) << "one queue pair becomes free";
  connect(0, 0);
  EXPECT_FALSE(eviction_.can_park(peers_[7], 0, 0, none));
  EXPECT_TRUE(eviction_.can_park(peers_[7], 0, 0, all));
  ASSERT_TRUE(eviction_.wait(peers_[1], 0));
  EXPECT_FALSE(eviction_.can_park(peers_[7], 0, 0, all)) << "it is for the one in line";
  EXPECT_TRUE(eviction_.can_park(peers_[1], 0, 0, all)) << "which is itself";
}

TEST_F(Eviction, WhatIsLeavingCountsUntilItTakesTooLong) {
  connect(0, 0);
  eviction_.begin_disconnect(peers_[0], false, 100);
  EXPECT_EQ(eviction_.report().tear_downs_by_peers, 1u);
  EXPECT_EQ(eviction_.slots_coming(2, 100), 3u);
  EXPECT_EQ(eviction_.slots_coming(2, 100 + eviction_.slot_timeout()), 2u);
  EXPECT_EQ(eviction_.gone(peers_[0]), 0) << "it was not ours to choose";
}

}  // namespace
}  // namespace turnout
