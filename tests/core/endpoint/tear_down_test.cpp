// SPDX-License-Identifier: BSD-3-Clause
// Connections on demand at their limit: who wants one gets the place of another, nothing that is
// sent waits, and there are never more than may be.
#include <gtest/gtest.h>

#include <algorithm>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tests/core/endpoint/connections.h"
#include "tests/core/endpoint/forged_messages.h"
#include "tests/core/endpoint/two_way_traffic.h"
#include "tests/support/requests.h"
#include "tests/support/test_world.h"

namespace turnout {
namespace {

class TearDown : public TwoWayTraffic, public testing::WithParamInterface<const char*> {
 protected:
  static Overrides at_most(const char* connections, Overrides more = {}) {
    Overrides all = {{"policy", GetParam()}, {"eviction", "lru"}, {"interval", "5ms"}};
    if (connections != nullptr) all.emplace_back("max_conn", connections);
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  // As TwoWayTraffic's, when connections are no longer too new to go.
  void swap(TestWorld& world, std::size_t a, std::size_t b, std::size_t size = 64) {
    world.clock().advance(500'000);
    TwoWayTraffic::swap(world, size, a, b);
  }
  // One message from each of them to another; `in` takes all that come.
  using Way = std::pair<std::size_t, std::size_t>;  // source, target
  static void send_all(TestWorld& world, std::span<const Way> ways, const iovec& out,
                       const iovec& in) {
    for (const auto& [source, target] : ways) {
      ASSERT_TRUE(
          world[target]
              .recv(tagged_recv(world.peer(target, source), in, 1, world.report(target, nullptr)))
              .ok());
      ASSERT_TRUE(
          world[source]
              .send(tagged_send(world.peer(source, target), out, 1, world.report(source, nullptr)))
              .ok());
    }
  }
  // Messages of the pair until its connection carries both directions.
  void connect(TestWorld& world, std::size_t a, std::size_t b) {
    for (int n = 0; n < 200 && !(over_rc(world, a, b) && over_rc(world, b, a)); ++n) {
      swap(world, a, b);
      world.progress_all(20);
    }
    EXPECT_TRUE(over_rc(world, a, b) && over_rc(world, b, a)) << a << " and " << b;
    swap(world, a, b);  // it carries something
  }
  static bool over_rc(TestWorld& world, std::size_t at, std::size_t from) {
    return turnout::over_rc(channel(world, at, from));
  }
  void look_at(TestWorld& world) override { holds_limit(world); }
  void holds_limit(TestWorld& world) {
    if (limit_ == 0) return;
    for (std::size_t i = 0; i < world.size(); ++i) {
      const EndpointReport report = world[i].report();
      ASSERT_LE(report.rc_queue_pairs_peak, limit_);
    }
  }
  std::uint64_t limit_ = 0;
};

TEST_P(TearDown, GivesTheOnlyPlaceToWhoeverSpeaks) {
  limit_ = 1;
  TestWorld world(3, at_most("1"));
  for (int round = 0; round < 3; ++round) {
    connect(world, 0, 1);
    connect(world, 0, 2);
  }
  EXPECT_GE(connections(world).tear_downs, 5u);
  const EndpointReport report = world[0].report();
  EXPECT_GE(report.connections.made, 6u);
  EXPECT_GE(report.connections.freed, 1u);
  EXPECT_GT(report.connections.time, 0u);
  EXPECT_GE(report.connections.time, report.connections.time_most);
  EXPECT_GT(report.peers[world.peer(0, 1)].tear_downs, 0u);
}

TEST_P(TearDown, TakesTheLeastRecentlyUsed) {
  limit_ = 2;
  TestWorld world(4, at_most("2"));
  connect(world, 0, 1);
  connect(world, 0, 2);
  swap(world, 0, 1);
  connect(world, 0, 3);
  EXPECT_TRUE(over_rc(world, 0, 1));
  EXPECT_FALSE(over_rc(world, 0, 2));
}

TEST_P(TearDown, IsNoneWhereTheSettingSaysSo) {
  limit_ = 1;
  TestWorld world(3, at_most("1", {{"eviction", "none"}}));
  connect(world, 0, 1);
  for (int n = 0; n < 30; ++n) swap(world, 0, 2);
  EXPECT_TRUE(over_rc(world, 0, 1));
  EXPECT_FALSE(over_rc(world, 0, 2));
  EXPECT_EQ(connections(world).tear_downs, 0u);
}

// Every pair of four exchanges messages of every size while connections come and go.
TEST_P(TearDown, MessagesOfEverySizeGoOnMeanwhile) {
  for (const char* const victim : {"lru", "lru-m", "cost"}) {
    limit_ = 2;
    TestWorld world(4, at_most("2", {{"eviction", victim}}), 7);
    for (int round = 0; round < 6; ++round) {
      for (std::size_t a = 0; a < 4; ++a) {
        for (std::size_t b = a + 1; b < 4; ++b) {
          for (const std::size_t size : {8u, 300u, 4000u, 20000u}) swap(world, a, b, size);
        }
      }
    }
    EXPECT_GT(connections(world).tear_downs, 3u) << victim;
    for (std::size_t i = 0; i < 4; ++i) {
      for (const PeerReport& peer : world[i].report().peers) EXPECT_FALSE(peer.lost);
    }
  }
}

// 0 and 1, connected with each other, each hear another at the same moment: both choose the same
// connection.
TEST_P(TearDown, BothEndsMayStartAtOnce) {
  limit_ = 1;
  TestWorld world(4, at_most("1"));
  connect(world, 0, 1);
  std::vector<std::byte> out = pattern(64, 1), in(64);
  const iovec from = piece(out), to = piece(in);
  const Way ways[] = {{2, 0}, {3, 1}};
  for (int n = 0; n < 40; ++n) {
    ASSERT_NO_FATAL_FAILURE(send_all(world, ways, from, to));
    ASSERT_TRUE(world.until([&] {
      holds_limit(world);
      return world.queue(0).size() == 1 && world.queue(1).size() == 1;
    }));
    for (const auto& [source, target] : ways) {
      take(world.queue(target));
      if (world.queue(source).size() > 0) take(world.queue(source));
    }
    world.progress_all(5);
    world.clock().advance(500'000);
  }
  EXPECT_TRUE(over_rc(world, 0, 2));
  EXPECT_TRUE(over_rc(world, 1, 3));
  EXPECT_GE(world[0].report().connections.tear_downs + world[1].report().connections.tear_downs,
            1u);
  EXPECT_EQ(world[0].report().peers[world.peer(0, 1)].tear_downs, 1u);
  EXPECT_EQ(world[1].report().peers[world.peer(1, 0)].tear_downs, 1u);
}

// Each of three, with one place, sends to the next: each asks one neighbour for a connection while
// the other asks it.
TEST_P(TearDown, ACycleHoldsNoPlaceForEver) {
  limit_ = 1;
  TestWorld world(3, at_most("1"), 3);
  std::vector<std::byte> out = pattern(64, 1), in(64);
  const iovec from = piece(out), to = piece(in);
  const Way ways[] = {{0, 1}, {1, 2}, {2, 0}};
  for (int n = 0; n < 60; ++n) {
    ASSERT_NO_FATAL_FAILURE(send_all(world, ways, from, to));
    ASSERT_TRUE(world.until([&] {
      holds_limit(world);
      for (std::size_t i = 0; i < 3; ++i) {
        if (world.queue(i).size() < 2) return false;
      }
      return true;
    }));
    for (std::size_t i = 0; i < 3; ++i) {
      take(world.queue(i));
      take(world.queue(i));
    }
    world.clock().advance(500'000);
  }
  EXPECT_GT(connections(world).made, 1u);
  connect(world, 0, 1);
  connect(world, 1, 2);
}

// 1 does nothing, so its connection does not go: the request of 2 waits for its place, but not for
// ever, and messages go on.
TEST_P(TearDown, ARequestIsRefusedWhenItsPlaceDoesNotCome) {
  limit_ = 1;
  TestWorld world(3, at_most("1"));
  connect(world, 0, 1);
  std::vector<std::byte> out = pattern(64, 1), in(64);
  const iovec from = piece(out), to = piece(in);
  std::string outcome;
  std::uint64_t delivered = 0;
  for (int n = 0; n < 100 && outcome.find("refused by peer") == std::string::npos; ++n) {
    const Way way[] = {{0, 2}};
    ASSERT_NO_FATAL_FAILURE(send_all(world, way, from, to));
    for (int round = 0; round < 20; ++round) {
      world[0].progress();
      world[2].progress();
      world.clock().advance(100'000);
    }
    ASSERT_EQ(world.queue(2).size(), 1u);
    take(world.queue(2));
    while (world.queue(0).size() > 0) take(world.queue(0));
    ++delivered;
    holds_limit(world);
    const EndpointReport report = world[2].report();
    if (!report.decisions.empty()) outcome = report.decisions.back().outcome;
  }
  EXPECT_EQ(outcome, "refused by peer: its limit of active RC queue pairs is reached");
  EXPECT_GT(delivered, 2u);
  EXPECT_EQ(world[0].report().connections.tear_downs, 1u);
  EXPECT_GE(world[0].report().connections.gave_up, 1u);
  EXPECT_EQ(world[0].report().connections.freed, 0u);
  connect(world, 0, 2);
  EXPECT_EQ(world[0].report().connections.freed, 1u);
}

// One-sided operations go on while the connections of their pairs come and go.
TEST_P(TearDown, OneSidedOperationsGoOnMeanwhile) {
  limit_ = 1;
  TestWorld world(3, at_most("1"));
  std::vector<std::vector<std::byte>> targets;
  std::vector<MemoryKey> keys;
  for (std::size_t i = 1; i < 3; ++i) {
    targets.push_back(pattern(100'000, static_cast<unsigned>(i)));
  }
  for (std::size_t i = 1; i < 3; ++i) {
    auto key = world[i].memory().register_memory(targets[i - 1].data(), targets[i - 1].size(),
                                                 kAccessRemoteRead | kAccessRemoteWrite);
    ASSERT_TRUE(key.ok());
    keys.push_back(key.value());
  }
  for (int round = 0; round < 10; ++round) {
    for (std::size_t i = 1; i < 3; ++i) {
      std::vector<std::byte> local(100'000);
      const iovec to = piece(local);
      RmaRequest read;
      read.peer = world.peer(0, i);
      read.local = {&to, 1};
      read.length = local.size();
      read.remote_address = reinterpret_cast<std::uint64_t>(targets[i - 1].data());
      read.key = keys[i - 1].remote;
      read.report = world.report(0, nullptr);
      ASSERT_TRUE(world[0].rma(read).ok());
      ASSERT_TRUE(world.until([&] {
        holds_limit(world);
        return world.queue(0).size() == 1 || world.queue(0).has_error();
      }));
      ASSERT_FALSE(world.queue(0).has_error()) << world.queue(0).pop_error().status.text();
      take(world.queue(0));
      EXPECT_EQ(local, targets[i - 1]);
      world.progress_all(round % 2 == 0 ? 20 : 0);  // time for a connection, or none
      world.clock().advance(2'000'000);
    }
  }
  EXPECT_GT(world[0].report().connections.made, 2u);
  for (std::size_t i = 1; i < 3; ++i) world[i].memory().deregister_memory(keys[i - 1]);
}

// Where the budget has room for one more connection at most, it has room for the next as well.
TEST_P(TearDown, AVictimGivesItsBytes) {
  std::uint64_t used = 0;
  {
    TestWorld world(4, at_most(nullptr));
    connect(world, 0, 1);
    used = world[0].report().peak;
  }
  // An eighth is left to operations.
  const std::string budget = std::to_string(used * 8 / 7 + 8192);
  TestWorld world(4, at_most(nullptr, {{"memory_budget", budget}}));
  for (int round = 0; round < 2; ++round) {
    connect(world, 0, 1);
    connect(world, 0, 2);
    connect(world, 0, 3);
  }
  EXPECT_GE(connections(world).tear_downs, 1u);
  for (std::size_t i = 0; i < 4; ++i) {
    const EndpointReport report = world[i].report();
    EXPECT_LE(report.peak, report.budget);
  }
}

// A word that tears down what is not there, or comes thrice from one that does not go itself: its
// connection stands half torn down, and every message comes.
TEST_P(TearDown, ALeaveOutOfItsTurnCostsNothingButTheConnection) {
  for (const bool right : {false, true}) {
    TestWorld world(2, at_most("2"));
    connect(world, 0, 1);
    const std::uint32_t number = ForgedMessages::queue_pair(world, 0, 1);
    ASSERT_NE(number, 0u);
    wire::ControlMessage disconnect;
    disconnect.type = wire::Control::disconnect;
    disconnect.qp_id = right ? number : number + 1;
    for (int n = 0; n < 3; ++n) ForgedMessages::send(world, 0, 1, disconnect);
    for (int n = 0; n < 20; ++n) swap(world, 0, 1);
    ASSERT_FALSE(HasFatalFailure());
    EXPECT_EQ(connections(world).tear_downs_by_peers, right ? 1u : 0u);
    for (std::size_t i = 0; i < 2; ++i) {
      for (const PeerReport& peer : world[i].report().peers) EXPECT_FALSE(peer.lost);
    }
    EXPECT_EQ(over_rc(world, 1, 0), !right);
    EXPECT_TRUE(over_rc(world, 0, 1));
  }
}

INSTANTIATE_TEST_SUITE_P(Policies, TearDown,
                         testing::Values("rc-rdma-od", "srq", "ardma-srq", "ardma-sr"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace turnout
