// SPDX-License-Identifier: BSD-3-Clause
#include "core/state/peer_table.h"

#include <gtest/gtest.h>

#include "tests/support/component_world.h"

namespace turnout {
namespace {

TEST(PeerTable, FindsASenderByIndexOnlyIfTheIdAgrees) {
  ComponentWorld world;
  Peer& first = world.add_peer();
  Peer& second = world.add_peer();
  EXPECT_EQ(world.peers.find_sender(1, second.address.id), &second);
  EXPECT_EQ(world.peers.find_sender(1, first.address.id), nullptr);  // an endpoint that is gone
  EXPECT_EQ(world.peers.find_sender(7, first.address.id), nullptr);
  EXPECT_EQ(world.peers.find_peer(0), &first);
  EXPECT_EQ(world.peers.find_peer(2), nullptr);
}

TEST(PeerTable, LeavesMemoryForRecordsOfExpectedPeers) {
  ComponentWorld world;
  const std::uint64_t without = world.peers.reserved_headroom();
  world.peers.expect_peers(100);
  EXPECT_EQ(world.peers.reserved_headroom(), without + 100 * world.peers.record_bytes());
}

}  // namespace
}  // namespace turnout
