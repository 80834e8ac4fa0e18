// SPDX-License-Identifier: BSD-3-Clause
// The best maps of a line: kept, read back, damaged, and searched in several processes.
#include "sim/experiments/optimum.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <optional>

#include "sim/study/kept_results.h"
#include "tests/support/scratch.h"

namespace turnout::sim {
namespace {

using testing::HasSubstr;

Optimum some() {
  return {1.5e9 + 1.0 / 3,
          2e9,
          4,
          {{"phase 1", "all on DC-RDMA", 1e8, 1.1e8, {0.25, 0, 0.75}, 12, 37}}};
}

TEST(Optimum, IsReadBackAsItWasKept) {
  const Optimum optimum = some();
  const std::string text = to_kept_json("this", optimum);
  const Result<Optimum> read = optimum_from_kept_json(text, "this");
  ASSERT_TRUE(read.ok()) << read.status().text();
  EXPECT_EQ(read.value().time, optimum.time);
  EXPECT_EQ(to_kept_json("this", read.value()), text);
  EXPECT_THAT(optimum_from_kept_json(text, "that").status().text(), HasSubstr("\"of\""));
}

TEST(Optimum, ThatIsDamagedNamesTheField) {
  const Optimum optimum = some();
  const auto whole = nlohmann::ordered_json::parse(to_kept_json("this", optimum));
  const auto fails = [](const nlohmann::ordered_json& json, const std::string& field) {
    const Result<Optimum> read = optimum_from_kept_json(json.dump(), "this");
    ASSERT_FALSE(read.ok()) << field;
    EXPECT_THAT(read.status().text(), HasSubstr(field));
  };
  for (const auto& member : whole.items()) {
    auto without = whole;
    without.erase(member.key());
    fails(without, member.key());
  }
  for (const auto& member : whole["parts"][0].items()) {
    auto without = whole;
    without["parts"][0].erase(member.key());
    fails(without, "parts[0]." + member.key());
  }
  auto other = whole;
  other["time_ps"] = -1;
  fails(other, "time_ps");
  other = whole;
  other["parts"][0]["shares"][0] = 1.5;
  fails(other, "shares");
  other = whole;
  other["parts"][0]["shares"].push_back(0);
  fails(other, "shares");
  EXPECT_THAT(optimum_from_kept_json("{", "this").status().text(), HasSubstr("truncated"));
}

// Every map takes as long; that it was played is counted, in this process.
struct Played {
  std::uint32_t count = 0;
  Result<Outcome> operator()(const Options& options, const Program&) {
    ++count;
    Outcome outcome;
    if (options.keep_reports) outcome.pairs = {{{0, 1}, 100}};
    return outcome;
  }
};

TEST(Optimum, IsSearchedOnceForAFolderOfResults) {
  const test::Folder scratch;
  const Result<KeptResults> kept = KeptResults::open((scratch.path() / "kept").string(), "1.0");
  ASSERT_TRUE(kept.ok());
  ExperimentOptions options;
  options.profile.name = "connect-ib";
  options.kept = &kept.value();
  const std::vector<Scenario> chosen =
      scenarios_of(std::vector<std::string>{"shifts", "phases"}).value();
  std::vector<ComparedLine> lines;
  for (const Scenario& scenario : chosen) lines.push_back({8, &scenario, "12MiB", {}, {}});
  std::vector<std::string> told;
  options.told = [&](const std::string& line) { told.push_back(line); };
  Played played;
  const Runner runner = [&](const Options& run, const Program& program) {
    return played(run, program);
  };
  const auto found = [&](std::uint32_t simulations) {
    const Result<std::vector<Optimum>> optima = optima_of(lines, options, simulations, runner);
    EXPECT_TRUE(optima.ok()) << optima.status().text();
    std::string all;
    for (const Optimum& optimum : optima.value()) all += to_kept_json("", optimum);
    return all;
  };
  const std::string first = found(2);
  EXPECT_GT(played.count, 0U);
  EXPECT_THAT(told, testing::ElementsAre(HasSubstr("[1/2] best maps, shifts, 12MiB, 8 ranks"),
                                         HasSubstr("[2/2]")));
  played.count = 0;
  EXPECT_EQ(found(2), first);
  EXPECT_EQ(played.count, 0U);

  options.jobs = 2;  // of what is missing; children play
  const std::string more = found(3);
  EXPECT_EQ(played.count, 0U);
  options.kept = nullptr;
  options.jobs = 1;
  EXPECT_EQ(found(3), more);
  EXPECT_GT(played.count, 0U);
}

}  // namespace
}  // namespace turnout::sim
