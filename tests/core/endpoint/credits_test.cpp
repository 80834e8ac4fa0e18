// SPDX-License-Identifier: BSD-3-Clause
// Credits that know that the receive queue is shared: who waits, and nobody for ever.
#include <gtest/gtest.h>

#include <cstdlib>
#include <vector>

#include "tests/support/requests.h"
#include "tests/support/test_world.h"

namespace turnout {
namespace {

// 32 receives, of which one source may have half.
Overrides few(Overrides more = {}) {
  Overrides all = {{"policy", "static:dc-sendrecv"},
                   {"receive_first", "32"},
                   {"receive_buffers", "32"},
                   {"credits", "16"},
                   {"credits_first", "4"},
                   {"break_rule", "lend-least"}};  // as when the queue was low for long
  if (std::getenv("TURNOUT_DEFAULT_TRANSPORT") != nullptr) all[0].second = "static:ud-sendrecv";
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

class Credits : public testing::Test {
 protected:
  // Starts `count` messages of endpoint `from` to endpoint 0 and their receives.
  void start(TestWorld& world, std::size_t from, std::size_t count) {
    const iovec out = piece(out_), in = piece(in_);
    for (std::size_t n = 0; n < count; ++n) {
      ASSERT_TRUE(
          world[0].recv(tagged_recv(world.peer(0, from), in, 1, world.report(0, nullptr))).ok());
      ASSERT_TRUE(world[from]
                      .send(tagged_send(world.peer(from, 0), out, 1, world.report(from, nullptr)))
                      .ok());
    }
  }
  void clear(CompletionQueue& queue) {
    while (queue.size() > 0) queue.pop();
  }
  // Only endpoint 0 and `other` run. What was sent to one that is gone is tried for half a second,
  // and what is behind it waits.
  bool until_received(TestWorld& world, std::size_t other, std::size_t count) {
    for (int i = 0; i < 5'000'000 && world.queue(0).size() < count; ++i) {
      world[0].progress();
      world[other].progress();
      world.clock().advance(1000);
    }
    return world.queue(0).size() == count;
  }
  std::vector<std::byte> out_ = pattern(8, 1), in_ = std::vector<std::byte>(8);
};

TEST_F(Credits, ASourceThatSendsMuchGetsMoreAndThenNeedsFewMessagesForThem) {
  TestWorld world(2, few());
  start(world, 1, 600);
  ASSERT_TRUE(world.until([&] { return world.queue(0).size() == 600; }));
  const EndpointReport report = world[0].report();
  EXPECT_EQ(report.shared_receives.credit_waits, 0u);
  // Eight at a time once it has 16.
  EXPECT_LT(report.operations.credit_messages, 600u / 8 + 10);
  EXPECT_GE(report.operations.credit_messages, 600u / 16);
}

// Sources hold all credits and compute: another one does not wait for them.
TEST_F(Credits, NobodyWaitsForSilentSources) {
  TestWorld world(14, few());
  for (std::size_t source = 1; source <= 12; ++source) {
    start(world, source, 2);
    ASSERT_TRUE(world.until([&] { return world.queue(0).size() == 2; })) << source;
    clear(world.queue(0));
  }
  // Nobody but these two makes progress from here on.
  start(world, 13, 300);
  ASSERT_TRUE(until_received(world, 13, 300));
  clear(world.queue(0));
  const EndpointReport report = world[0].report();
  EXPECT_GT(report.shared_receives.credit_waits, 0u);
  // The silent go on, in the order of their messages and without an end.
  for (std::size_t source = 1; source <= 12; ++source) {
    start(world, source, 50);
    ASSERT_TRUE(world.until([&] { return world.queue(0).size() == 50; })) << source;
    clear(world.queue(0));
  }
}

// More sources than receives, all at once: each gets its turn.
TEST_F(Credits, ManySourcesShareFewReceives) {
  TestWorld world(13, few({{"receive_first", "8"},
                           {"receive_buffers", "8"},
                           {"credits", "8"},
                           {"control_buffers", "32"},
                           {"send_buffers", "16"}}));
  for (std::size_t source = 1; source < world.size(); ++source) start(world, source, 100);
  ASSERT_TRUE(world.until([&] { return world.queue(0).size() == 1200; }, 100000));
  EXPECT_GT(world[0].report().shared_receives.credit_waits, 0u);
}

// What is kept for nobody waits for it uses up its own source's credits only.
TEST_F(Credits, UnexpectedMessagesOfOneSourceLeaveCreditsToOthers) {
  TestWorld world(3, few({{"unexpected_memory", "4KiB"}}));
  const iovec out = piece(out_);
  for (int n = 0; n < 200; ++n) {
    ASSERT_TRUE(
        world[1].send(tagged_send(world.peer(1, 0), out, 9, world.report(1, nullptr))).ok());
  }
  world.progress_all(200);
  start(world, 2, 200);
  ASSERT_TRUE(world.until([&] { return world.queue(0).size() == 200; }));
  clear(world.queue(0));
  const iovec in = piece(in_);
  for (int n = 0; n < 200; ++n) {
    ASSERT_TRUE(world[0].recv(tagged_recv(world.peer(0, 1), in, 9, world.report(0, nullptr))).ok());
  }
  ASSERT_TRUE(world.until([&] { return world.queue(0).size() == 200; }));
}

// A source that dies with credits leaves them to the others.
TEST_F(Credits, OfALostSourceAreLentAgain) {
  TestWorld world(4, few({{"keepalive", "10ms"}}));
  for (std::size_t source = 1; source <= 2; ++source) {
    start(world, source, 100);
    ASSERT_TRUE(world.until([&] { return world.queue(0).size() == 100; }));
    clear(world.queue(0));
  }
  world.close(1);
  world.close(2);
  world.progress_all(1000);
  start(world, 3, 300);
  ASSERT_TRUE(until_received(world, 3, 300));
}

}  // namespace
}  // namespace turnout
