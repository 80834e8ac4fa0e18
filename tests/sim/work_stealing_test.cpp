// SPDX-License-Identifier: BSD-3-Clause
// Work stealing, in which chance decides more than a policy does, with many seeds.
#include <gtest/gtest.h>

#include <cmath>

#include "sim/experiments/scenarios.h"
#include "sim/runtime/simulation.h"
#include "sim/study/study.h"

namespace turnout::sim {
namespace {

// Single runs differ by a tenth in either direction: another number of initiators changes which
// rank finds work first. `aqps` is the best other policy there on the page `policies`.
TEST(WorkStealing, TakesAsLongAsUnderAqpsOverTenSeeds) {
  constexpr std::uint32_t kRanks = 64, kSeeds = 10;
  const Scenario scenario = scenarios_of({"steal"}).value().at(0);
  double logs = 0, most = 0;
  for (std::uint32_t seed = 1; seed <= kSeeds; ++seed) {
    StudyOptions study;
    study.workload = scenario.workload;
    study.options = options_of(scenario, kRanks);
    study.place = {kRanks, 1, seed};
    study.profile = find_profile("connect-ib").value();
    study.policies = {"turnout", "aqps"};
    study.settings = {{"memory_budget", "48MiB"}};
    study.check_content = false;
    const Result<Study> result = run_study(study, run);
    ASSERT_TRUE(result.ok()) << result.status().text();
    const std::vector<PolicyResult>& results = result.value().results;
    const double ratio =
        static_cast<double>(results[0].outcome.time) / static_cast<double>(results[1].outcome.time);
    logs += std::log(ratio);
    most = std::max(most, ratio);
  }
  EXPECT_LE(std::exp(logs / kSeeds), 1.02);
  EXPECT_GT(most, 1.02) << "seeds do not differ; the page need not speak of chance";
}

// Of one task, which rank 0 keeps: all the others wait for the token that finds the end.
// `in_step`: all look for messages at the same times, as in the workload.
double time_of_search(bool token_over_rc, bool in_step) {
  constexpr std::uint32_t kRanks = 256;
  const Scenario scenario = scenarios_of({"steal"}).value().at(0);
  NamedValues given = options_of(scenario, kRanks);
  given.emplace_back("tasks", "1");
  const Workload* const workload = find_workload(scenario.workload).value();
  Options options;
  options.ranks = kRanks;
  options.profile = find_profile("connect-ib").value().profile;
  options.settings = {{"policy", "static:dc-sendrecv"}};
  options.keep_latencies = options.check_content = false;
  options.prepares = true;
  options.first_channel = [&](std::uint32_t source, std::uint32_t destination) {
    return token_over_rc && destination == (source + 1) % kRanks ? ChannelKind::rc_rdma
                                                                 : ChannelKind::dc_sendrecv;
  };
  const Instance instance =
      make_instance(*workload, parse_values(*workload, given).value(), {kRanks, 1, 1}).value();
  const Result<Outcome> result = run(options, [&](Rank rank) -> Task {
    constexpr std::uint64_t kPoll = 20 * hca::kMicrosecond;
    if (!in_step) co_await rank.compute(static_cast<Picoseconds>(rank.random().below(kPoll)));
    co_await instance.program(rank);
  });
  EXPECT_TRUE(result.ok()) << result.status().text();
  return result.ok() ? static_cast<double>(result.value().time) : 0;
}

// What the page `policies` says of 1,024 processes.
TEST(WorkStealing, EndsSoonerIfTheTokenFindsRcInItsLaterRoundsMostlyForPollsInStep) {
  const double in_step = time_of_search(true, true) / time_of_search(false, true);
  const double out_of_step = time_of_search(true, false) / time_of_search(false, false);
  EXPECT_LT(in_step, 0.9);
  EXPECT_LT(1 - out_of_step, (1 - in_step) / 2);
}

}  // namespace
}  // namespace turnout::sim
