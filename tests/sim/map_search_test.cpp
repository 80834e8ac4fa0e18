// SPDX-License-Identifier: BSD-3-Clause
// The channel a simulation gives a direction, and the search for the best map, on the real core.
#include "sim/experiments/map_search.h"

#include <gtest/gtest.h>

#include "core/report/report.h"
#include "sim/formats/profile_file.h"
#include "sim/runtime/rank_operations.h"
#include "sim/runtime/simulation.h"

namespace turnout::sim {
namespace {

Task all_to_all(Rank rank, int rounds) {
  for (int i = 0; i < rounds; ++i) {
    for (std::uint32_t distance = 1; distance < rank.size(); ++distance) {
      const std::uint32_t n = rank.size();
      const Request in = co_await rank.irecv((rank.id() + n - distance) % n, 8, 1);
      const Request out = co_await rank.isend((rank.id() + distance) % n, 8, 1);
      co_await rank.wait(in);
      co_await rank.wait(out);
    }
  }
}

// Each direction is on what was said, from soon after its first message, and stays there.
TEST(FirstChannel, IsThatOfTheMap) {
  ChannelMap map(5);
  map.set(0, 1, ChannelKind::dc_rdma);
  map.set(2, 1, ChannelKind::rc_rdma);
  map.set(1, 4, ChannelKind::rc_rdma);
  map.set(4, 1, ChannelKind::dc_rdma);
  Options options;
  options.ranks = 5;
  options.settings = {{"policy", "static:dc-sendrecv"}};
  options.first_channel = [&](std::uint32_t source, std::uint32_t destination) {
    return map.at(source, destination);
  };
  const auto result = run(options, [](Rank rank) { return all_to_all(rank, 300); });
  ASSERT_TRUE(result.ok()) << result.status().text();
  std::size_t seen = 0;
  for (std::uint32_t rank = 0; rank < 5; ++rank) {
    for (const PeerReport& peer : result.value().reports.at(rank).peers) {
      ASSERT_FALSE(peer.receive.spans.empty());
      EXPECT_EQ(peer.receive.spans.back().channel, map.at(rank_of(peer.endpoint), rank))
          << rank_of(peer.endpoint) << " to " << rank;
      EXPECT_LE(peer.receive.switches, 1U);
      ++seen;
    }
  }
  EXPECT_EQ(seen, 20U);
  EXPECT_EQ(result.value().switches, 4U);
}

// Without one, runs are what they were: a map of what the policy does changes nothing.
TEST(FirstChannel, OfThePolicyChangesNothing) {
  Options options;
  options.ranks = 4;
  options.settings = {{"policy", "dc-rdma-od"}};
  const auto plain = run(options, [](Rank rank) { return all_to_all(rank, 50); });
  options.first_channel = [](std::uint32_t, std::uint32_t) { return ChannelKind::dc_rdma; };
  const auto mapped = run(options, [](Rank rank) { return all_to_all(rank, 50); });
  ASSERT_TRUE(plain.ok() && mapped.ok());
  EXPECT_EQ(plain.value().world.hash, mapped.value().world.hash);
}

SearchOptions search(const char* workload, NamedValues workload_options, const char* budget) {
  SearchOptions options;
  options.part = {"all", workload, std::move(workload_options), 1};
  options.place = {6, 1, 1};
  options.profile = std::move(find_profile("connect-ib")).value();
  options.settings = {{"memory_budget", budget}};
  options.simulations = 6;
  options.judged_messages = 2000;
  return options;
}

// Time of one map that stays, as the search measures it at full length.
TEST(MapSearch, IsNeverWorseThanTheMapItBeganWith) {
  for (const char* budget : {"9MiB", "32MiB"}) {
    const SearchOptions options = search("onetoall", {{"messages", "6000"}}, budget);
    const Result<FoundMap> found = search_map(options, run);
    ASSERT_TRUE(found.ok()) << found.status().text();
    EXPECT_GT(found.value().time, 0);
    EXPECT_LE(found.value().time, found.value().best_start);
    EXPECT_FALSE(found.value().start.empty());
    double shares = 0;
    for (const double share : found.value().shares) shares += share;
    EXPECT_NEAR(shares, 1, 1e-9);
  }
}

// The maps it begins with, searched no further, bound what it finds; with changes it finds no
// worse.
TEST(MapSearch, ImprovesWithMoreMaps) {
  SearchOptions options = search("random", {{"messages", "600"}, {"neighbours", "3"}}, "9MiB");
  options.judged_messages = 1'000'000;  // judged at full length, so that better there is better
  options.simulations = 0;
  const Result<FoundMap> starts = search_map(options, run);
  options.simulations = 20;
  const Result<FoundMap> more = search_map(options, run);
  ASSERT_TRUE(starts.ok() && more.ok());
  EXPECT_EQ(starts.value().time, starts.value().best_start);
  EXPECT_EQ(starts.value().best_start, more.value().best_start);
  EXPECT_LE(more.value().time, starts.value().time);
  EXPECT_GE(more.value().simulations, starts.value().simulations);
  // Deterministic.
  EXPECT_EQ(search_map(options, run).value().time, more.value().time);
}

// Channels that a warm-up sets up cost nothing afterwards; without it they cost their set-up.
TEST(MapSearch, PaysSetUpBeforeOrInThePart) {
  SearchOptions options = search("onetoall", {{"messages", "3000"}}, "32MiB");
  const Result<FoundMap> found = search_map(options, run);
  ASSERT_TRUE(found.ok()) << found.status().text();
  const Result<Picoseconds> cold = time_with_setup(options, {&found.value(), 1}, run);
  options.part.options.emplace_back("warmup", "120000");
  const Result<Picoseconds> warm = time_with_setup(options, {&found.value(), 1}, run);
  ASSERT_TRUE(cold.ok() && warm.ok());
  EXPECT_GT(static_cast<double>(cold.value()), 1.05 * static_cast<double>(found.value().time));
  EXPECT_NEAR(static_cast<double>(warm.value()), static_cast<double>(found.value().time),
              0.05 * static_cast<double>(found.value().time));
}

// A recording cannot be shortened: it is played whole, however many messages it has.
TEST(MapSearch, PlaysAProgramOfItsOwnAtFullLength) {
  const SearchOptions named = search("onetoall", {{"messages", "1000"}}, "32MiB");
  SearchOptions options = named;
  options.part.workload = "replay";
  options.part.options.clear();
  std::uint32_t made = 0;
  options.part.make = [&](const Place& place) {
    ++made;
    const Workload& workload = *find_workload("onetoall").value();
    return make_instance(workload, parse_values(workload, named.part.options).value(), place);
  };
  options.judged_messages = 10;
  const Result<FoundMap> found = search_map(options, run);
  ASSERT_TRUE(found.ok()) << found.status().text();
  EXPECT_EQ(made, 2 * found.value().simulations);  // to set the channels up, and to judge
  std::uint64_t messages = 0;
  for (const Direction& d : found.value().directions) messages += d.messages;
  EXPECT_GE(messages, 2000U);
  EXPECT_GT(time_with_setup(options, {&found.value(), 1}, run).value(), found.value().time);
}

// Each direction has the channel of the part in which it has messages.
TEST(MapSearch, PlaysTheMapsOfAllPartsTogether) {
  SearchOptions options = search("onetoall", {{"messages", "2000"}}, "32MiB");
  const Result<FoundMap> out = search_map(options, run);
  options.part.workload = "alltoone";
  const Result<FoundMap> in = search_map(options, run);
  ASSERT_TRUE(out.ok() && in.ok());
  options.part = {
      "all",
      "repeat",
      {{"messages_out", "2000"}, {"messages_in", "2000"}, {"times", "2"}, {"warmup", "40"}},
      1};
  const std::vector<FoundMap> parts = {out.value(), in.value()};
  const Result<Picoseconds> both = time_with_setup(options, parts, run);
  ASSERT_TRUE(both.ok()) << both.status().text();
  const double alone = static_cast<double>(2 * (out.value().time + in.value().time));
  EXPECT_NEAR(static_cast<double>(both.value()), alone, 0.1 * alone);
}

// What a search finds is the time of all on one channel at most: those maps are among its starts.
TEST(MapSearch, IsNoWorseThanEachStaticMap) {
  SearchOptions options = search("trees", {{"rounds", "150"}}, "32MiB");
  options.judged_messages = 1'000'000;
  options.simulations = 0;
  const Result<FoundMap> found = search_map(options, run);
  ASSERT_TRUE(found.ok()) << found.status().text();
  const Workload& workload = *find_workload("trees").value();
  for (const ChannelKind kind :
       {ChannelKind::dc_sendrecv, ChannelKind::dc_rdma, ChannelKind::rc_rdma}) {
    const Instance instance =
        std::move(make_instance(workload, parse_values(workload, options.part.options).value(),
                                options.place))
            .value();
    Options one;
    one.ranks = 6;
    one.profile = options.profile.profile;
    one.settings = {
        {"memory_budget", "32MiB"}, {"policy", "static:dc-sendrecv"}, {"data_qps", "12"}};
    one.check_content = false;
    one.first_channel = [kind](std::uint32_t, std::uint32_t) { return kind; };
    const auto played = run(one, instance.program);
    ASSERT_TRUE(played.ok());
    const Phase& phase = instance.phases->list().at(0);
    // Setting up is inside this one, so it takes longer than what the search compares.
    EXPECT_LE(found.value().time, (phase.end - phase.begin) * 102 / 100) << name(kind);
  }
}

}  // namespace
}  // namespace turnout::sim
