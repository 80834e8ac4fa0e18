// SPDX-License-Identifier: BSD-3-Clause
// What an endpoint does where memory is short: nothing is lost, and whoever is refused is told.
#include <gtest/gtest.h>

#include <unistd.h>

#include <cstdlib>
#include <vector>

#include "tests/support/memory_line.h"
#include "tests/support/requests.h"
#include "tests/support/test_world.h"

namespace turnout {
namespace {

Result<std::unique_ptr<Endpoint>> make_with(const Overrides& overrides) {
  setenv("TURNOUT_FABRIC", ("core-test-" + std::to_string(getpid())).c_str(), 1);
  Settings settings = Settings::defaults();
  EXPECT_TRUE(settings.set("device", "virtual").ok());
  for (const auto& [name, value] : overrides) EXPECT_TRUE(settings.set(name, value).ok()) << name;
  static TestClock clock;
  return Endpoint::create(settings, clock);
}

TEST(Endpoint, ATooSmallBudgetIsRefusedAtTheStartWithWhatToDo) {
  const auto endpoint = make_with({{"memory_budget", "64KiB"}});
  ASSERT_FALSE(endpoint.ok());
  EXPECT_EQ(endpoint.status().code(), Code::over_budget);
  EXPECT_NE(endpoint.status().text().find("TURNOUT_MEMORY_BUDGET"), std::string::npos);
}

// The number after "raise it to ".
std::uint64_t advice(const Status& status) {
  const std::string& text = status.text();
  const auto at = text.find("raise it to ");
  EXPECT_NE(at, std::string::npos) << text;
  return at == std::string::npos ? 0 : std::strtoull(text.c_str() + at + 12, nullptr, 10);
}

TEST(Endpoint, WhatASmallBudgetHasRoomForALargerOneHasToo) {
  const auto refused = make_with({{"memory_budget", "64KiB"}});
  ASSERT_FALSE(refused.ok());
  const std::uint64_t least = advice(refused.status());
  const auto one_less = make_with({{"memory_budget", std::to_string(least - 1)}});
  EXPECT_FALSE(one_less.ok());
  EXPECT_EQ(advice(one_less.status()), least);
  constexpr std::uint64_t kStep = 12345, kSteps = 400;
  for (std::uint64_t budget = least; budget < least + kSteps * kStep; budget += kStep) {
    const auto endpoint = make_with({{"memory_budget", std::to_string(budget)}});
    ASSERT_TRUE(endpoint.ok()) << budget << ": " << endpoint.status().text();
  }
}

TEST(Endpoint, ATooSmallBudgetOfTheNodeIsNamedAsThat) {
  const auto refused = make_with({{"node_budget", "6KiB"}, {"node_processes", "2"}});
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.status().text().find("TURNOUT_NODE_BUDGET=6144 is too small for 2 processes"),
            std::string::npos)
      << refused.status().text();
  const std::uint64_t least = advice(refused.status());
  EXPECT_TRUE(make_with({{"node_budget", std::to_string(least)}, {"node_processes", "2"}}).ok());
  // The lesser of both is the one to raise.
  const auto own =
      make_with({{"node_budget", "1GiB"}, {"node_processes", "2"}, {"memory_budget", "6KiB"}});
  ASSERT_FALSE(own.ok());
  EXPECT_NE(own.status().text().find("TURNOUT_MEMORY_BUDGET=6144 "), std::string::npos);
}

constexpr std::size_t kScarce = 1250 * 1024;
const Overrides kScarceMemory = {{"receive_buffers", "32"}, {"control_buffers", "32"},
                                 {"send_buffers", "16"},    {"rc_pool", "1"},
                                 {"max_active_rc", "1"},    {"memory_budget", "1250KiB"}};

// Far more messages nobody waits for than the budget has room for, small and large: the sender is
// held back, nothing is lost, and all arrive once they are received.
TEST(Endpoint, MessagesBeyondTheBudgetHoldTheirSenderBack) {
  for (const std::size_t size : {std::size_t{0}, std::size_t{2000}, std::size_t{20000}}) {
    TestWorld world(2, kScarceMemory);
    constexpr std::size_t kMessages = 10000;
    auto out = pattern(size, 3);
    std::vector<std::byte> in(size);
    const iovec from = piece(out), to = piece(in);
    std::size_t sent = 0;
    const auto send_more = [&] {
      while (
          sent < kMessages &&
          world[0].send(tagged_send(world.peer(0, 1), from, sent, world.report(0, nullptr))).ok()) {
        ++sent;
      }
    };
    for (int i = 0; i < 5000; ++i) {
      send_more();
      world.progress_all();
    }
    EXPECT_LT(sent, kMessages) << size;
    for (std::size_t n = 0; n < kMessages; ++n) {
      ASSERT_TRUE(
          world[1].recv(tagged_recv(world.peer(1, 0), to, n, world.report(1, nullptr))).ok());
      ASSERT_TRUE(world.until([&] {
        send_more();
        return world.queue(1).size() == 1;
      })) << "message "
          << n << " of " << size << " bytes";
      EXPECT_EQ(take(world.queue(1)).tag, n);
      ASSERT_EQ(in, out);
      in.assign(size, std::byte{0});
    }
    ASSERT_TRUE(world.until([&] { return world.queue(0).size() == kMessages; }));
    EXPECT_LE(world[1].report().peak, kScarce);
    EXPECT_LE(world[0].report().peak, kScarce);
  }
}

// What a receive waits for lies behind more messages than TURNOUT_UNEXPECTED_MEMORY allows, but not
// more than the budget does: the limit gives way.
TEST(Endpoint, TheLimitOfUnexpectedMessagesGivesWayToAReceiveThatWaits) {
  TestWorld world(2, {{"unexpected_memory", "4KiB"}, {"keepalive", "10ms"}});
  constexpr std::uint64_t kMessages = 500;
  auto out = pattern(100, 3);
  std::vector<std::byte> in(100);
  const iovec from = piece(out), to = piece(in);
  for (std::uint64_t tag = 0; tag < kMessages; ++tag) {
    ASSERT_TRUE(
        world[0].send(tagged_send(world.peer(0, 1), from, tag, world.report(0, nullptr))).ok());
  }
  for (std::uint64_t tag = kMessages; tag-- > 0;) {
    ASSERT_TRUE(world[1].recv(tagged_recv(kAnyPeer, to, tag, world.report(1, nullptr))).ok());
    ASSERT_TRUE(world.until([&] { return world.queue(1).size() == 1; }, 100000)) << tag;
    EXPECT_EQ(take(world.queue(1)).tag, tag);
  }
}

// The same where the budget refuses: in the end the receive fails and says why, and the sender,
// whose messages go nowhere any more, is told the same.
void fill_the_budget(const std::string& default_transport) {
  auto settings = kScarceMemory;
  settings.emplace_back("keepalive", "10ms");
  settings.emplace_back("default_transport", default_transport);
  TestWorld world(2, settings);
  auto out = pattern(2000, 3);
  std::vector<std::byte> in(2000);
  const iovec from = piece(out), to = piece(in);
  ASSERT_TRUE(world[1].recv(tagged_recv(kAnyPeer, to, 9, world.report(1, nullptr))).ok());
  ASSERT_TRUE(world[0].send(tagged_send(world.peer(0, 1), from, 9, world.report(0, nullptr))).ok());
  ASSERT_TRUE(world.until([&] { return world.queue(1).size() == 1; }));
  take(world.queue(1));
  ASSERT_TRUE(world[1].recv(tagged_recv(world.peer(1, 0), to, 9, world.report(1, nullptr))).ok());
  ASSERT_TRUE(world.until(
      [&] {
        (void)world[0].send(tagged_send(world.peer(0, 1), from, 1, world.report(0, nullptr)));
        return world.queue(1).has_error();
      },
      100000));
  const ErrorCompletion error = world.queue(1).pop_error();
  EXPECT_NE(error.status.text().find("TURNOUT_MEMORY_BUDGET"), std::string::npos)
      << error.status.text();
  ASSERT_TRUE(world.until([&] { return world.queue(0).has_error(); }, 1000));
  const ErrorCompletion told = world.queue(0).pop_error();
  EXPECT_EQ(told.status.code(), Code::peer_lost);
  EXPECT_EQ(told.status.sys_errno(), ENOMEM);
  EXPECT_NE(told.status.text().find("dropped this process: its messages exceeded the memory budget "
                                    "there; raise TURNOUT_MEMORY_BUDGET=1280000 there"),
            std::string::npos)
      << told.status.text();
}

TEST(Endpoint, AReceiveBehindMoreThanTheBudgetFailsInsteadOfWaitingForEver) {
  fill_the_budget("auto");
}

TEST(Endpoint, AReceiveBehindMoreThanTheBudgetFailsOverDatagramsToo) {
  fill_the_budget("ud");
}

// More large messages at once than there are transfers.
TEST(Endpoint, LargeMessagesWaitForATransfer) {
  auto settings = kScarceMemory;
  TestWorld world(2, settings);
  auto out = pattern(20000, 5);
  const iovec from = piece(out);
  std::vector<std::vector<std::byte>> in;
  std::size_t posted = 0, sent = 0, received = 0;
  for (; in.size() < 300;) in.emplace_back(out.size());
  ASSERT_TRUE(world.until([&] {
    while (posted < in.size()) {
      const iovec to = piece(in[posted]);
      if (!world[1].recv(tagged_recv(world.peer(1, 0), to, 1, world.report(1, nullptr))).ok())
        break;
      ++posted;
    }
    while (sent < in.size() &&
           world[0].send(tagged_send(world.peer(0, 1), from, 1, world.report(0, nullptr))).ok()) {
      ++sent;
    }
    for (; world.queue(1).size() > 0; ++received) take(world.queue(1));
    return received == in.size();
  }));
  for (const auto& one : in) EXPECT_EQ(one, out);
}

// Makes records of peers that there are not, until one is refused; how many it made.
std::size_t fill_with_records(Endpoint& endpoint) {
  Address other = endpoint.address();
  for (std::size_t made = 0;; ++made) {
    other.id = made + 1;
    other.seal();
    const Status status = endpoint.peer(other).status();
    if (status.ok() && made < 100000) continue;
    EXPECT_EQ(status.code(), Code::over_budget);
    return made;
  }
}

TEST(EndpointMemory, RingsLeaveRoomForTheRecordsOfExpectedPeers) {
  constexpr std::size_t kSources = 12, kExpected = 280;
  for (const bool told : {false, true}) {
    Overrides settings = kScarceMemory;
    settings.back().second = "1900KiB";
    settings.emplace_back("policy", "dc-rdma-od");
    TestWorld world(1 + kSources, settings);
    if (told) world[0].expect_peers(kExpected, {});
    auto out = pattern(8, 5);
    std::vector<std::byte> in(8);
    const iovec from = piece(out), to = piece(in);
    std::size_t received = 0;
    for (std::size_t i = 1; i <= kSources; ++i) {
      ASSERT_TRUE(
          world[0].recv(tagged_recv(world.peer(0, i), to, 1, world.report(0, nullptr))).ok());
      ASSERT_TRUE(
          world[i].send(tagged_send(world.peer(i, 0), from, 1, world.report(i, nullptr))).ok());
    }
    ASSERT_TRUE(world.until([&] {
      for (; world.queue(0).size() > 0; ++received) take(world.queue(0));
      return received == kSources;
    }));
    world.progress_all(1000);
    EXPECT_GT(memory_line(world[0].report(), MemoryKind::rings).now, 0u);
    const std::size_t records = kSources + fill_with_records(world[0]);
    if (told) {
      EXPECT_GE(records, kExpected);
    } else {
      EXPECT_LT(records, kExpected);
    }
  }
}

TEST(EndpointMemory, MorePeersThanHaveRoomAreToldOfOnce) {
  TestWorld world(1, kScarceMemory);
  testing::internal::CaptureStderr();
  for (std::size_t count = 1; count < 1000; ++count) world[0].expect_peers(count, {});
  const std::string log = testing::internal::GetCapturedStderr();
  const auto at = log.find("TURNOUT_MEMORY_BUDGET");
  ASSERT_NE(at, std::string::npos);
  EXPECT_EQ(log.find("TURNOUT_MEMORY_BUDGET", at + 1), std::string::npos) << log;
}

TEST(Endpoint, ASenderForWhomThereIsNoRecordIsTold) {
  TestWorld world(2, kScarceMemory);
  fill_with_records(world[1]);
  auto out = pattern(8, 5);
  std::vector<std::byte> in(8);
  const iovec from = piece(out), to = piece(in);
  ASSERT_TRUE(world[0].recv(tagged_recv(world.peer(0, 1), to, 1, world.report(0, nullptr))).ok());
  ASSERT_TRUE(world[0].send(tagged_send(world.peer(0, 1), from, 1, world.report(0, nullptr))).ok());
  ASSERT_TRUE(world.until([&] { return world.queue(0).has_error(); }));
  const ErrorCompletion error = world.queue(0).pop_error();
  EXPECT_EQ(error.status.code(), Code::peer_lost);
  EXPECT_NE(error.status.text().find("TURNOUT_MEMORY_BUDGET"), std::string::npos)
      << error.status.text();
}

}  // namespace
}  // namespace turnout
