// SPDX-License-Identifier: BSD-3-Clause
// What an endpoint accounts for its queue pairs when nobody injects their size: mlx5's rules.
#include <gtest/gtest.h>

#include <cstddef>
#include <vector>

#include "core/memory/account.h"
#include "tests/core/endpoint/deliver.h"
#include "tests/core/endpoint/forged_messages.h"
#include "tests/support/memory_line.h"
#include "tests/support/test_world.h"

namespace turnout {
namespace {

TEST(EndpointMemory, WithoutAProcessorObjectsAreAsLargeAsTheDriverMakesThem) {
  TestWorld world(1, {{"policy", "aqps"}});
  const EndpointReport report = world[0].report();
  EXPECT_EQ(memory_line(report, MemoryKind::queue_pairs).now,
            8 * (queue_pair_bytes(QpService::dci, 128, 2, 0) +
                 queue_pair_bytes(QpService::dct, 0, 0, 0)));
  // 512 receives; 128 requests each of 8 initiators, 128 pooled and 26 active queue pairs.
  EXPECT_EQ(memory_line(report, MemoryKind::queues).now,
            512u * (64 + 32) + 64u * 128 * (8 + 128 + 26));
}

TEST(EndpointMemory, ANodesBudgetIsSharedByItsProcesses) {
  const auto budget = [](const Overrides& overrides) {
    return TestWorld(1, overrides)[0].report().budget;
  };
  EXPECT_EQ(budget({{"node_budget", "1GiB"}}), std::uint64_t{1} << 30);
  EXPECT_EQ(budget({{"node_budget", "1GiB"}, {"node_processes", "16"}}), 64u << 20);
  EXPECT_EQ(budget({{"node_budget", "1GiB"}, {"node_processes", "4"}, {"memory_budget", "32MiB"}}),
            32u << 20);
  EXPECT_EQ(budget({{"node_budget", "1GiB"}, {"node_processes", "4"}, {"memory_budget", "1GiB"}}),
            256u << 20);
  EXPECT_EQ(budget({{"node_processes", "4"}}), 256u << 20);
}

// All that a program has of a peer that it exchanged a few messages with.
TEST(EndpointMemory, APeerOnTheDefaultTransportHasNoParts) {
  TestWorld world(2, {{"policy", "turnout"}});
  std::vector<std::byte> out(8, std::byte{1}), in(8);
  for (int n = 0; n < 3; ++n) {
    ASSERT_TRUE(deliver(world, 0, 1, out, in, kAnyPeer));
    ASSERT_TRUE(deliver(world, 1, 0, out, in, kAnyPeer));
    world.clock().advance(200'000'000);  // an interval
    world.progress_all(50);
  }
  for (std::size_t at = 0; at < 2; ++at) {
    const Peer& peer = *ForgedMessages::peer_of(world, at, 1 - at);
    EXPECT_FALSE(peer.state.made());
    EXPECT_FALSE(peer.change.made());
    EXPECT_FALSE(peer.connection.made());
  }
}

}  // namespace
}  // namespace turnout
