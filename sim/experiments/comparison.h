// SPDX-License-Identifier: BSD-3-Clause
// The runs behind a comparison of policies: each scenario, number of ranks and budget is a line,
// with a run of each policy.
//
// Times are those of all timed phases of a run, picoseconds. Errors: those of the options and of
// what no run can do without (a device, valid settings); the failure of a single run stands in its
// line. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "sim/experiments/experiment.h"
#include "sim/experiments/scenarios.h"

namespace turnout::sim {

inline constexpr double kAsGood = 1.02;  // within 2 % of the best

struct ComparedLine {
  std::uint32_t ranks = 0;
  const Scenario* scenario = nullptr;  // of those given to compare()
  std::string budget;
  std::map<std::string, PolicyResult> results;  // by policy; a run that failed has none
  std::map<std::string, std::string> failures;

  [[nodiscard]] std::optional<double> time(const std::string& policy) const;
  [[nodiscard]] double best() const;
  // Time divided by the best; none: the run failed.
  [[nodiscard]] std::optional<double> ratio(const std::string& policy) const;
  [[nodiscard]] bool behind(const std::string& policy) const {
    return ratio(policy).value_or(kAsGood + 1) > kAsGood;
  }
};

// The recordings of the options, or else the workloads that they name.
[[nodiscard]] Result<std::vector<Scenario>> scenarios_of(const ExperimentOptions& options);

// In the order of the sizes, the scenarios, the budgets.
[[nodiscard]] Result<std::vector<ComparedLine>> compare(const std::vector<Scenario>& scenarios,
                                                        const std::vector<std::uint32_t>& sizes,
                                                        const std::vector<std::string>& policies,
                                                        const ExperimentOptions& options,
                                                        const Runner& runner);

// Time of a policy divided by some other time; none: the run failed.
using RatioOf = std::function<std::optional<double>(std::size_t line, const std::string& policy)>;
// Dots, a plot for each number of ranks: a row for each scenario, in it the budgets in their order.
// `best`: what the times are divided by.
[[nodiscard]] std::vector<Plot> ratio_plots(const std::vector<ComparedLine>& lines,
                                            const std::vector<std::uint32_t>& sizes,
                                            const std::vector<std::string>& policies,
                                            std::string_view best, const RatioOf& ratio);

// What the runs of these sizes have as settings, for the page.
[[nodiscard]] std::string settings_text(const std::vector<std::uint32_t>& sizes,
                                        const ExperimentOptions& options);

// The run of a policy in a line.
[[nodiscard]] StudyOptions study_of(const ComparedLine& line, const std::string& policy,
                                    const ExperimentOptions& options);
// Settings of a line's runs, the policy's own excepted.
[[nodiscard]] NamedValues settings_of(const ComparedLine& line, const ExperimentOptions& options);

}  // namespace turnout::sim
