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

}  // namespace
}  // namespace turnout::sim
