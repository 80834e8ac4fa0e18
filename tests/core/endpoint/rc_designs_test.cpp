// SPDX-License-Identifier: BSD-3-Clause
// Messages over the pair's RC queue pair into receives, the shared ones or its own: what both of
// the second paper's designs promise (policies `srq` and `ardma-sr`).
#include <gtest/gtest.h>

#include <string_view>
#include <vector>

#include "tests/core/endpoint/two_way_traffic.h"
#include "tests/support/memory_line.h"

namespace turnout {
namespace {

class RcDesigns : public TwoWayTraffic, public testing::WithParamInterface<std::string_view> {
 protected:
  static Overrides with(Overrides more) {
    more.emplace_back("policy", GetParam());
    return more;
  }
  static bool has_private_receives() { return GetParam() == "ardma-sr"; }
  static ChannelKind channel() {
    return has_private_receives() ? ChannelKind::rc_sr : ChannelKind::rc_srq;
  }
};

TEST_P(RcDesigns, CarryMessagesOfEverySizeBothWays) {
  TestWorld world(2, with({{"ring_threshold", "1000"}}));
  swap_every_size(world, 20);
  for (std::size_t i = 0; i < 2; ++i) {
    const EndpointReport report = world[i].report();
    for (const DirectionReport* direction : {&report.peers[0].send, &report.peers[0].receive}) {
      EXPECT_EQ(direction->spans.back().channel, channel());
      EXPECT_EQ(direction->spans.size(), 2u);
      EXPECT_GT(direction->spans.back().messages, 100u);
    }
    EXPECT_EQ(report.rc_queue_pairs_peak, 1u);
    EXPECT_EQ(memory_line(report, MemoryKind::rings).peak, 0u);
    EXPECT_EQ(report.private_receives.controls > 10, has_private_receives());
    EXPECT_EQ(report.profile->rnr_retries.value_or(0), 0u);
  }
}

TEST_P(RcDesigns, StayOnTheStartServiceWhereThereIsNoQueuePair) {
  TestWorld world(2, with({{"rc_pool", "0"}, {"max_active_rc", "0"}}));
  swap_every_size(world, 5);
  for (std::size_t i = 0; i < 2; ++i) {
    const EndpointReport report = world[i].report();
    EXPECT_EQ(report.peers[0].receive.spans.back().channel, ChannelKind::dc_sendrecv);
    EXPECT_FALSE(report.peers[0].reason.empty());
    EXPECT_EQ(report.private_receives.buffers_peak, 0u);
  }
}

// What a process has sent before it ends arrives, though its receiver looks for it much later.
TEST_P(RcDesigns, MessagesOutliveTheirSender) {
  TestWorld world(2, with({{"receive_first", "16"},
                           {"receive_buffers", "16"},
                           {"credits", "16"},
                           {"credits_first", "16"}}));
  swap_every_size(world, 5);
  for (int n = 0; n < 10; ++n) swap(world, 20000);
  EXPECT_EQ(world[0].report().private_receives.growths, has_private_receives() ? 1u : 0u);
  std::vector<std::byte> out = pattern(8, 1), in(8);
  const iovec from = piece(out), to = piece(in);
  for (std::uint64_t n = 0; n < 8; ++n) {
    ASSERT_TRUE(
        world[1].send(tagged_send(world.peer(1, 0), from, n, world.report(1, nullptr))).ok());
  }
  EXPECT_EQ(world[1].report().peers[0].send.spans.back().channel, channel());
  const PeerId source = world.peer(0, 1);
  world.close(1);
  for (std::uint64_t n = 0; n < 8; ++n) {
    ASSERT_TRUE(world[0].recv(tagged_recv(source, to, n, world.report(0, nullptr))).ok());
    ASSERT_TRUE(world.until([&] { return world.queue(0).size() == 1; }));
    EXPECT_EQ(take(world.queue(0)).tag, n);
  }
}

INSTANTIATE_TEST_SUITE_P(Core, RcDesigns, testing::Values("srq", "ardma-sr"),
                         [](const auto& info) { return info.param == "srq" ? "Srq" : "ArdmaSr"; });

}  // namespace
}  // namespace turnout
