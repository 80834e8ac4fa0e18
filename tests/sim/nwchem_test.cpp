// SPDX-License-Identifier: BSD-3-Clause
// The NWChem-like program on the small runtime: its plan, and that everything is accounted for.
#include "sim/workloads/nwchem.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "sim/analysis/victim_bound.h"
#include "tests/sim/mock_rank.h"

namespace turnout::sim {
namespace {

NwchemShape small() {
  NwchemShape shape;
  shape.tasks = 3001;
  shape.chunk = 4;
  shape.iterations = 3;
  shape.tiles = 12;
  shape.reach = 2;
  shape.far = 50;
  shape.bytes = 100;
  shape.neighbours = 2;
  shape.halo = 30;
  shape.reduced = 8;
  shape.work = 20'000;
  return shape;
}

TEST(NwchemPlan, DealsTilesBlockCyclically) {
  // 13 nodes of 4 and one of 2 ranks: owners in 2 x 7.
  const NwchemPlan plan(small(), {54, 4, 1});
  std::set<std::pair<std::uint32_t, std::uint32_t>> places;
  std::set<std::uint32_t> owners;
  for (std::uint32_t i = 0; i < 12; ++i) {
    for (std::uint32_t j = 0; j < 12; ++j) {
      const NwchemPlan::Tile tile = plan.tile(i, j);
      EXPECT_EQ(tile.owner, (i % 2 * 7 + j % 7) * 4);
      EXPECT_GE(tile.cell, 1u);
      EXPECT_LT(tile.cell, plan.cells());
      EXPECT_TRUE(places.insert({tile.owner, tile.cell}).second) << i << " " << j;
      owners.insert(tile.owner);
    }
  }
  EXPECT_EQ(owners.size(), 14u);
}

TEST(NwchemPlan, CombinesTilesThatAreNear) {
  NwchemShape shape = small();
  const auto apart = [&](std::uint32_t a, std::uint32_t b) {
    const std::uint32_t d = (a + shape.tiles - b) % shape.tiles;
    return std::min(d, shape.tiles - d);
  };
  const auto count = [&](std::uint32_t far) {
    shape.far = far;
    const NwchemPlan plan(shape, {16, 1, 5});
    std::uint64_t beyond = 0;
    std::uint32_t row = 0;
    std::set<std::pair<std::uint32_t, std::uint32_t>> pairs;
    for (std::uint64_t t = 0; t < shape.tasks; ++t) {
      const NwchemTask task = plan.task(t);
      EXPECT_GE(task.i, row);
      row = task.i;
      EXPECT_LE(apart(task.i, task.j), shape.reach);
      if (apart(task.j, task.k) > shape.reach) ++beyond;
      pairs.insert({task.i, task.j});
    }
    EXPECT_EQ(row, shape.tiles - 1);
    EXPECT_EQ(pairs.size(), shape.tiles * (2 * shape.reach + 1));
    return beyond;
  };
  EXPECT_EQ(count(0), 0u);
  // Of 12 tiles 5 are near.
  EXPECT_NEAR(static_cast<double>(count(500)), 3001 * 0.5 * 7 / 12, 100);
}

TEST(NwchemPlan, CutsTasksIntoIterations) {
  for (const std::uint64_t tasks : {0u, 1u, 7u, 100u}) {
    NwchemShape shape = small();
    shape.tasks = tasks;
    shape.iterations = 7;
    const NwchemPlan plan(shape, {4, 1, 1});
    EXPECT_EQ(plan.first(0), 0u);
    EXPECT_EQ(plan.first(7), tasks);
    for (std::uint32_t i = 0; i < 7; ++i) {
      const std::uint64_t own = plan.first(i + 1) - plan.first(i);
      EXPECT_TRUE(own == tasks / 7 || own == tasks / 7 + 1);
      EXPECT_EQ(plan.chunks(i), (own + 3) / 4);
    }
  }
}

TEST(Nwchem, AccountsForEveryMessageAndOperation) {
  for (const auto& [ranks, per_node] :
       {std::pair{2u, 1u}, {2u, 2u}, {3u, 2u}, {16u, 1u}, {30u, 4u}}) {
    for (const bool thread : {false, true}) {
      NwchemShape shape = small();
      shape.thread = thread;
      const Place place{ranks, per_node, 3};
      const auto counts = std::make_shared<NwchemCounts>();
      const auto phases = std::make_shared<Phases>();
      mock::Options options{ranks, 3};
      options.ranks_per_node = per_node;
      const mock::Outcome outcome = mock::play(options, make_nwchem(shape, place, phases, counts));
      // Sums, and that each task was taken once, are checked by the program.
      ASSERT_EQ(outcome.failure, "") << ranks << " ranks";
      const NwchemCounts& c = *counts;
      const NwchemPlan plan(shape, place);
      std::uint64_t asked = 0;
      for (std::uint32_t i = 0; i < shape.iterations; ++i) asked += plan.chunks(i) + ranks;
      EXPECT_EQ(c.tasks, shape.tasks);
      EXPECT_EQ(c.counted + c.counted_in_node, asked);
      EXPECT_EQ(c.gets + c.gets_in_node, 2 * shape.tasks);
      EXPECT_EQ(c.accumulated + c.accumulated_in_node, shape.tasks);
      EXPECT_EQ(outcome.gets, c.gets);
      EXPECT_EQ(outcome.puts, c.accumulated);
      EXPECT_EQ(outcome.adds, c.accumulated + c.counted);
      EXPECT_EQ(outcome.one_sided, outcome.gets + outcome.puts + outcome.adds);
      const std::uint64_t neighbours = std::min(2u, ranks - 1);
      EXPECT_EQ(c.messages, 3 * (ranks * 2 * neighbours + 2 * (ranks - 1)));
      EXPECT_EQ(outcome.messages, c.messages);
      EXPECT_EQ(outcome.bytes, (c.gets + c.accumulated) * 100 + 3 * ranks * 2 * neighbours * 30 +
                                   3 * 2 * (ranks - 1) * 8);
      EXPECT_EQ(outcome.barriers, 3u);
      ASSERT_EQ(phases->list().size(), 1u);
      EXPECT_EQ(phases->list()[0].messages, c.messages);
      EXPECT_EQ(outcome.one_sided == 0, per_node >= ranks);
    }
  }
}

// One rank takes a number that is no task's.
TEST(Nwchem, TellsOfATaskThatNobodyTook) {
  const Place place{4, 1, 3};
  const auto counts = std::make_shared<NwchemCounts>();
  const Program program = make_nwchem(small(), place, std::make_shared<Phases>(), counts);
  const auto steals = [](Rank rank, Program inner) -> Task {
    if (rank.id() == 0) rank.add_in_node(0, 0, 1);
    co_await inner(rank);
  };
  const mock::Outcome outcome =
      mock::play({4, 3}, [&](Rank rank) { return steals(rank, program); });
  EXPECT_NE(outcome.failure.find("of 3001 tasks were taken"), std::string::npos) << outcome.failure;
}

TEST(Nwchem, TellsOfASumThatIsWrong) {
  const Place place{4, 1, 3};
  const Program program = make_nwchem(small(), place, std::make_shared<Phases>(), nullptr);
  const auto spoils = [](Rank rank, Program inner) -> Task {
    rank.keep_cells(2);
    rank.add_in_node(rank.id(), 1, rank.id() == 2 ? 1 : 0);
    co_await inner(rank);
  };
  const mock::Outcome outcome =
      mock::play({4, 3}, [&](Rank rank) { return spoils(rank, program); });
  EXPECT_NE(outcome.failure.find("of rank 2 is"), std::string::npos) << outcome.failure;
}

// Few owners at any time, most of them over the run.
TEST(Nwchem, MovesOverItsPartners) {
  NwchemShape shape = small();
  shape.chunk = 1;
  shape.iterations = 1;
  shape.tiles = 16;
  shape.far = 0;
  shape.tasks = 64 * 256;
  const mock::Outcome outcome =
      mock::play({256, 3}, make_nwchem(shape, {256, 1, 3}, std::make_shared<Phases>(), nullptr));
  ASSERT_EQ(outcome.failure, "");
  ASSERT_EQ(outcome.partners.size(), 256u);
  for (std::uint32_t rank = 1; rank < 256; ++rank) {
    const std::vector<std::uint32_t>& all = outcome.partners[rank];
    const std::uint64_t distinct = distinct_partners(all);
    EXPECT_GT(distinct, 60u);
    for (std::size_t at = 0; at + 20 <= all.size(); at += 20) {
      EXPECT_LE(distinct_partners(std::span(all).subspan(at, 20)), 16u);
    }
    EXPECT_LT(2 * clairvoyant_connections(all, 8).made, all.size());
  }
}

}  // namespace
}  // namespace turnout::sim
