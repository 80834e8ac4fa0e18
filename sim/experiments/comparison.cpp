// Every policy on many workloads at several budgets: is the selection best where it should be?
//
// The time of a run is that of all its timed phases. Messages before them give the policies time to
// choose where the workload has such; where it has not, choosing is part of what is timed. Sizes of
// queue pairs are the profile's, so that the budgets bind.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "base/value.h"
#include "sim/experiments/list.h"
#include "sim/experiments/page.h"

namespace turnout::sim {

namespace {

struct Scenario {
  std::string_view title, workload;
  // `ranks` of the run are multiplied in where messages are those of all ranks together.
  NamedValues options;
  std::vector<std::pair<std::string_view, std::uint64_t>> per_rank;
};

const std::vector<Scenario>& scenarios() {
  static const std::vector<Scenario> all = {
      {"one to all", "onetoall", {}, {{"messages", 2000}, {"warmup", 20000}}},
      {"all to one", "alltoone", {}, {{"messages", 1000}, {"warmup", 10000}}},
      {"out and in",
       "repeat",
       {{"times", "3"}, {"warmup", "1"}},
       {{"messages_out", 2000}, {"messages_in", 2000}}},
      {"master and workers", "masterworker", {{"work", "2us"}}, {{"tasks", 500}}},
      {"work stealing", "steal", {{"work", "5us"}}, {{"tasks", 2000}}},
      {"shifts", "shifts", {{"shifts", "16"}, {"messages", "3000"}}, {}},
      {"stencil", "stencil3d", {{"rounds", "3000"}, {"cells", "8"}}, {}},
      {"trees", "trees", {{"rounds", "1500"}}, {}},
      {"phases that change", "phases", {{"phases", "4"}, {"messages", "10000"}}, {}},
      {"hot spots that move", "hotspots", {{"phases", "4"}, {"messages", "4000"}}, {}},
      {"all to all", "alltoall", {{"rounds", "60"}, {"bytes", "256"}}, {}},
      {"random neighbours", "random", {{"messages", "20000"}}, {}},
  };
  return all;
}

const std::vector<std::string>& budgets() {
  static const std::vector<std::string> all = {"12MiB", "48MiB", "1GiB"};
  return all;
}

// By policy; negative: the run failed, which the page says.
using Times = std::map<std::string, double>;

struct Line {
  std::uint32_t ranks;
  std::string_view title, budget;
  Times times;
  std::vector<std::string> failures;
};

double best_of(const Times& times) {
  double best = std::numeric_limits<double>::infinity();
  for (const auto& [policy, time] : times) {
    if (time >= 0) best = std::min(best, time);
  }
  return best;
}

std::string table(const std::vector<Line>& lines, std::uint32_t ranks,
                  const std::vector<std::string>& policies) {
  std::vector<std::vector<std::string>> rows = {{"workload", "budget", "best"}};
  for (const std::string& policy : policies) rows[0].push_back(policy);
  for (const Line& line : lines) {
    if (line.ranks != ranks) continue;
    const double best = best_of(line.times);
    std::vector<std::string> row = {std::string(line.title), std::string(line.budget),
                                    best < 1e300 ? fmt::format("{:.3f} ms", best / 1e9) : "-"};
    for (const std::string& policy : policies) {
      const double time = line.times.at(policy);
      if (time < 0) {
        row.push_back("failed");
      } else if (time <= 1.02 * best) {
        row.push_back(fmt::format("**{:.2f}**", time / best));
      } else {
        row.push_back(fmt::format("{:.2f}", time / best));
      }
    }
    rows.push_back(std::move(row));
  }
  return markdown_table(rows);
}

// How often each is within 2 % of the best, and how far it is at worst.
std::string summary(const std::vector<Line>& lines, const std::vector<std::string>& policies) {
  std::vector<std::vector<std::string>> rows = {
      {"policy", "best or within 2 %", "geometric mean of time / best", "worst"}};
  for (const std::string& policy : policies) {
    std::size_t good = 0, ran = 0;
    double logs = 0, worst = 1;
    for (const Line& line : lines) {
      const double time = line.times.at(policy), best = best_of(line.times);
      if (time < 0) continue;
      ++ran;
      if (time <= 1.02 * best) ++good;
      logs += std::log(time / best);
      worst = std::max(worst, time / best);
    }
    rows.push_back(
        {policy, fmt::format("{} of {}", good, lines.size()),
         ran == 0 ? "-" : fmt::format("{:.3f}", std::exp(logs / static_cast<double>(ran))),
         fmt::format("{:.2f}", worst)});
  }
  return markdown_table(rows);
}

Result<Line> play(const Scenario& scenario, std::uint32_t ranks, const std::string& budget,
                  const std::vector<std::string>& policies, const ExperimentOptions& options,
                  const NamedValues& settings, const Runner& runner) {
  Line line{ranks, scenario.title, budget, {}, {}};
  NamedValues of_workload = scenario.options;
  for (const auto& [name, count] : scenario.per_rank) {
    of_workload.emplace_back(name, fmt::format("{}", count * ranks));
  }
  for (const std::string& policy : policies) {
    StudyOptions study =
        begin_study(options, ranks, fmt::format("{}, {}, ", scenario.title, budget));
    study.workload = scenario.workload;
    study.options = of_workload;
    study.settings = overlaid(settings, {{"memory_budget", budget}});
    study.policies = {policy};
    study.own_settings = settings_of_paper(options.settings, ranks);
    study.time_limit = 100'000'000 * hca::kMicrosecond;
    const Result<Study> result = run_study(study, runner);
    if (result) {
      line.times[policy] = timed_phases(result.value().results.front()).time;
    } else {
      line.times[policy] = -1;
      line.failures.push_back(fmt::format("{}, {} processes, {}, `{}`: {}", scenario.title, ranks,
                                          budget, policy, result.status().text()));
    }
  }
  return line;
}

Result<ExperimentResult> run(const ExperimentOptions& options, const Runner& runner) {
  const Result<std::vector<std::string>> policies = policies_of(
      options.policies, {"turnout", "aqps", "dc-rdma-od", "rc-rdma-od", "static:dc-sendrecv"});
  if (!policies) return policies.status();
  const std::vector<std::string>& names = policies.value();
  const NamedValues settings = overlaid({{"interval", "5ms"}}, options.settings);
  std::vector<std::uint32_t> sizes = options.sizes;
  if (sizes.empty()) sizes = {64};
  std::vector<Line> lines;
  std::vector<std::string> failures;
  for (const std::uint32_t ranks : sizes) {
    for (const Scenario& scenario : scenarios()) {
      for (const std::string& budget : budgets()) {
        Result<Line> line = play(scenario, ranks, budget, names, options, settings, runner);
        if (!line) return line.status();
        failures.insert(failures.end(), line.value().failures.begin(), line.value().failures.end());
        lines.push_back(std::move(line).value());
      }
    }
  }
  std::string page =
      fmt::format("# policies\n\nEvery policy on {} workloads at {} budgets a process.\n\n{}\n",
                  scenarios().size(), budgets().size(), provenance(options.profile));
  page += fmt::format(
      "Numbers are times divided by the best of the line; bold: best or within 2 %.\n\n## In "
      "all\n\n"
      "{}\n",
      summary(lines, names));
  for (const std::uint32_t ranks : sizes) {
    page += fmt::format("## {} processes\n\n{}\n", ranks, table(lines, ranks, names));
  }
  if (!failures.empty()) {
    page += "## What failed\n\n";
    for (const std::string& failure : failures) page += fmt::format("- {}\n", failure);
    page += "\n";
  }
  page += fmt::format("## How it was run\n\n{}",
                      how_it_was_run("policies", options, options.options, settings));
  page += kSettingsOfPaper;
  page += "\nOptions of the workloads, where they are not the defaults (`n`: processes):\n\n";
  for (const Scenario& scenario : scenarios()) {
    page += fmt::format("- {}: `{}`", scenario.title, scenario.workload);
    for (const auto& [name, value] : scenario.options) page += fmt::format(" `{}={}`", name, value);
    for (const auto& [name, count] : scenario.per_rank) {
      page += fmt::format(" `{}={} n`", name, count);
    }
    page += "\n";
  }
  return ExperimentResult{std::move(page), {}};
}

}  // namespace

std::vector<Experiment> comparison_experiments() {
  return {{"policies", "every policy on many workloads at several budgets", run}};
}

}  // namespace turnout::sim
