// SPDX-License-Identifier: BSD-3-Clause
// Messages over the pair's RC queue pair into its private receive queue, and the policy `ardma-sr`
// of the second paper: few receives for each peer, more for much that serves large messages, rings
// for frequent peers.
#include <gtest/gtest.h>

#include <vector>

#include "tests/core/endpoint/deliver.h"
#include "tests/core/endpoint/two_way_traffic.h"
#include "tests/support/memory_line.h"

namespace turnout {
namespace {

constexpr std::uint64_t kEntry = 4096;

Overrides sr(Overrides more = {}) {
  Overrides all = {{"policy", "ardma-sr"}};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

class RcSr : public TwoWayTraffic {};

TEST_F(RcSr, BeginsWithThreeReceivesForAPeerAndGivesItMoreForLargeMessages) {
  TestWorld world(3, sr({{"private_receive_threshold", "10"}}));
  const std::uint64_t first = receive_bytes(world[0]);
  for (int n = 0; n < 10; ++n) {
    swap(world, 8);
    swap(world, 8, 0, 2);
  }
  EXPECT_EQ(receive_bytes(world[0]), first + 6 * kEntry);
  EXPECT_EQ(world[0].report().private_receives.growths, 0u);
  for (int n = 0; n < 5; ++n) swap(world, 20000);  // one RTS and one FIN each
  swap(world, 8);
  const EndpointReport report = world[0].report();
  EXPECT_EQ(receive_bytes(world[0]), first + (64 + 3) * kEntry);
  EXPECT_EQ(report.private_receives.growths, 1u);
  EXPECT_EQ(report.private_receives.buffers_peak, 67u);
}

// The sender learns of them: so many messages may be under way.
TEST_F(RcSr, LendsWhatItHasAndNotMore) {
  TestWorld world(2, sr({{"private_receive_threshold", "4"},
                         {"private_receive_buffers", "20"},
                         {"unexpected_memory", "4KiB"},
                         {"ring_threshold", "1000"}}));
  std::vector<std::byte> out = pattern(3000, 1), in(3000);
  const iovec from = piece(out), to = piece(in);
  const auto flood = [&](std::size_t messages) {
    for (std::size_t n = 0; n < messages; ++n) {
      ASSERT_TRUE(
          world[1].send(tagged_send(world.peer(1, 0), from, 1, world.report(1, nullptr))).ok());
    }
    world.progress_all(300);
  };
  const auto drain = [&](std::size_t messages) {
    for (std::size_t n = 0; n < messages; ++n) {
      ASSERT_TRUE(
          world[0].recv(tagged_recv(world.peer(0, 1), to, 1, world.report(0, nullptr))).ok());
      ASSERT_TRUE(world.until([&] { return world.queue(0).size() == 1; }));
      EXPECT_EQ(take(world.queue(0)).length, out.size());
      EXPECT_EQ(in, out);
    }
    ASSERT_TRUE(world.until([&] { return world.queue(1).size() == messages; }));
    while (world.queue(1).size() > 0) take(world.queue(1));
  };
  swap(world, 8);
  swap(world, 8);
  flood(40);
  EXPECT_LE(world.queue(1).size(), 4u);  // one aside, two in receives
  drain(40);
  for (int n = 0; n < 4; ++n) swap(world, 20000);
  EXPECT_EQ(world[0].report().private_receives.growths, 1u);
  flood(40);
  EXPECT_GE(world.queue(1).size(), 10u);  // at most half of them were owed and not told
  EXPECT_LE(world.queue(1).size(), 21u);
  drain(40);
  EXPECT_EQ(world[1].report().profile->rnr_retries.value_or(0), 0u);
}

TEST_F(RcSr, GetsARingForMessagesAndKeepsWhatServesLargeOnesOutOfIt) {
  TestWorld world(2, sr({{"ring_threshold", "30"}, {"private_receive_threshold", "1000"}}));
  for (int n = 0; n < 50; ++n) swap(world, 20000);
  // RTS do not count: a ring would not carry them.
  EXPECT_EQ(world[0].report().peers[0].receive.spans.back().channel, ChannelKind::rc_sr);
  for (int n = 0; n < 50; ++n) swap(world, 8);
  const EndpointReport before = world[0].report();
  const std::vector<ChannelSpan> spans = before.peers[0].receive.spans;
  ASSERT_EQ(spans.size(), 3u);
  EXPECT_EQ(spans[1].channel, ChannelKind::rc_sr);
  EXPECT_EQ(spans[2].channel, ChannelKind::rc_rdma);
  for (int n = 0; n < 20; ++n) {
    swap(world, 20000);
    swap(world, 8);
  }
  // A FIN for each large message, beside the ring.
  const EndpointReport after = world[0].report();
  EXPECT_EQ(after.private_receives.controls, before.private_receives.controls + 20);
  EXPECT_EQ(after.peers[0].receive.spans.back().channel, ChannelKind::rc_rdma);
  EXPECT_EQ(after.peers[0].receive.spans.back().messages, spans[2].messages + 40);
}

// FIN of one that only receives take its private receives too.
TEST_F(RcSr, ControlTrafficAloneGetsReceives) {
  TestWorld world(2, sr({{"private_receive_threshold", "5"}}));
  std::vector<std::byte> out = pattern(20000, 3), in(20000);
  for (int n = 0; n < 20; ++n) ASSERT_TRUE(deliver(world, 1, 0, out, in, world.peer(0, 1)));
  EXPECT_EQ(world[0].report().private_receives.growths, 1u);  // RTS
  EXPECT_EQ(world[1].report().private_receives.growths, 1u);  // FIN
  EXPECT_GT(world[1].report().private_receives.controls, 10u);
}

TEST_F(RcSr, WritesForItsReceiverUnderRput) {
  TestWorld world(2, sr({{"rendezvous", "rput"}, {"private_receive_threshold", "8"}}));
  for (int n = 0; n < 30; ++n) swap(world, 20000 + static_cast<std::size_t>(n));
  // CTS and `written` of each.
  EXPECT_GT(world[0].report().private_receives.controls, 40u);
  EXPECT_EQ(world[0].report().private_receives.growths, 1u);
}

// A FIN waits for nobody's receives: here everything a source may send lies in the receiver's.
TEST_F(RcSr, LargeMessagesEndThoughEagerOnesAreHeldBack) {
  TestWorld world(2, sr({{"unexpected_memory", "4KiB"}, {"ring_threshold", "1000"}}));
  swap(world, 8);
  swap(world, 20000);
  std::vector<std::byte> small = pattern(3000, 1), large = pattern(20000, 2), in(20000);
  const iovec some = piece(small), from = piece(large), to = piece(in);
  for (int n = 0; n < 30; ++n) {
    ASSERT_TRUE(
        world[1].send(tagged_send(world.peer(1, 0), some, 9, world.report(1, nullptr))).ok());
  }
  world.progress_all(300);
  ASSERT_LT(world.queue(1).size(), 30u);
  while (world.queue(1).size() > 0) take(world.queue(1));
  for (int n = 0; n < 5; ++n) {
    ASSERT_TRUE(world[1].recv(tagged_recv(world.peer(1, 0), to, 1, world.report(1, &in))).ok());
    ASSERT_TRUE(
        world[0].send(tagged_send(world.peer(0, 1), from, 1, world.report(0, nullptr))).ok());
    ASSERT_TRUE(world.until([&] { return world.queue(0).size() == 1; })) << n;
    take(world.queue(0));
    EXPECT_EQ(in, large);
  }
}

// One queue pair, two peers: the second stays on the default transport.
TEST_F(RcSr, KeepsToTheLimitOfActiveQueuePairs) {
  TestWorld world(3, sr({{"rc_pool", "1"}, {"max_active_rc", "1"}}));
  const std::uint64_t first = receive_bytes(world[0]);
  for (int n = 0; n < 10; ++n) {
    swap(world, 8);
    swap(world, 8, 0, 2);
  }
  EXPECT_EQ(world[0].report().rc_queue_pairs_peak, 1u);
  EXPECT_EQ(receive_bytes(world[0]), first + 3 * kEntry);
}

// Growth that is refused changes nothing, and what was there goes on.
TEST_F(RcSr, GoesOnWithWhatItHasWhereTheBudgetAllowsNoMore) {
  std::uint64_t least = 0;
  const Overrides common = {{"private_receive_threshold", "3"}, {"rc_pool", "1"}};
  {
    TestWorld world(2, sr(common));
    for (int n = 0; n < 2; ++n) swap(world, 8);
    least = world[0].report().used * 8 / 7 + 100'000;
  }
  Overrides scarce = common;
  scarce.emplace_back("memory_budget", std::to_string(least));
  TestWorld world(2, sr(scarce));
  for (int n = 0; n < 20; ++n) {
    swap(world, 8);
    swap(world, 20000);
  }
  const EndpointReport report = world[0].report();
  EXPECT_EQ(report.peers[0].receive.spans.back().channel, ChannelKind::rc_sr);
  EXPECT_EQ(report.private_receives.growths, 0u);
  EXPECT_GT(report.private_receives.refused, 0u);
  EXPECT_EQ(report.private_receives.buffers_peak, 3u);
  EXPECT_LE(report.peak, report.budget);
}

// Through all kinds and back, again and again: what each life of the queue pair had is freed.
TEST_F(RcSr, LeavesNothingBehindWhenTheChannelChanges) {
  TestWorld world(2, sr({{"test_switch_every", "3"}, {"private_receive_threshold", "5"}}));
  const std::uint64_t first = receive_bytes(world[0]);
  std::uint64_t least = UINT64_MAX;
  for (int n = 0; n < 100; ++n) {
    swap(world, n % 3 == 0 ? 20000 : 100);
    world.progress_all(50);
    least = std::min(least, n > 20 ? receive_bytes(world[0]) : UINT64_MAX);
    EXPECT_LE(receive_bytes(world[0]), first + 64 * kEntry);
  }
  EXPECT_EQ(least, first);  // on the default transport, at times
  bool seen = false;
  for (const DecisionReport& decision : world[0].report().decisions) {
    seen = seen || decision.to == ChannelKind::rc_sr;
    EXPECT_NE(decision.to, ChannelKind::rc_srq);
  }
  EXPECT_TRUE(seen);
}

// The FIN of a message that a process took last arrives, though it ended.
TEST_F(RcSr, FinsOutliveTheirSender) {
  TestWorld world(2, sr({{"keepalive", "10ms"}}));
  for (int n = 0; n < 5; ++n) {
    swap(world, 8);
    swap(world, 20000);
  }
  std::vector<std::byte> out = pattern(20000, 7), in(20000);
  const iovec from = piece(out), to = piece(in);
  ASSERT_TRUE(world[1].recv(tagged_recv(world.peer(1, 0), to, 1, world.report(1, nullptr))).ok());
  ASSERT_TRUE(world[0].send(tagged_send(world.peer(0, 1), from, 1, world.report(0, nullptr))).ok());
  for (int i = 0; i < 1000 && world.queue(1).size() == 0; ++i) world[1].progress();
  ASSERT_EQ(world.queue(1).size(), 1u);
  take(world.queue(1));
  EXPECT_EQ(in, out);
  world.close(1);
  ASSERT_TRUE(world.until([&] { return world.queue(0).size() == 1; }));
  EXPECT_FALSE(world.queue(0).has_error());
}

// A peer that is gone takes its receives with it, and leaves the others'.
TEST_F(RcSr, ALostPeersReceivesAreFreed) {
  TestWorld world(3, sr({{"keepalive", "10ms"}, {"private_receive_threshold", "4"}}));
  const std::uint64_t first = receive_bytes(world[0]);
  for (int n = 0; n < 5; ++n) {
    swap(world, 8);
    swap(world, 20000);
    swap(world, 8, 0, 2);
  }
  EXPECT_EQ(receive_bytes(world[0]), first + (64 + 3) * kEntry);
  world.close(1);
  ASSERT_TRUE(world.until([&] {
    world.clock().advance(1'000'000);
    return receive_bytes(world[0]) == first + 3 * kEntry;
  }));
  for (int n = 0; n < 5; ++n) swap(world, 8, 0, 2);
}

}  // namespace
}  // namespace turnout
