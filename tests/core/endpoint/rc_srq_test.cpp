// SPDX-License-Identifier: BSD-3-Clause
// Messages over the pair's RC queue pair into the shared receive queue until a ring comes: the
// policy `ardma-srq` of the second paper (what `srq` does: rc_designs_test.cpp).
#include <gtest/gtest.h>

#include <vector>

#include "tests/core/endpoint/two_way_traffic.h"

namespace turnout {
namespace {

class RcSrq : public TwoWayTraffic {};

TEST_F(RcSrq, GetsARingAfterTheThresholdUnderArdmaSrq) {
  TestWorld world(2, {{"policy", "ardma-srq"}, {"ring_threshold", "30"}});
  swap_every_size(world, 20);
  for (std::size_t i = 0; i < 2; ++i) {
    const std::vector<ChannelSpan> spans = world[i].report().peers[0].receive.spans;
    ASSERT_EQ(spans.size(), 3u);
    EXPECT_EQ(spans[0].channel, ChannelKind::dc_sendrecv);
    EXPECT_EQ(spans[1].channel, ChannelKind::rc_srq);
    EXPECT_GE(spans[1].messages, 30u);
    EXPECT_LE(spans[1].messages, 40u);
    EXPECT_EQ(spans[2].channel, ChannelKind::rc_rdma);
    EXPECT_EQ(world[i].report().rc_queue_pairs_peak, 1u);
  }
}

// A silent peer has no ring, so it costs none.
TEST_F(RcSrq, OnlyFrequentPeersGetARing) {
  TestWorld world(3, {{"policy", "ardma-srq"}, {"ring_threshold", "10"}});
  std::vector<std::byte> out = pattern(8, 1), in(8);
  const iovec from = piece(out), to = piece(in);
  for (std::size_t source = 1; source <= 2; ++source) {
    const int count = source == 1 ? 40 : 5;
    for (int n = 0; n < count; ++n) {
      ASSERT_TRUE(
          world[source]
              .send(tagged_send(world.peer(source, 0), from, 1, world.report(source, nullptr)))
              .ok());
      ASSERT_TRUE(world[0].recv(tagged_recv(kAnyPeer, to, 1, world.report(0, nullptr))).ok());
      ASSERT_TRUE(world.until([&] { return world.queue(0).size() == 1; }));
      take(world.queue(0));
    }
  }
  world.progress_all(100);
  std::size_t rings = 0;
  for (const PeerReport& peer : world[0].report().peers) {
    if (peer.receive.spans.back().channel == ChannelKind::rc_rdma) ++rings;
  }
  EXPECT_EQ(rings, 1u);
}

}  // namespace
}  // namespace turnout
