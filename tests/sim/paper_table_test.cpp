// SPDX-License-Identifier: BSD-3-Clause
#include "sim/experiments/paper_table.h"

#include <gtest/gtest.h>

namespace turnout::sim {
namespace {

std::unique_ptr<selection::Statistics> made(std::uint32_t sigma, std::size_t max_bytes = 1 << 20) {
  return PaperTable::create(sigma, max_bytes).value();
}

// `messages` from each of so many sources.
void keep(selection::Statistics& table, selection::Time begin, std::uint32_t sources,
          std::uint64_t messages = 1) {
  ASSERT_TRUE(table.begin_interval({begin, begin + 1}).ok());
  for (std::uint32_t peer = 0; peer < sources; ++peer) table.count(peer, messages, false);
  table.end_interval(0);
}

TEST(PaperTable, NothingYet) {
  const auto table = made(16);
  EXPECT_EQ(table->counts({0, 1}).window, selection::TimeWindow{});
  EXPECT_TRUE(table->slots().empty());
  EXPECT_FALSE(table->newest().has_value());
  table->forget(3);
}

TEST(PaperTable, RefusesWhatHoldsNothing) {
  EXPECT_EQ(PaperTable::create(0, 1 << 20).status().code(), Code::invalid);
  EXPECT_EQ(PaperTable::create(2048, 1000).status().code(), Code::invalid);
}

TEST(PaperTable, WindowsAreTheNearestBorders) {
  const auto table = made(16);
  for (selection::Time t = 0; t < 4; ++t) keep(*table, t, 1, 1U << t);
  EXPECT_EQ(table->counts({0, 4}).of(0), 15u);
  EXPECT_EQ(table->counts({1, 4}).window, (selection::TimeWindow{1, 4}));
  EXPECT_EQ(table->counts({1, 3}).of(0), 6u);
  EXPECT_EQ(table->newest(), (selection::TimeWindow{3, 4}));
  // An interval that has not ended is in no answer.
  ASSERT_TRUE(table->begin_interval({4, 5}).ok());
  table->count(0, 1000, false);
  EXPECT_EQ(table->counts({0, 5}).of(0), 15u);
  EXPECT_EQ(table->slots().size(), 4u);
}

TEST(PaperTable, TakesEightBytesTimesSigmaASource) {
  const auto table = made(32);
  EXPECT_EQ(table->bytes(), 0u);
  for (selection::Time t = 0; t < 100; ++t) {
    keep(*table, t, 3, 2);
    EXPECT_EQ(table->bytes(), 8u * 32 * 3);
  }
  const selection::WindowCounts counts = table->counts({0, 100});
  EXPECT_EQ(counts.window, (selection::TimeWindow{68, 100})) << "the last 32";
  EXPECT_EQ(counts.of(2), 64u);
  table->forget(2);
  EXPECT_EQ(table->bytes(), 8u * 32 * 2);
  EXPECT_EQ(table->counts({0, 100}).messages, 32u * 2 * 2);
}

TEST(PaperTable, KeepsItsLimit) {
  constexpr std::size_t kLimit = 10'000;
  const auto table = made(32, kLimit);
  for (selection::Time t = 0; t < 40; ++t) {
    EXPECT_LE(table->bytes_during_next(100), kLimit);
    keep(*table, t, 100);
    EXPECT_LE(table->bytes() + table->index_bytes(), kLimit);
  }
  const selection::WindowCounts counts = table->counts({0, 40});
  EXPECT_GT(counts.sources.size(), 10u);
  EXPECT_LT(counts.sources.size(), 100u);
  EXPECT_EQ(counts.messages, 32u * 100);
  EXPECT_GE(counts.missing, 32u);
}

TEST(PaperTable, ARunWithEntriesKeepsOne) {
  Options options;
  options.settings = {{"interval", "1ms"}, {std::string(kStatisticsEntries), "8"}};
  std::size_t row = 0;
  const Runner runner =
      with_paper_table([&](const Options& run, const Program&) -> Result<Outcome> {
        EXPECT_EQ(run.settings.size(), 1u);
        const auto table = run.make_statistics(1 << 20).value();
        keep(*table, 0, 1);
        row = table->bytes();
        return Outcome{};
      });
  EXPECT_TRUE(runner(options, {}));
  EXPECT_EQ(row, 8u * 8);
}

TEST(PaperTable, AnyOtherRunStaysAsItIs) {
  const Runner runner = with_paper_table([](const Options& run, const Program&) -> Result<Outcome> {
    EXPECT_FALSE(run.make_statistics);
    return Outcome{};
  });
  EXPECT_TRUE(runner(Options{}, {}));
}

}  // namespace
}  // namespace turnout::sim
