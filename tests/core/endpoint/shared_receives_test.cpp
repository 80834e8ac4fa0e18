// SPDX-License-Identifier: BSD-3-Clause
// The shared data receive queue: low watermark, growth within the budget, shrinking.
#include <gtest/gtest.h>

#include <vector>

#include "tests/support/memory_line.h"
#include "tests/support/requests.h"
#include "tests/support/test_world.h"

namespace turnout {
namespace {

constexpr std::size_t kEntry = 4096;

Overrides small_queue(Overrides more = {}) {
  Overrides all = {{"policy", "static:dc-sendrecv"}, {"receive_first", "16"},
                   {"receive_growth", "16"},         {"receive_buffers", "64"},
                   {"receive_watermark", "4"},       {"credits", "32"},
                   {"credits_first", "32"}};
  if (getenv("TURNOUT_DEFAULT_TRANSPORT") != nullptr) all[0].second = "static:ud-sendrecv";
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

class SharedReceives : public testing::Test {
 protected:
  // `count` messages from everybody but endpoint 0 to it, which looks at none before all are sent.
  void burst(TestWorld& world, std::size_t count) {
    std::vector<std::byte> out = pattern(8, 1), in(8);
    const iovec from = piece(out), to = piece(in);
    for (std::size_t i = 1; i < world.size(); ++i) {
      for (std::size_t n = 0; n < count; ++n) {
        ASSERT_TRUE(
            world[i].send(tagged_send(world.peer(i, 0), from, 1, world.report(i, nullptr))).ok());
      }
    }
    for (std::size_t n = 0; n < count * (world.size() - 1); ++n) {
      ASSERT_TRUE(world[0].recv(tagged_recv(kAnyPeer, to, 1, world.report(0, nullptr))).ok());
      ASSERT_TRUE(world.until([&] { return world.queue(0).size() == 1; }));
      EXPECT_EQ(take(world.queue(0)).length, 8u);
    }
    for (std::size_t i = 1; i < world.size(); ++i) {
      ASSERT_TRUE(world.until([&] { return world.queue(i).size() == count; }));
      while (world.queue(i).size() > 0) world.queue(i).pop();
    }
  }
  // One message at a time, each received at once.
  void trickle(TestWorld& world, int messages) {
    for (int n = 0; n < messages; ++n) {
      burst(world, 1);
      world.clock().advance(2'000'000);
    }
  }
};

TEST_F(SharedReceives, BeginFewAndGrowWhenABurstLeavesTooFew) {
  TestWorld world(2, small_queue());
  const std::uint64_t first = receive_bytes(world[0]);
  burst(world, 10);  // 6 of 16 are left
  EXPECT_EQ(world[0].report().shared_receives.limit_events, 0u);
  burst(world, 14);  // 2
  world.progress_all(100);
  world.clock().advance(10'000'000);
  world.progress_all(100);
  const SharedReceivesReport grown = world[0].report().shared_receives;
  EXPECT_EQ(grown.limit_events, 1u);
  EXPECT_EQ(grown.growths, 1u);
  EXPECT_EQ(receive_bytes(world[0]), first + 16 * kEntry);
  EXPECT_EQ(world[1].report().shared_receives.limit_events, 0u);
  burst(world, 14);  // armed again, and 32 are enough for that
  world.progress_all(200);
  EXPECT_EQ(world[0].report().shared_receives.limit_events, 1u);
}

TEST_F(SharedReceives, AreNeverMoreThanAllowed) {
  TestWorld world(5, small_queue({{"receive_buffers", "40"}}));
  const std::uint64_t first = receive_bytes(world[0]);
  for (int i = 0; i < 20; ++i) {
    burst(world, 15);
    world.clock().advance(10'000'000);
    world.progress_all(200);
  }
  EXPECT_EQ(receive_bytes(world[0]), first + 24 * kEntry);  // a whole chunk and the rest
  EXPECT_EQ(world[0].report().shared_receives.growths, 2u);
  EXPECT_GE(world[0].report().shared_receives.limit_events, 2u);
}

// A refusal is normal: nothing grows, nothing is lost.
TEST_F(SharedReceives, DoNotGrowBeyondTheBudget) {
  std::uint64_t least = 0;
  {
    TestWorld world(1, small_queue());
    least = world[0].report().used * 8 / 7 + 8192;
  }
  TestWorld world(2, small_queue({{"memory_budget", std::to_string(least)}}));
  for (int i = 0; i < 3; ++i) {
    burst(world, 14);
    world.clock().advance(10'000'000);
    world.progress_all(200);
  }
  const EndpointReport report = world[0].report();
  EXPECT_GT(report.shared_receives.limit_events, 0u);
  EXPECT_EQ(report.shared_receives.growths, 0u);
  EXPECT_LE(report.peak, report.budget);
}

TEST_F(SharedReceives, WithoutAWatermarkNothingIsAskedFor) {
  TestWorld world(2, small_queue({{"receive_watermark", "0"}}));
  burst(world, 16);
  world.clock().advance(10'000'000);
  world.progress_all(200);
  EXPECT_EQ(world[0].report().shared_receives.limit_events, 0u);
  EXPECT_EQ(world[0].report().shared_receives.growths, 0u);
}

TEST_F(SharedReceives, ThatAreIdleForLongAreGivenBack) {
  TestWorld world(2, small_queue({{"receive_idle", "100ms"}}));
  const std::uint64_t first = receive_bytes(world[0]);
  burst(world, 14);
  world.progress_all(100);
  ASSERT_EQ(world[0].report().shared_receives.growths, 1u);
  // Buffers come back only as messages take them.
  trickle(world, 400);
  EXPECT_EQ(world[0].report().shared_receives.shrinks, 1u);
  EXPECT_EQ(receive_bytes(world[0]), first);
  burst(world, 14);
  world.progress_all(100);
  world.clock().advance(10'000'000);
  world.progress_all(200);
  EXPECT_EQ(world[0].report().shared_receives.growths, 2u);
  EXPECT_EQ(receive_bytes(world[0]), first + 16 * kEntry);
}

}  // namespace
}  // namespace turnout
