// SPDX-License-Identifier: BSD-3-Clause
// Kept registrations in virtual time: they save what registering costs, and whether one is found
// depends on the simulated program only, not on where the simulator's memory lies.
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "sim/runtime/simulation.h"

namespace turnout::sim {
namespace {

// Messages of changing sizes, several at once, one-sided operations among them.
Task mixed(Rank rank, int rounds) {
  const std::uint32_t to = (rank.id() + 1) % rank.size();
  const std::uint32_t from = (rank.id() + rank.size() - 1) % rank.size();
  for (int i = 0; i < rounds; ++i) {
    std::vector<Request> open;
    for (int m = 0; m < 1 + i % 3; ++m) {
      const std::uint64_t bytes = 5000 + static_cast<std::uint64_t>(i * m % 11) * 7000;
      open.push_back(co_await rank.irecv(from, bytes, 1));
      open.push_back(co_await rank.isend(to, bytes, 1));
    }
    if (i % 7 == 0) open.push_back(co_await rank.iput(to, 20'000));
    for (const Request request : open) co_await rank.wait(request);
  }
}

struct Played {
  std::uint64_t hash = 0;
  Picoseconds time = 0;
  std::uint64_t hits = 0, misses = 0, evictions = 0, invalidations = 0;
  bool operator==(const Played&) const = default;
};

Played play(std::vector<std::pair<std::string, std::string>> settings = {},
            Picoseconds cost = 20 * hca::kMicrosecond) {
  Options options;
  options.ranks = 4;
  options.settings = std::move(settings);
  options.profile.setup_register = cost;
  options.profile.wire_hop = hca::kMicrosecond;
  Played played;
  options.examine = [&](std::uint32_t, const EndpointReport& report) {
    const RegistrationReport& kept = report.registrations;
    played.hits += kept.hits;
    played.misses += kept.misses;
    played.evictions += kept.evictions;
    played.invalidations += kept.invalidations;
  };
  auto result = run(options, [](Rank rank) { return mixed(rank, 60); });
  EXPECT_TRUE(result.ok()) << result.status().text();
  if (!result.ok()) return played;
  played.hash = result.value().world.hash;
  played.time = result.value().time;
  EXPECT_EQ(result.value().world.regions_alive, 0u);
  return played;
}

TEST(KeptRegistrations, DoNotDependOnWhereTheSimulatorsMemoryLies) {
  const Played first = play();
  EXPECT_GT(first.hits, 100u);
  EXPECT_GT(first.misses, 10u);
  EXPECT_GT(first.invalidations, 10u);
  // Other holes in the heap each time: buffers come to lie elsewhere, and on each other's places.
  std::mt19937_64 random(3);
  std::vector<std::vector<std::byte>> holes(400);
  for (int i = 0; i < 4; ++i) {
    for (int n = 0; n < 500; ++n) {
      holes[random() % holes.size()] = std::vector<std::byte>(random() % 90'000);
    }
    EXPECT_TRUE(play() == first) << i;
  }
}

TEST(KeptRegistrations, SaveWhatRegisteringCosts) {
  const Played kept = play();
  const Played dropped = play({{"registration_cache", "0"}});
  EXPECT_EQ(dropped.hits + dropped.misses, 0u);
  EXPECT_LT(kept.time, dropped.time);
  // Where it costs nothing nothing is saved.
  EXPECT_EQ(play({}, 0).time, play({{"registration_cache", "0"}}, 0).time);
}

TEST(KeptRegistrations, AreAtMostWhatTheSettingsAllow) {
  const Played few = play({{"registration_cache_entries", "2"}});
  EXPECT_GT(few.evictions, 20u);
  const Played none = play({{"registration_cache_bytes", "0"}});
  EXPECT_GT(none.misses, few.misses);
}

}  // namespace
}  // namespace turnout::sim
