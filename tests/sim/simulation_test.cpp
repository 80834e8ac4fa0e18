// Programs in virtual time: they end, their messages arrive, equal seeds give equal runs.
#include "sim/simulation.h"

#include <gtest/gtest.h>

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
    for (const std::uint64_t bytes : {0, 1, 4096, 300'000}) {
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
      EXPECT_TRUE(text.find("does not answer") != std::string::npos ||
                  text.find("failed") != std::string::npos ||
                  text.find("has closed") != std::string::npos)
          << "seed " << seed << ": " << text;
    }
    EXPECT_EQ(outcome.world.qps_alive, 0u) << "seed " << seed;
    EXPECT_EQ(outcome.world.regions_alive, 0u) << "seed " << seed;
  }
}

}  // namespace
}  // namespace turnout::sim
