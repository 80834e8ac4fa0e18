// SPDX-License-Identifier: BSD-3-Clause
// Every policy on many workloads at several budgets: is the selection best where it should be?
//
// The time of a run is that of all its timed phases. Messages before them give the policies time to
// choose where the workload has such; where it has not, choosing is part of what is timed. Sizes of
// queue pairs are the profile's, so that the budgets bind.
#include "sim/experiments/comparison.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "base/value.h"
#include "sim/experiments/page.h"
#include "sim/study/result_writer.h"

namespace turnout::sim {
namespace {

constexpr std::string_view kOurs = "turnout";

std::string milliseconds(double time) {
  return fmt::format("{:.3f} ms", time / 1e9);
}

std::string table(const std::vector<ComparedLine>& lines, std::uint32_t ranks,
                  const std::vector<std::string>& policies) {
  Rows rows = {{"workload", "budget", "best"}};
  for (const std::string& policy : policies) rows[0].push_back(policy);
  for (const ComparedLine& line : lines) {
    if (line.ranks != ranks) continue;
    std::vector<std::string> row = {line.scenario->title, line.budget,
                                    line.results.empty() ? "-" : milliseconds(line.best())};
    for (const std::string& policy : policies) {
      const std::optional<double> ratio = line.ratio(policy);
      row.push_back(!ratio              ? "failed"
                    : *ratio <= kAsGood ? fmt::format("**{:.2f}**", *ratio)
                                        : fmt::format("{:.2f}", *ratio));
    }
    rows.push_back(std::move(row));
  }
  return markdown_table(rows);
}

// How often each is within 2 % of the best, and how far it is at worst.
std::string summary(const std::vector<ComparedLine>& lines, const std::vector<std::uint32_t>& sizes,
                    const std::vector<std::string>& policies) {
  Rows rows = {{"policy", "processes", "best or within 2 %", "geometric mean of time / best",
                "worst", "failed"}};
  for (const std::string& policy : policies) {
    for (const std::uint32_t ranks : sizes) {
      std::size_t all = 0, good = 0, ran = 0;
      double logs = 0, worst = 1;
      for (const ComparedLine& line : lines) {
        if (line.ranks != ranks) continue;
        ++all;
        const std::optional<double> ratio = line.ratio(policy);
        if (!ratio) continue;
        ++ran;
        if (*ratio <= kAsGood) ++good;
        logs += std::log(*ratio);
        worst = std::max(worst, *ratio);
      }
      rows.push_back(
          {policy, fmt::format("{}", ranks), fmt::format("{} of {}", good, all),
           ran == 0 ? "-" : fmt::format("{:.3f}", std::exp(logs / static_cast<double>(ran))),
           ran == 0 ? "-" : fmt::format("{:.2f}", worst), fmt::format("{}", all - ran)});
    }
  }
  return markdown_table(rows);
}

std::string share_on(const PolicyResult& result, ChannelKind kind) {
  std::uint64_t all = 0, on = 0;
  for (const Channels& c : result.outcome.channels) {
    all += c.messages;
    if (c.channel == name(kind)) on += c.messages;
  }
  return all == 0
             ? "-"
             : fmt::format("{:.1f} %", 100.0 * static_cast<double>(on) / static_cast<double>(all));
}

// What each policy did there, counted over the whole run.
std::string facts(const ComparedLine& line, const std::vector<std::string>& policies) {
  Rows rows = {{"policy", "time / best", "DC-sendrecv", "DC-RDMA", "RC-RDMA", "channel changes",
                "RC usable", "RC queue pairs", "peak memory"}};
  for (const std::string& policy : policies) {
    const auto found = line.results.find(policy);
    if (found == line.results.end()) {
      rows.push_back({policy, "failed", "-", "-", "-", "-", "-", "-", "-"});
      continue;
    }
    const Outcome& o = found->second.outcome;
    rows.push_back({policy, fmt::format("{:.2f}", *line.ratio(policy)),
                    share_on(found->second, ChannelKind::dc_sendrecv),
                    share_on(found->second, ChannelKind::dc_rdma),
                    share_on(found->second, ChannelKind::rc_rdma), fmt::format("{}", o.switches),
                    o.first_rc < 0 ? "never" : "after " + print_time(o.first_rc),
                    fmt::format("{}", o.rc_connections), value::human_bytes(o.memory_peak)});
  }
  return markdown_table(rows);
}

// Where ours is behind: what there is to say why.
std::string behind(const std::vector<ComparedLine>& lines, std::uint32_t ranks,
                   const std::vector<std::string>& policies) {
  std::string text;
  for (const ComparedLine& line : lines) {
    if (line.ranks != ranks || !line.behind(std::string(kOurs))) continue;
    text += fmt::format("**{}, {}.** {}{}{} The whole run by policy, including warm-up:\n\n{}\n",
                        line.scenario->title, line.budget, line.scenario->about,
                        line.scenario->behind.empty() ? "" : " ", line.scenario->behind,
                        facts(line, policies));
  }
  return text;
}

std::string describe(const Scenario& scenario, const std::vector<std::uint32_t>& sizes) {
  std::string text =
      fmt::format("- **{}** (`{}`): {}\n", scenario.title, scenario.workload, scenario.about);
  for (const std::uint32_t ranks : sizes) {
    text += fmt::format("  With {} processes:", ranks);
    for (const auto& [name, value] : options_of(scenario, ranks)) {
      text += fmt::format(" `{}={}`", name, value);
    }
    text += ".\n";
  }
  return text;
}

std::string page_of(const std::vector<ComparedLine>& lines, const std::vector<Scenario>& chosen,
                    const std::vector<std::uint32_t>& sizes,
                    const std::vector<std::string>& policies, const ExperimentOptions& options) {
  std::string page = fmt::format(
      "# policies\n\nEvery policy on {} workloads, each with a tight, a moderate and a non-binding "
      "memory budget per process.\n\n{}\n",
      chosen.size(), provenance(options.profile));
  page += fmt::format(
      "Numbers are times divided by the best of the row; bold: best or within 2 %.\n\n## "
      "Summary\n\n{}\n{{plot}}\n\n",
      summary(lines, sizes, policies));
  const bool ours = std::find(policies.begin(), policies.end(), kOurs) != policies.end();
  for (const std::uint32_t ranks : sizes) {
    page += fmt::format("## {} processes\n\n{}\n", ranks, table(lines, ranks, policies));
    if (!ours) continue;
    const std::string why = behind(lines, ranks, policies);
    page += fmt::format("### Where `{}` is not within 2 % of the best\n\n{}", kOurs,
                        why.empty() ? "Nowhere.\n\n" : why);
  }
  std::string failures;
  for (const ComparedLine& line : lines) {
    for (const auto& [policy, text] : line.failures) {
      failures += fmt::format("- {}, {} processes, {}, `{}`: {}\n", line.scenario->title,
                              line.ranks, line.budget, policy, text);
    }
  }
  if (!failures.empty()) page += fmt::format("## Failed runs\n\n{}\n", failures);
  page += "## Workloads\n\n";
  for (const Scenario& scenario : chosen) page += describe(scenario, sizes);
  page += "\n" + how_it_was_run("policies", options, {}, options.settings);
  return page + settings_text(sizes, options);
}

Result<ExperimentResult> run(const ExperimentOptions& options, const Runner& runner) {
  const Result<std::vector<std::string>> policies =
      policies_of(options.policies, {"turnout", "aqps", "dc-rdma-od", "rc-rdma-od"});
  if (!policies) return policies.status();
  if (!options.options.empty()) {
    return Status{Code::invalid, "--option: this experiment sets its workloads' options itself"};
  }
  const Result<std::vector<Scenario>> chosen = scenarios_of(options);
  if (!chosen) return chosen.status();
  const std::vector<std::uint32_t> sizes = sizes_of(options, {64});
  const Result<std::vector<ComparedLine>> lines =
      compare(chosen.value(), sizes, policies.value(), options, runner);
  if (!lines) return lines.status();
  return ExperimentResult{page_of(lines.value(), chosen.value(), sizes, policies.value(), options),
                          ratio_plots(lines.value(), sizes, policies.value(), "best policy",
                                      [&](std::size_t line, const std::string& policy) {
                                        return lines.value()[line].ratio(policy);
                                      })};
}

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
    const std::string& title = line.scenario->title;
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

Experiment comparison_experiment() {
  return {"policies", "every policy on many workloads at several budgets", run, true};
}

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
        "With {} processes the decision interval of the other policies is `interval={}` unless "
        "stated above; `turnout` has its defaults.\n",
        ranks, usual_interval(ranks));
  }
  return text + std::string(kSettingsOfPaper) + costs_of_turnout(options);
}

NamedValues settings_of(const ComparedLine& line, const ExperimentOptions& options) {
  return overlaid(options.settings, {{"memory_budget", line.budget}});
}

StudyOptions study_of(const ComparedLine& line, const std::string& policy,
                      const ExperimentOptions& options) {
  // A run that takes longer than this, while the best policies take 0.01 to 0.3 s, stands as
  // failed: with too little memory a few go on for half a minute before an operation fails.
  constexpr Picoseconds kLongest = 5 * hca::kSecond;
  const std::string what = fmt::format("{}, {}, ", line.scenario->title, line.budget);
  StudyOptions study = begin_study(options, line.ranks, what);
  study.title = fmt::format("{}, {}", line.scenario->title, line.budget);
  study.workload = line.scenario->workload;
  study.options = options_of(*line.scenario, line.ranks);
  study.settings = settings_of(line, options);
  study.policies = {policy};
  study.own_settings = settings_of_paper(options.settings, line.ranks);
  if (policy != kOurs && !gives(options.settings, "interval")) {
    study.own_settings[policy].emplace_back("interval", usual_interval(line.ranks));
  }
  if (!options.costs.empty()) {
    study.own_settings["turnout"].emplace_back("costs", options.costs);
  }
  study.make = line.scenario->make;
  study.time_limit = study.make ? kLongestRecording : kLongest;
  return study;
}

Result<std::vector<Scenario>> scenarios_of(const ExperimentOptions& options) {
  if (!options.recordings.empty()) return options.recordings;
  return scenarios_of(options.workloads);
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
  std::vector<StudyOptions> studies;
  for (const ComparedLine& line : lines) {
    for (const std::string& policy : policies) studies.push_back(study_of(line, policy, options));
  }
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
