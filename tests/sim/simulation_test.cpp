// SPDX-License-Identifier: BSD-3-Clause
// Programs in virtual time: they end, their messages arrive, equal seeds give equal runs.
#include "sim/runtime/simulation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "base/settings.h"

namespace turnout::sim {
namespace {

Task ring(Rank rank, int rounds) {
  for (int i = 0; i < rounds; ++i) {
    const Request in = co_await rank.irecv((rank.id() + rank.size() - 1) % rank.size(), 100, 1);
    const Request out = co_await rank.isend((rank.id() + 1) % rank.size(), 100, 1);
    co_await rank.wait(in);
    co_await rank.wait(out);
  }
}

// Everybody with everybody, in step.
Task exchange(Rank rank, int rounds, std::uint64_t bytes) {
  for (int i = 0; i < rounds; ++i) {
    for (std::uint32_t distance = 1; distance < rank.size(); ++distance) {
      const Request in =
          co_await rank.irecv((rank.id() + rank.size() - distance) % rank.size(), bytes, 1);
      const Request out = co_await rank.isend((rank.id() + distance) % rank.size(), bytes, 1);
      co_await rank.wait(in);
      co_await rank.wait(out);
    }
  }
}

TEST(Simulation, ARingEnds) {
  Options options;
  options.ranks = 8;
  auto result = run(options, [](Rank rank) { return ring(rank, 10); });
  ASSERT_TRUE(result.ok()) << result.status().text();
  EXPECT_EQ(result.value().messages, 80u);
}

// Writes and reads one-sidedly while the others look on; both ways of keeping content.
Task reach(Rank rank) {
  if (rank.id() == 0) {
    for (const std::uint64_t bytes : {0u, 1u, 4096u, 300'000u}) {
      const Request out = co_await rank.iput(1, bytes);
      const Request in = co_await rank.iget(2, bytes);
      co_await rank.wait(out);
      co_await rank.wait(in);
    }
  }
  co_await rank.barrier();
}

TEST(Simulation, OneSidedOperationsEnd) {
  for (const bool check : {true, false}) {
    Options options;
    options.ranks = 3;
    options.check_content = check;
    options.profile.wire_hop = hca::kMicrosecond;
    auto result = run(options, [](Rank rank) { return reach(rank); });
    ASSERT_TRUE(result.ok()) << result.status().text();
    EXPECT_GT(result.value().time, 4 * 2 * hca::kMicrosecond);
    EXPECT_EQ(result.value().world.regions_alive, 0u);
    EXPECT_EQ(result.value().messages, 6u);  // the barrier's
  }
}

// What was there before comes back, each cell for itself; neighbours add in the memory they share.
Task count(Rank rank, std::vector<std::uint64_t>* before) {
  rank.keep_cells(3);
  for (std::uint64_t i = 0; i < 50; ++i) {
    if (rank.id() / 2 == 0) {
      before->push_back(rank.add_in_node(0, 2, 1));
      co_await rank.compute(hca::kMicrosecond);
    } else {
      const Request one = co_await rank.iadd(0, 2);
      const Request other = co_await rank.iadd(1, 0, 7);
      before->push_back((co_await rank.wait(one)).tag);
      co_await rank.wait(other);
    }
  }
  co_await rank.barrier();
  EXPECT_EQ(rank.add_in_node(rank.id(), 0, 0), rank.id() == 1 ? 7u * 50 * 2 : 0u);
}

TEST(Simulation, ACounterGivesEachNumberOnce) {
  Options options;
  options.ranks = 4;
  options.ranks_per_node = 2;
  options.profile.wire_hop = hca::kMicrosecond;
  std::vector<std::uint64_t> before;
  auto result = run(options, [&](Rank rank) { return count(rank, &before); });
  ASSERT_TRUE(result.ok()) << result.status().text();
  std::sort(before.begin(), before.end());
  ASSERT_EQ(before.size(), 200u);
  for (std::uint64_t i = 0; i < before.size(); ++i) EXPECT_EQ(before[i], i);
  EXPECT_EQ(result.value().world.regions_alive, 0u);
}

Task add_out_of_range(Rank rank, std::uint32_t to, std::uint32_t cell, bool in_node) {
  if (rank.id() != 0) co_return;
  if (in_node) {
    rank.add_in_node(to, cell, 1);
  } else {
    const Request add = co_await rank.iadd(to, cell);
    co_await rank.wait(add);
  }
}

TEST(Simulation, CellsThatAreNotThereAreErrors) {
  for (const bool in_node : {false, true}) {
    for (const auto& [to, cell] : {std::pair{2u, 0u}, {1u, 1u}}) {
      Options options;
      auto result = run(options, [to = to, cell = cell, in_node](Rank rank) {
        return add_out_of_range(rank, to, cell, in_node);
      });
      ASSERT_FALSE(result.ok());
      EXPECT_NE(result.status().text().find("expected a cell below 1"), std::string::npos)
          << result.status().text();
    }
  }
}

// Rank 0 computes; who adds to its cell waits for its processor, or for a thread beside it.
constexpr Picoseconds kMillisecond = 1000 * hca::kMicrosecond;
Task compute_and_count(Rank rank, bool thread, Picoseconds* counted) {
  constexpr Picoseconds kTime = 5 * kMillisecond;
  if (rank.id() == 0) {
    const Picoseconds begun = rank.now();
    if (thread) {
      co_await rank.compute_beside_thread(kTime);
    } else {
      co_await rank.compute(kTime);
    }
    EXPECT_GE(rank.now() - begun, kTime);
    EXPECT_LT(rank.now() - begun, kTime + 200 * hca::kMicrosecond);
  } else {
    co_await rank.compute(10 * hca::kMicrosecond);
    const Picoseconds begun = rank.now();
    for (int i = 0; i < 10; ++i) {
      const Request add = co_await rank.iadd(0);
      co_await rank.wait(add);
    }
    *counted = rank.now() - begun;
  }
  co_await rank.barrier();
}

TEST(Simulation, AThreadBesideAComputationMakesProgress) {
  for (const bool thread : {false, true}) {
    Options options;
    options.profile.wire_hop = hca::kMicrosecond;
    Picoseconds counted = 0;
    auto result =
        run(options, [&, thread](Rank rank) { return compute_and_count(rank, thread, &counted); });
    ASSERT_TRUE(result.ok()) << result.status().text();
    if (thread) {
      EXPECT_LT(counted, kMillisecond);
    } else {
      EXPECT_GT(counted, 4 * kMillisecond);
    }
  }
}

TEST(Simulation, TellsWhomEachRankReached) {
  for (const bool keep : {false, true}) {
    Options options;
    options.ranks = 3;
    options.keep_partners = keep;
    auto result = run(options, reach);
    ASSERT_TRUE(result.ok()) << result.status().text();
    using Strings = std::vector<std::vector<std::uint32_t>>;
    // Four times put to 1 and get from 2; the barrier's messages over distances 1 and 2.
    const Strings all = {{1, 2, 1, 2, 1, 2, 1, 2, 1, 2}, {2, 0}, {0, 1}};
    EXPECT_EQ(result.value().partners, keep ? all : Strings());
  }
}

// The ways that look for a message's last byte need a buffer for each.
TEST(Simulation, OfMessagesWithoutContentRefusesWaysThatLookAtIt) {
  for (const std::string_view way : kRendezvousNames) {
    const std::string name(way);
    Options options;
    options.ranks = 2;
    options.check_content = false;
    options.settings = {{"rendezvous", name}};
    auto result = run(options, [](Rank rank) { return exchange(rank, 2, 100'000); });
    EXPECT_EQ(result.ok(), name == "getcqe" || name == "rput") << way;
    if (result.ok()) continue;
    EXPECT_NE(result.status().text().find("rendezvous = " + name), std::string::npos);
  }
}

// Processes that stand still now and then end later, with the same messages.
TEST(Simulation, SlowProcessesTakeLonger) {
  const auto time = [](std::int64_t ppm, std::uint64_t* faults) {
    Options options;
    options.ranks = 4;
    options.profile.wire_hop = hca::kMicrosecond;
    options.profile.fault_slow = ppm;
    options.profile.fault_slow_most = 50 * hca::kMicrosecond;
    auto result = run(options, [](Rank rank) { return exchange(rank, 20, 300); });
    EXPECT_TRUE(result.ok()) << result.status().text();
    EXPECT_EQ(result.value().messages, 4u * 3 * 20);
    *faults = result.value().world.faults;
    return result.value().time;
  };
  std::uint64_t none = 0, some = 0, all = 0;
  const Picoseconds fast = time(0, &none), slow = time(20'000, &some),
                    slowest = time(1'000'000, &all);
  EXPECT_EQ(none, 0u);
  EXPECT_GT(some, 0u);
  EXPECT_GT(all, some);
  EXPECT_GT(slow, fast);
  EXPECT_GT(slowest, slow);
}

Task send_before_receive(Rank rank) {
  const std::uint32_t other = 1 - rank.id();
  co_await rank.wait(co_await rank.isend(other, 100'000, 0));
  co_await rank.wait(co_await rank.irecv(other, 100'000, 0));
}

TEST(Simulation, ADeadlockNamesWhatTheRanksWaitFor) {
  Options options;
  const auto result = run(options, send_before_receive);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.status().text(),
            "deadlock: rank 0 waits for completion (send to rank 1, 100000 bytes, tag 0); rank 1 "
            "waits for completion (send to rank 0, 100000 bytes, tag 0); a send above "
            "rendezvous_threshold ends only after its receive is posted");
  options.settings.emplace_back("rendezvous_threshold", "128KiB");
  const auto eager = run(options, send_before_receive);
  EXPECT_TRUE(eager.ok()) << eager.status().text();
}

// A process dies at any moment: who waits for it is told within ten seconds, the others go on.
TEST(Simulation, TheOthersSurviveADeath) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    Random random(seed);
    Options options;
    options.seed = seed;
    options.ranks = 5;
    options.go_on_after_errors = true;
    options.profile.wire_hop = hca::kMicrosecond;
    options.profile.pcie_doorbell = hca::kMicrosecond / 2;
    options.settings = {{"policy", seed % 2 == 0 ? "rc-rdma-od" : "static:dc-sendrecv"}};
    options.kills = {{2, static_cast<Picoseconds>(random.below(100)) * hca::kMicrosecond}};
    const auto bytes = random.below(2) == 0 ? 100u : 20000u;
    auto result = run(options, [bytes](Rank rank) { return exchange(rank, 100, bytes); });
    ASSERT_TRUE(result.ok()) << "seed " << seed << ": " << result.status().text();
    const Outcome& outcome = result.value();
    EXPECT_LT(outcome.time, 10 * hca::kSecond) << "seed " << seed;
    EXPECT_GE(outcome.errors.size(), 1u) << "seed " << seed;
    for (const auto& [rank, text] : outcome.errors) {
      EXPECT_NE(rank, 2u);
      EXPECT_TRUE(text.find("is not responding") != std::string::npos ||
                  text.find("failed") != std::string::npos ||
                  text.find("closed its endpoint") != std::string::npos)
          << "seed " << seed << ": " << text;
    }
    EXPECT_EQ(outcome.world.qps_alive, 0u) << "seed " << seed;
    EXPECT_EQ(outcome.world.regions_alive, 0u) << "seed " << seed;
  }
}

}  // namespace
}  // namespace turnout::sim
