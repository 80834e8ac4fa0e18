// SPDX-License-Identifier: BSD-3-Clause
// The experiments policies and clairvoyant on a runner that makes results up.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "sim/experiments/experiment.h"
#include "sim/experiments/map_search.h"
#include "sim/experiments/scenarios.h"
#include "tests/sim/mock_rank.h"

namespace turnout::sim {
namespace {

using testing::HasSubstr;
using testing::Not;

std::string setting(const Options& options, std::string_view name) {
  std::string value;
  for (const auto& [key, text] : options.settings) {
    if (key == name) value = text;
  }
  return value;
}

// Nothing is played: the phases stay empty, the time with them.
Result<Outcome> nothing(const Options& options, const Program&) {
  if (setting(options, "policy") == "rc-rdma-od") return Status{Code::over_budget, "no room"};
  Outcome o;
  o.channels = {{"DC-RDMA", 75, 0}, {"RC-RDMA", 25, 0}};
  o.memory_peak = 1 << 20;
  return o;
}

ExperimentOptions small() {
  ExperimentOptions options;
  options.profile.name = "connect-ib";
  options.sizes = {8};
  return options;
}

TEST(Scenarios, HaveWorkloadsThatTakeTheirOptions) {
  EXPECT_EQ(scenarios().size(), 12U);
  for (const Scenario& scenario : scenarios()) {
    const Result<const Workload*> workload = find_workload(scenario.workload);
    ASSERT_TRUE(workload.ok()) << workload.status().text();
    for (const std::uint32_t ranks : {8U, 16U, 64U, 1024U}) {
      const Result<Values> values = parse_values(*workload.value(), options_of(scenario, ranks));
      EXPECT_TRUE(values.ok()) << values.status().text();
    }
    for (const std::uint32_t ranks : {8U, 16U}) {
      for (const Part& part : parts_of(scenario, ranks)) {
        const Result<const Workload*> of_part = find_workload(part.workload);
        ASSERT_TRUE(of_part.ok());
        const Result<Values> values = parse_values(*of_part.value(), part.options);
        ASSERT_TRUE(values.ok()) << values.status().text();
        EXPECT_TRUE(make_instance(*of_part.value(), values.value(), {ranks, 1, 1}).ok());
      }
    }
  }
}

TEST(Scenarios, AreChosenByTitleOrWorkload) {
  EXPECT_EQ(scenarios_of({"trees", "one to all"}).value().size(), 2U);
  EXPECT_EQ(scenarios_of({"onetoall"}).value().at(0).title, "one to all");
  EXPECT_THAT(scenarios_of({"onetoal"}).status().text(), HasSubstr("did you mean onetoall?"));
}

// The parts of a scenario send what the scenario sends, without its warm-up.
TEST(Scenarios, ArePlayedInFullByTheirParts) {
  const auto sent = [](std::string_view workload, const NamedValues& options) {
    const Workload& w = *find_workload(workload).value();
    const Instance instance =
        std::move(make_instance(w, parse_values(w, options).value(), {8, 1, 3})).value();
    EXPECT_EQ(mock::play({8, 3, false}, instance.program).failure, "");
    std::uint64_t messages = 0;
    for (const Phase& phase : instance.phases->list()) {
      if (phase.name != "warmup") messages += phase.messages;
    }
    return messages;
  };
  for (const Scenario& scenario : scenarios()) {
    std::uint64_t parts = 0;
    for (const Part& part : parts_of(scenario, 8)) {
      parts += part.times * sent(part.workload, part.options);
    }
    EXPECT_EQ(parts, sent(scenario.workload, options_of(scenario, 8))) << scenario.title;
  }
}

// Phase by phase: the same directions as in the longer run.
TEST(Scenarios, PhasesByThemselvesHaveTheirPartners) {
  for (const char* name : {"phases", "hotspots"}) {
    const Workload& w = *find_workload(name).value();
    const auto pairs = [&](const NamedValues& options) {
      const Instance instance =
          std::move(make_instance(w, parse_values(w, options).value(), {9, 1, 5})).value();
      return mock::play({9, 5, false}, instance.program).pairs;
    };
    const auto whole = pairs({{"phases", "3"}, {"messages", "40"}});
    auto sum = whole;
    for (auto& [pair, count] : sum) count = 0;
    for (const char* first : {"0", "1", "2"}) {
      for (const auto& [pair, count] :
           pairs({{"phases", "1"}, {"first", first}, {"messages", "40"}})) {
        sum[pair] += count;
      }
    }
    EXPECT_EQ(sum, whole) << name;
  }
}

TEST(Policies, TellWhatEachDidWhereOursIsBehind) {
  ExperimentOptions options = small();
  options.workloads = {"trees"};
  options.budgets = {"10MiB"};
  std::vector<NamedValues> seen;
  const Result<ExperimentResult> result =
      find_experiment("policies")
          .value()
          ->run(options, [&](const Options& o, const Program& p) -> Result<Outcome> {
            seen.push_back(o.settings);
            if (setting(o, "policy") == "turnout") return Status{Code::peer_lost, "rank 3: lost"};
            return nothing(o, p);
          });
  ASSERT_TRUE(result.ok()) << result.status().text();
  EXPECT_EQ(seen.size(), 4U);
  const std::string& page = result.value().page;
  EXPECT_THAT(page,
              HasSubstr("| trees | 10MiB | 0.000 ms | failed | **1.00** | **1.00** | failed |"));
  EXPECT_THAT(page, HasSubstr("### Where `turnout` is not within 2 % of the best"));
  EXPECT_THAT(page, HasSubstr("| aqps | 1.00 | 0.0 % | 75.0 % | 25.0 % | 0 | never | 0 |"));
  EXPECT_THAT(page, HasSubstr("rank 3: lost"));
  EXPECT_THAT(page, HasSubstr("--workloads 'trees' --budgets 10MiB"));
  EXPECT_THAT(page, Not(HasSubstr("stencil")));
  EXPECT_THAT(page, HasSubstr("{plot}\n"));
  ASSERT_EQ(result.value().plots.size(), 1U);
  const Plot& plot = result.value().plots[0];
  EXPECT_THAT(plot.rows, testing::ElementsAre("trees"));
  ASSERT_EQ(plot.series.size(), 4U);
  EXPECT_EQ(plot.series[1].name, "aqps");
  EXPECT_THAT(plot.series[1].points, testing::ElementsAre(testing::Pair(1.0, 0.0)));
  // A run that failed has no time.
  EXPECT_THAT(to_json(result.value().plots), HasSubstr("null"));
}

TEST(Policies, AreComparedOnARecordingInPlaceOfTheWorkloads) {
  ExperimentOptions options = small();
  Scenario recording;
  recording.title = "heat-8";
  recording.workload = "replay";
  recording.about = "recorded with 8 ranks";
  std::uint32_t made = 0;
  recording.make = [&made](const Place& place) {
    ++made;
    const Workload& workload = *find_workload("trees").value();
    return make_instance(workload, parse_values(workload, {}).value(), place);
  };
  options.recordings = {recording};
  options.budgets = {"10MiB"};
  const Runner runner = [](const Options& given, const Program&) -> Result<Outcome> {
    EXPECT_EQ(given.time_limit, kLongestRecording);
    return Outcome{};
  };
  const Result<ExperimentResult> result = find_experiment("policies").value()->run(options, runner);
  ASSERT_TRUE(result.ok()) << result.status().text();
  EXPECT_EQ(made, 4U);  // a run of each policy
  EXPECT_THAT(result.value().page, HasSubstr("| heat-8 | 10MiB |"));
  EXPECT_THAT(result.value().page, HasSubstr("- **heat-8** (`replay`): recorded with 8 ranks"));
  EXPECT_THAT(result.value().page, HasSubstr("--seed 1 --trace 'heat-8' --budgets 10MiB"));
  EXPECT_THAT(result.value().page, Not(HasSubstr("stencil")));
}

TEST(Policies, AreCheckedBeforeTheFirstRun) {
  const auto text = [](auto change) {
    ExperimentOptions options = small();
    change(options);
    return find_experiment("policies").value()->run(options, nothing).status().text();
  };
  EXPECT_THAT(text([](auto& o) { o.workloads = {"tree"}; }), HasSubstr("did you mean trees?"));
  EXPECT_THAT(text([](auto& o) { o.budgets = {"1X"}; }), HasSubstr("--budgets 1X"));
  EXPECT_THAT(text([](auto& o) { o.options = {{"messages", "1"}}; }), HasSubstr("--option"));
}

TEST(RcRoom, KeepsEachRankWithinItsQueuePairs) {
  // Everybody to everybody, rank 0's the most.
  std::vector<Direction> all;
  for (std::uint32_t a = 0; a < 6; ++a) {
    for (std::uint32_t b = 0; b < 6; ++b) {
      if (a != b) all.push_back({a, b, 100 - 10 * a - b});
    }
  }
  const RcRoom room(all, 6, 2);
  ChannelMap map(6);
  room.give(all, &map);
  for (std::uint32_t rank = 0; rank < 6; ++rank) EXPECT_LE(room.used(map, rank), 2U);
  EXPECT_EQ(map.at(0, 1), ChannelKind::rc_rdma);
  EXPECT_EQ(map.at(1, 0), ChannelKind::rc_rdma);  // the same queue pair
  EXPECT_EQ(map.at(0, 5), ChannelKind::dc_rdma);
  // One that is wanted takes the place of a less busy pair.
  room.give({{0, 5, 95}}, &map);
  EXPECT_EQ(map.at(0, 5), ChannelKind::rc_rdma);
  EXPECT_EQ(map.at(0, 2), ChannelKind::dc_rdma);
  for (std::uint32_t rank = 0; rank < 6; ++rank) EXPECT_LE(room.used(map, rank), 2U);
  const RcRoom none(all, 6, 0);
  ChannelMap dc(6);
  none.give(all, &dc);
  EXPECT_EQ(dc, [] {
    ChannelMap expected(6, ChannelKind::dc_rdma);
    for (std::uint32_t rank = 0; rank < 6; ++rank) {
      expected.set(rank, rank, ChannelKind::dc_sendrecv);
    }
    return expected;
  }());
}

}  // namespace
}  // namespace turnout::sim
