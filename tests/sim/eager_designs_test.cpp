// SPDX-License-Identifier: BSD-3-Clause
// The memory of the second paper's designs (SC'06; claims E3 and E4): that of `srq` does not depend
// on the number of processes, and a ring for each frequent peer is all that `ardma-srq` adds; that
// of `ardma-sr` depends on the peers, and on who sends large messages (claim E2).
#include <gtest/gtest.h>

#include <algorithm>

#include "sim/runtime/simulation.h"
#include "tests/support/memory_line.h"

namespace turnout::sim {
namespace {

constexpr std::uint64_t kRing = 16 * 4096;

// Much to two neighbours, a little to everybody.
Task neighbours(Rank rank) {
  const std::uint32_t n = rank.size();
  for (int i = 0; i < 120; ++i) {
    const bool everybody = i % 60 == 0;
    for (std::uint32_t distance = 1; distance < n; ++distance) {
      if (!everybody && distance != 1 && distance != n - 1) continue;
      const Request in = co_await rank.irecv((rank.id() + n - distance) % n, 64, 1);
      const Request out = co_await rank.isend((rank.id() + distance) % n, 64, 1);
      co_await rank.wait(in);
      co_await rank.wait(out);
    }
  }
}

struct Held {
  std::uint64_t receives = 0, rings = 0;  // most of any rank
};

// Large messages to everybody, again and again.
Task all_to_all(Rank rank) {
  const std::uint32_t n = rank.size();
  for (int i = 0; i < 30; ++i) {
    for (std::uint32_t distance = 1; distance < n; ++distance) {
      const Request in = co_await rank.irecv((rank.id() + n - distance) % n, 20000, 1);
      const Request out = co_await rank.isend((rank.id() + distance) % n, 20000, 1);
      co_await rank.wait(in);
      co_await rank.wait(out);
    }
    co_await rank.compute(1000 * hca::kMicrosecond);
  }
}

Held play(const std::string& policy, std::uint32_t ranks, const Program& program) {
  Options options;
  options.ranks = ranks;
  options.keep_latencies = false;
  options.profile.wire_hop = hca::kMicrosecond;
  options.settings = {{"policy", policy}, {"max_active_rc", "64"}, {"ring_threshold", "20"}};
  auto result = run(options, program);
  EXPECT_TRUE(result.ok()) << result.status().text();
  Held held;
  if (!result.ok()) return held;
  for (const EndpointReport& report : result.value().reports) {
    held.rings = std::max(held.rings, memory_line(report, MemoryKind::rings).peak);
    held.receives = std::max(held.receives, memory_line(report, MemoryKind::receive_buffers).peak);
  }
  return held;
}

Held play_neighbours(const std::string& policy, std::uint32_t ranks) {
  return play(policy, ranks, neighbours);
}

TEST(EagerDesigns, SrqTakesNoMoreForMoreProcesses) {
  const Held few = play_neighbours("srq", 6), many = play_neighbours("srq", 40);
  EXPECT_EQ(few.rings, 0u);
  EXPECT_EQ(many.rings, 0u);
  EXPECT_EQ(many.receives, few.receives);
  // A ring for everybody does.
  EXPECT_EQ(play_neighbours("static:rc-rdma", 40).rings, 39 * kRing);
}

TEST(EagerDesigns, ArdmaSrqAddsARingForEachFrequentPeer) {
  const Held srq = play_neighbours("srq", 40), ardma = play_neighbours("ardma-srq", 40);
  EXPECT_EQ(ardma.rings, 2 * kRing);
  EXPECT_EQ(ardma.receives, srq.receives);
}

TEST(EagerDesigns, ArdmaSrHasThreeReceivesForEachPeer) {
  for (const std::uint32_t ranks : {6u, 40u}) {
    const Held srq = play_neighbours("srq", ranks), sr = play_neighbours("ardma-sr", ranks);
    EXPECT_EQ(sr.rings, 2 * kRing);
    EXPECT_EQ(sr.receives, srq.receives + std::uint64_t{3} * (ranks - 1) * 4096);
  }
}

TEST(EagerDesigns, LargeMessagesMakeItSixtyFourUnderArdmaSr) {
  for (const std::uint32_t ranks : {4u, 12u}) {
    const Held srq = play("srq", ranks, all_to_all), sr = play("ardma-sr", ranks, all_to_all);
    EXPECT_EQ(sr.rings, 0u);
    EXPECT_EQ(sr.receives, srq.receives + std::uint64_t{64} * (ranks - 1) * 4096);
  }
}

}  // namespace
}  // namespace turnout::sim
