// SPDX-License-Identifier: BSD-3-Clause
// Bursts of many sources to few receivers, with the profile of a real adapter.
#include <gtest/gtest.h>

#include "sim/runtime/simulation.h"
#include "sim/study/study.h"

namespace turnout::sim {
namespace {

// All send to two ranks, which change: the receivers' limit costs no time.
TEST(HotSpots, TakeNoLongerThanWithoutALimit) {
  const auto time = [](std::uint32_t ranks, const char* messages, const char* rule) {
    StudyOptions study;
    study.workload = "hotspots";
    study.options = {{"messages", messages}, {"phases", "2"}};
    study.place = {ranks, 1, 1};
    study.profile = find_profile("connect-ib").value();
    study.policies = {"static:dc-sendrecv"};
    study.settings = {{"break_rule", rule}};
    study.check_content = false;
    const Result<Study> result = run_study(study, run);
    EXPECT_TRUE(result.ok()) << result.status().text();
    return result.ok() ? static_cast<double>(result.value().results[0].outcome.time) : 0;
  };
  for (const auto& [ranks, messages] :
       {std::pair{16u, "200"}, {32u, "100"}, {64u, "50"}, {128u, "25"}}) {
    const double limited = time(ranks, messages, ""), free = time(ranks, messages, "lend-freely");
    EXPECT_LE(limited, 1.05 * free) << ranks;
    EXPECT_GT(free, 0) << ranks;
  }
}

}  // namespace
}  // namespace turnout::sim
