// SPDX-License-Identifier: BSD-3-Clause
// How endpoints end: nothing is lost that a peer takes, and nobody is waited for who is gone.
#include <gtest/gtest.h>

#include <cstdlib>
#include <deque>
#include <vector>

#include "tests/support/requests.h"
#include "tests/support/test_world.h"

namespace turnout {
namespace {

// Calls of close() that an end without obstacles takes at most. An adapter that tries to reach who
// is gone takes half a second, some hundred thousand of them.
constexpr int kFew = 500;

bool closes(Endpoint& endpoint, int calls = kFew) {
  for (; calls > 0; --calls) {
    if (endpoint.close()) return true;
  }
  return false;
}

class Closing : public testing::TestWithParam<const char*> {
 protected:
  static bool datagrams() { return std::getenv("TURNOUT_DEFAULT_TRANSPORT") != nullptr; }
  static Overrides with(Overrides more = {}) {
    if (!datagrams()) more.emplace_back("policy", GetParam());
    return more;
  }
  void send(TestWorld& world, std::size_t from, std::size_t to, int count, bool inject = true) {
    const iovec piece_out = piece(out_);
    for (int n = 0; n < count; ++n) {
      SendRequest request = tagged_send(world.peer(from, to), piece_out,
                                        static_cast<std::uint64_t>(n), world.report(from, nullptr));
      request.inject = inject;
      ASSERT_TRUE(world[from].send(request).ok());
    }
  }
  void receive(TestWorld& world, std::size_t at, std::size_t from, int count) {
    const iovec to = piece(in_);
    for (int n = 0; n < count; ++n) {
      ASSERT_TRUE(world[at]
                      .recv(tagged_recv(world.peer(at, from), to, static_cast<std::uint64_t>(n),
                                        world.report(at, nullptr)))
                      .ok());
    }
  }
  std::vector<std::byte> out_ = pattern(8, 1), in_ = std::vector<std::byte>(8);
};

TEST_P(Closing, NobodyIsWaitedForWhoHasSaidGoodbye) {
  TestWorld world(4, with());
  for (std::size_t a = 0; a < 4; ++a) {
    for (std::size_t b = 0; b < 4; ++b) {
      if (a == b) continue;
      receive(world, b, a, 20);
      send(world, a, b, 20);
    }
  }
  ASSERT_TRUE(world.until([&] {
    for (std::size_t i = 0; i < 4; ++i) {
      if (world.queue(i).size() < 60) return false;
    }
    return true;
  }));
  world.progress_all(1000);
  for (std::size_t i = 0; i < 4; ++i) {
    int calls = i == 0 ? 100'000 : kFew;
    for (; calls > 0 && !world[i].close(); --calls) {
      // Over UD the living have to acknowledge what was sent to them.
      for (std::size_t j = i + 1; datagrams() && j < 4; ++j) world[j].progress();
    }
    ASSERT_GT(calls, 0) << i;
    world.close(i);  // its queue pairs are gone
    world.progress_all(3);
  }
}

// The first message comes, and its sender is gone before it can be answered.
TEST_P(Closing, NobodyIsAnsweredWhoIsGone) {
  TestWorld world(3, with());
  receive(world, 1, 0, 1);
  receive(world, 2, 1, 1);
  send(world, 0, 1, 1);
  for (int n = 0; n < 100'000 && !world[0].close(); ++n) {
    if (datagrams()) world[1].progress();  // it has to acknowledge the message
  }
  world.close(0);
  send(world, 1, 2, 1);
  ASSERT_TRUE(world.until([&] { return world.queue(2).size() == 1; }, kFew))
      << "nothing of ours stands behind what would go to the one that is gone";
  EXPECT_EQ(world.queue(1).size(), 1u + 1u);
}

// A peer that computes has not given back credits: what waits for them is not lost.
TEST_P(Closing, WhatWasTakenOverIsDelivered) {
  for (const int count : {1, 16, 300}) {
    TestWorld world(2, with());
    receive(world, 1, 0, 1);
    send(world, 0, 1, 1);
    ASSERT_TRUE(world.until([&] { return world.queue(1).size() == 1; }));
    take(world.queue(1));
    send(world, 0, 1, count);
    const bool at_once = closes(world[0], 100);
    EXPECT_TRUE(at_once || count > 1 || datagrams());
    receive(world, 1, 0, count);
    for (int n = 0; n < 100'000 && !world[0].close(); ++n) world[1].progress();
    ASSERT_TRUE(world[0].close());
    for (int n = 0; n < kFew; ++n) world[1].progress();
    EXPECT_EQ(world.queue(1).size(), static_cast<std::size_t>(count));
  }
}

// What nobody will receive any more holds up nobody.
TEST_P(Closing, EndpointsThatHaveSentEachOtherMoreThanTheyTakeEnd) {
  TestWorld world(2, with({{"unexpected_memory", "4KiB"}}));
  send(world, 0, 1, 300);
  send(world, 1, 0, 300);
  bool first = false, second = false;
  for (int n = 0; n < 100'000 && !(first && second); ++n) {
    first = world[0].close();
    second = world[1].close();
  }
  EXPECT_TRUE(first);
  EXPECT_TRUE(second);
}

INSTANTIATE_TEST_SUITE_P(Over, Closing,
                         testing::Values("turnout", "rc-rdma-od", "dc-rdma-od", "ardma-sr"),
                         [](const auto& info) {
                           std::string name;
                           for (const char c : std::string(info.param)) {
                             if (c != '-') name += c;
                           }
                           return name;
                         });

}  // namespace
}  // namespace turnout
