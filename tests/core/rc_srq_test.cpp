// Messages over the pair's RC queue pair into the shared receive queue, and the policies of the
// second paper's designs: `srq` and `ardma-srq`.
#include <gtest/gtest.h>

#include <vector>

#include "tests/core/requests.h"
#include "tests/core/test_world.h"

namespace turnout {
namespace {

using Overrides = std::vector<std::pair<std::string, std::string>>;

// `count` messages each way of all sizes that differ on their way; content and order are checked.
void exchange(TestWorld& world, int count) {
  for (int n = 0; n < count; ++n) {
    for (const std::size_t size : {0, 8, 200, 300, 4000, 20000}) {
      std::vector<std::byte> out[2], in[2];
      iovec from[2], to[2];
      for (std::size_t i = 0; i < 2; ++i) {
        out[i] = pattern(size, static_cast<unsigned>(n) + static_cast<unsigned>(i));
        in[i].resize(size);
        from[i] = piece(out[i]);
        to[i] = piece(in[i]);
        ASSERT_TRUE(world[i]
                        .recv(tagged_recv(world.peer(i, 1 - i), to[i], 1, world.report(i, &to[i])))
                        .ok());
      }
      for (std::size_t i = 0; i < 2; ++i) {
        ASSERT_TRUE(
            world[i]
                .send(tagged_send(world.peer(i, 1 - i), from[i], 1, world.report(i, nullptr)))
                .ok());
      }
      ASSERT_TRUE(world.until([&] {
        return world.queue(0).size() == 2 && world.queue(1).size() == 2;
      })) << size;
      for (std::size_t i = 0; i < 2; ++i) {
        take(world.queue(i));
        take(world.queue(i));
        EXPECT_EQ(in[i], out[1 - i]) << size;
      }
    }
  }
}

TEST(RcSrq, CarriesMessagesOfEverySizeBothWays) {
  TestWorld world(2, {{"policy", "srq"}});
  exchange(world, 20);
  for (std::size_t i = 0; i < 2; ++i) {
    const EndpointReport report = world[i].report();
    for (const DirectionReport* direction : {&report.peers[0].send, &report.peers[0].receive}) {
      EXPECT_EQ(direction->spans.back().channel, ChannelKind::rc_srq);
      EXPECT_EQ(direction->spans.size(), 2u);
      EXPECT_GT(direction->spans.back().messages, 100u);
    }
    EXPECT_EQ(report.rc_queue_pairs_peak, 1u);
    for (const MemoryLine& line : report.memory) {
      if (line.kind == "rings") {
        EXPECT_EQ(line.peak, 0u);
      }
    }
  }
}

TEST(RcSrq, GetsARingAfterTheThresholdUnderArdmaSrq) {
  TestWorld world(2, {{"policy", "ardma-srq"}, {"ring_threshold", "30"}});
  exchange(world, 20);
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
TEST(RcSrq, OnlyFrequentPeersGetARing) {
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

TEST(RcSrq, StaysOnTheStartServiceWhereThereIsNoQueuePair) {
  TestWorld world(2, {{"policy", "srq"}, {"rc_pool", "0"}, {"max_active_rc", "0"}});
  exchange(world, 5);
  for (std::size_t i = 0; i < 2; ++i) {
    const EndpointReport report = world[i].report();
    EXPECT_EQ(report.peers[0].receive.spans.back().channel, ChannelKind::dc_sendrecv);
    EXPECT_FALSE(report.peers[0].reason.empty());
  }
}

// What a process has sent before it ends arrives, though its receiver looks for it much later.
TEST(RcSrq, MessagesOutliveTheirSender) {
  TestWorld world(2, {{"policy", "srq"},
                      {"receive_first", "16"},
                      {"receive_buffers", "16"},
                      {"credits", "16"},
                      {"credits_first", "16"}});
  exchange(world, 5);
  std::vector<std::byte> out = pattern(8, 1), in(8);
  const iovec from = piece(out), to = piece(in);
  for (std::uint64_t n = 0; n < 8; ++n) {
    ASSERT_TRUE(
        world[1].send(tagged_send(world.peer(1, 0), from, n, world.report(1, nullptr))).ok());
  }
  const PeerId source = world.peer(0, 1);
  world.close(1);
  for (std::uint64_t n = 0; n < 8; ++n) {
    ASSERT_TRUE(world[0].recv(tagged_recv(source, to, n, world.report(0, nullptr))).ok());
    ASSERT_TRUE(world.until([&] { return world.queue(0).size() == 1; }));
    EXPECT_EQ(take(world.queue(0)).tag, n);
  }
}

}  // namespace
}  // namespace turnout
