// SPDX-License-Identifier: BSD-3-Clause
#include "sim/experiments/comparison_runs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>

#include "sim/experiments/page.h"

namespace turnout::sim {
namespace {

std::vector<StudyOptions> studies_of(const std::vector<ComparedLine>& lines,
                                     const std::vector<std::string>& policies,
                                     const ExperimentOptions& options) {
  // A run that takes longer than this, while the best policies take 0.01 to 0.3 s, stands as
  // failed: with too little memory a few go on for half a minute before an operation fails.
  constexpr Picoseconds kLongest = 5 * hca::kSecond;
  std::vector<StudyOptions> studies;
  for (const ComparedLine& line : lines) {
    for (const std::string& policy : policies) {
      const std::string what = fmt::format("{}, {}, ", line.scenario->title, line.budget);
      StudyOptions study = begin_study(options, line.ranks, what);
      study.title = fmt::format("{}, {}", line.scenario->title, line.budget);
      study.workload = line.scenario->workload;
      study.options = options_of(*line.scenario, line.ranks);
      study.settings = settings_of(line, options);
      study.policies = {policy};
      study.own_settings = settings_of_paper(options.settings, line.ranks);
      if (!options.costs.empty()) {
        study.own_settings["turnout"].emplace_back("costs", options.costs);
      }
      study.time_limit = kLongest;
      studies.push_back(std::move(study));
    }
  }
  return studies;
}

}  // namespace

std::optional<double> ComparedLine::time(const std::string& policy) const {
  const auto found = results.find(policy);
  if (found == results.end()) return std::nullopt;
  return timed_phases(found->second).time;
}

double ComparedLine::best() const {
  double best = std::numeric_limits<double>::infinity();
  for (const auto& [policy, result] : results) best = std::min(best, timed_phases(result).time);
  return best;
}

std::optional<double> ComparedLine::ratio(const std::string& policy) const {
  const std::optional<double> own = time(policy);
  if (!own) return std::nullopt;
  return best() > 0 ? *own / best() : 1.0;
}

namespace {
Plot ratio_plot(const std::vector<ComparedLine>& lines, std::uint32_t ranks,
                const std::vector<std::string>& policies, std::string_view best,
                const RatioOf& ratio) {
  Plot plot;
  plot.kind = Plot::Kind::dots;
  plot.title = fmt::format("{} processes (modelled)", ranks);
  plot.x_log = true;
  for (const std::string& policy : policies) plot.series.push_back({policy, {}, false});
  std::vector<std::string> budgets;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const ComparedLine& line = lines[i];
    if (line.ranks != ranks) continue;
    const std::string title(line.scenario->title);
    if (plot.rows.empty() || plot.rows.back() != title) plot.rows.push_back(title);
    if (std::find(budgets.begin(), budgets.end(), line.budget) == budgets.end()) {
      budgets.push_back(line.budget);
    }
    for (Plot::Series& series : plot.series) {
      series.points.emplace_back(
          ratio(i, series.name).value_or(std::numeric_limits<double>::infinity()),
          static_cast<double>(plot.rows.size() - 1));
    }
  }
  plot.x_label = fmt::format("time / {}, log scale\nsmall to large marker: budget {}", best,
                             fmt::join(budgets, ", "));
  return plot;
}
}  // namespace

std::vector<Plot> ratio_plots(const std::vector<ComparedLine>& lines,
                              const std::vector<std::uint32_t>& sizes,
                              const std::vector<std::string>& policies, std::string_view best,
                              const RatioOf& ratio) {
  std::vector<Plot> plots;
  for (const std::uint32_t ranks : sizes) {
    plots.push_back(ratio_plot(lines, ranks, policies, best, ratio));
  }
  return plots;
}

std::string settings_text(const std::vector<std::uint32_t>& sizes,
                          const ExperimentOptions& options) {
  std::string text;
  for (const std::uint32_t ranks : sizes) {
    text += fmt::format(
        "With {} processes the decision interval is `interval={}` unless stated above.\n", ranks,
        usual_interval(ranks));
  }
  return text + std::string(kSettingsOfPaper) + costs_of_turnout(options);
}

NamedValues settings_of(const ComparedLine& line, const ExperimentOptions& options) {
  return overlaid(overlaid({{"interval", usual_interval(line.ranks)}}, options.settings),
                  {{"memory_budget", line.budget}});
}

Result<std::vector<ComparedLine>> compare(const std::vector<Scenario>& scenarios,
                                          const std::vector<std::uint32_t>& sizes,
                                          const std::vector<std::string>& policies,
                                          const ExperimentOptions& options, const Runner& runner) {
  std::vector<ComparedLine> lines;
  for (const std::uint32_t ranks : sizes) {
    const Result<std::vector<std::string>> budgets = budgets_of(options.budgets, ranks);
    if (!budgets) return budgets.status();
    for (const Scenario& scenario : scenarios) {
      for (const std::string& budget : budgets.value()) {
        lines.push_back({ranks, &scenario, budget, {}, {}});
      }
    }
  }
  const std::vector<StudyOptions> studies = studies_of(lines, policies, options);
  const Result<std::vector<Result<Study>>> results =
      run_studies(studies, {options.jobs, options.told}, runner);
  if (!results) return results.status();
  auto at = results.value().begin();
  for (ComparedLine& line : lines) {
    for (const std::string& policy : policies) {
      if (at->ok()) {
        line.results.emplace(policy, at->value().results.front());
      } else if (at->status().code() == Code::invalid || at->status().code() == Code::no_device) {
        return at->status();  // none would run
      } else {
        line.failures.emplace(policy, at->status().text());
      }
      ++at;
    }
  }
  return lines;
}

}  // namespace turnout::sim
