// SPDX-License-Identifier: BSD-3-Clause
// Operations that wait for a peer whose program does nothing: taken as far as the budget goes, and
// never fewer than fi_getinfo tells.
#include <gtest/gtest.h>

#include <deque>
#include <vector>

#include "core/protocol/operation_limits.h"
#include "tests/support/requests.h"
#include "tests/support/test_world.h"

namespace turnout {
namespace {

constexpr std::uint64_t kSmallBudget = 3 << 20;
const Overrides kSmall = {{"memory_budget", "3MiB"}, {"receive_buffers", "32"},
                          {"control_buffers", "32"}, {"send_buffers", "16"},
                          {"rc_pool", "1"},          {"max_active_rc", "1"}};

class Backlog : public testing::Test {
 protected:
  // Sends of endpoint 0 to endpoint 1, which makes no progress; how many are taken of `count`.
  std::size_t start(TestWorld& world, std::size_t count, std::size_t size, bool inject) {
    out_ = pattern(size, 1);
    const iovec from = piece(out_);
    for (std::size_t n = 0; n < count; ++n) {
      SendRequest request = tagged_send(world.peer(0, 1), from, n, world.report(0, nullptr));
      request.inject = inject;
      const Status status = world[0].send(request);
      if (!status.ok()) {
        EXPECT_EQ(status.code(), Code::again);
        return n;
      }
      world[0].progress();
    }
    return count;
  }
  // All of them come, in their order.
  void receive(TestWorld& world, std::size_t count) {
    std::vector<std::byte> in(out_.size());
    const iovec to = piece(in);
    for (std::size_t n = 0; n < count; ++n) {
      ASSERT_TRUE(
          world[1].recv(tagged_recv(world.peer(1, 0), to, n, world.report(1, nullptr))).ok());
      ASSERT_TRUE(world.until([&] { return world.queue(1).size() == 1; })) << n;
      EXPECT_EQ(take(world.queue(1)).tag, n);
      ASSERT_EQ(in, out_);
      in.assign(in.size(), std::byte{0});
    }
    for (std::size_t i = 0; i < world.size(); ++i) {
      EXPECT_LE(world[i].report().peak, world[i].report().budget);
    }
  }
  std::vector<std::byte> out_;
};

TEST_F(Backlog, FiveThousandSendsToAPeerThatDoesNothingAreTaken) {
  for (const bool inject : {true, false}) {
    TestWorld world(2);
    ASSERT_EQ(start(world, 5000, 8, inject), 5000u);
    receive(world, 5000);
  }
  TestWorld world(2);
  ASSERT_EQ(start(world, 5000, 65536, false), 5000u);
  receive(world, 5000);
}

TEST_F(Backlog, ASmallBudgetTakesAsManyAsItPromisesAndThenSaysAgain) {
  const OperationLimits limits = operation_limits(kSmallBudget);
  EXPECT_GE(limits.promised, 64u);
  for (const std::size_t size : {std::size_t{8}, std::size_t{20000}}) {
    TestWorld world(2, kSmall);
    const std::size_t taken = start(world, 100'000, size, size == 8);
    EXPECT_GE(taken, limits.promised);
    EXPECT_LE(taken, limits.waiting + 256) << "what waits, and what was posted";
    receive(world, taken);
    ASSERT_EQ(start(world, 1, size, false), 1u) << "there is room again";
  }
}

// Everything else has taken all that it can: messages nobody waits for, then receives.
TEST_F(Backlog, WhatIsPromisedIsThereWhateverElseTakesMemory) {
  const OperationLimits limits = operation_limits(kSmallBudget);
  TestWorld world(3, kSmall);
  auto out = pattern(2000, 3);
  std::vector<std::byte> in(8);
  const iovec from = piece(out), to = piece(in);
  std::vector<std::uint64_t> words(1);
  auto key = world[1].memory().register_memory(words.data(), 8, kAccessRemoteWrite);
  ASSERT_TRUE(key.ok());
  const std::uint64_t one = 1;
  const iovec operand{const_cast<std::uint64_t*>(&one), sizeof one};
  const auto add = [&] {
    AtomicRequest request;
    request.peer = world.peer(0, 1);
    request.op = AtomicOp::sum;
    request.type = AtomicType::uint64;
    request.count = 1;
    request.operands = {&operand, 1};
    request.remote_address = reinterpret_cast<std::uint64_t>(words.data());
    request.key = key.value().remote;
    request.report = world.report(0, nullptr);
    return world[0].atomic(request).ok();
  };
  ASSERT_TRUE(add());  // records of peers, and of their atomics, are no operations
  ASSERT_TRUE(world.until([&] { return world.queue(0).size() == 1; }));
  take(world.queue(0));
  for (int quiet = 0; quiet < 2000; ++quiet) {  // until nothing of it moves any more
    if (world[2].send(tagged_send(world.peer(2, 0), from, 7, world.report(2, nullptr))).ok()) {
      quiet = 0;
    }
    world.progress_all();
  }
  std::size_t receives = 0, atomics = 0;
  while (world[0].recv(tagged_recv(world.peer(0, 1), to, 9, world.report(0, nullptr))).ok()) {
    ++receives;
  }
  EXPECT_GE(receives, limits.promised);
  EXPECT_GE(start(world, 100'000, 8, true), limits.promised);
  while (add()) ++atomics;
  EXPECT_GE(atomics, limits.promised);
  EXPECT_LE(world[0].report().peak, kSmallBudget);
  world[1].memory().deregister_memory(key.value());
}

}  // namespace
}  // namespace turnout
