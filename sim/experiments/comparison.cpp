// SPDX-License-Identifier: BSD-3-Clause
// Every policy on many workloads at several budgets: is the selection best where it should be?
//
// The time of a run is that of all its timed phases. Messages before them give the policies time to
// choose where the workload has such; where it has not, choosing is part of what is timed. Sizes of
// queue pairs are the profile's, so that the budgets bind.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/value.h"
#include "sim/experiments/comparison_runs.h"
#include "sim/experiments/page.h"
#include "sim/experiments/scenarios.h"
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
    std::vector<std::string> row = {std::string(line.scenario->title), line.budget,
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
  const Result<std::vector<Scenario>> chosen = scenarios_of(options.workloads);
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

}  // namespace

Experiment comparison_experiment() {
  return {"policies", "every policy on many workloads at several budgets", run, true};
}

}  // namespace turnout::sim
