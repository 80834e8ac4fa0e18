// SPDX-License-Identifier: BSD-3-Clause
// How far from the best that could be known beforehand? Time of each policy divided by that of the
// best map of channels found for each part of the scenario, for small numbers of ranks.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>

#include "base/settings.h"
#include "base/value.h"
#include "core/selection/device_costs.h"
#include "sim/experiments/comparison.h"
#include "sim/experiments/optimum.h"
#include "sim/experiments/page.h"
#include "sim/study/result_writer.h"

namespace turnout::sim {
namespace {

constexpr std::string_view kSimulations = "simulations";

std::optional<double> ratio_of(const std::optional<double>& time, double optimum) {
  if (!time || optimum <= 0) return std::nullopt;
  return *time / optimum;
}

using Lines = std::vector<std::pair<const ComparedLine*, Optimum>>;

std::string ratios(const Lines& lines, std::uint32_t ranks,
                   const std::vector<std::string>& policies) {
  Rows rows = {{"workload", "budget", "in place", "set up"}};
  for (const std::string& policy : policies) rows[0].push_back(policy);
  for (const auto& [line, optimum] : lines) {
    if (line->ranks != ranks) continue;
    std::vector<std::string> row = {line->scenario->title, line->budget,
                                    fmt::format("{:.3f} ms", optimum.time / 1e9),
                                    fmt::format("{:.3f} ms", optimum.paid / 1e9)};
    for (const std::string& policy : policies) {
      const std::optional<double> free = ratio_of(line->time(policy), optimum.time);
      const std::optional<double> paid = ratio_of(line->time(policy), optimum.paid);
      row.push_back(paid ? fmt::format("{:.2f}, {:.2f}", *free, *paid) : "failed");
    }
    rows.push_back(std::move(row));
  }
  return markdown_table(rows);
}

// A line's time: a policy's, or the clairvoyant's with set-up; none if it failed.
using TimeOf = std::function<std::optional<double>(const ComparedLine&, const Optimum&)>;

// How much longer than with all channels in place, for each change of the pattern; the worst of the
// lines whose pattern changes, in times of the set-up of a queue pair.
std::string regret(const Lines& lines, std::uint32_t ranks, const TimeOf& time_of, double setup) {
  std::optional<double> worst;
  for (const auto& [line, optimum] : lines) {
    const std::optional<double> time = time_of(*line, optimum);
    if (line->ranks != ranks || !time || optimum.changes == 0) continue;
    const double each = (*time - optimum.time) / static_cast<double>(optimum.changes) / setup;
    worst = std::max(worst.value_or(0), each);
  }
  return worst ? fmt::format("{:.2f}", *worst) : "-";
}

// Empty if nothing ran.
std::vector<std::string> summary_row(const Lines& lines, std::uint32_t ranks,
                                     const std::string& name, const TimeOf& time_of, bool pays,
                                     double setup) {
  double logs = 0, clipped = 0, worst = 0;
  std::size_t ran = 0, good = 0;
  for (const auto& [line, optimum] : lines) {
    const std::optional<double> ratio =
        ratio_of(time_of(*line, optimum), pays ? optimum.paid : optimum.time);
    if (line->ranks != ranks || !ratio) continue;
    ++ran;
    logs += std::log(*ratio);
    clipped += std::log(std::max(*ratio, 1.0));
    worst = std::max(worst, *ratio);
    if (*ratio <= 1.1) ++good;
  }
  if (ran == 0) return {};
  const auto mean = [ran](double sum) {
    return fmt::format("{:.3f}", std::exp(sum / static_cast<double>(ran)));
  };
  return {name,
          fmt::format("{}", ranks),
          pays ? "set up" : "in place",
          mean(logs),
          mean(clipped),
          fmt::format("{} of {}", good, ran),
          fmt::format("{:.2f}", worst),
          pays ? "-" : regret(lines, ranks, time_of, setup)};
}

std::string summary(const Lines& lines, const std::vector<std::uint32_t>& sizes,
                    const std::vector<std::string>& policies, double setup) {
  Rows rows = {{"policy", "processes", "channels", "geometric mean", "clipped at 1", "at most 1.1",
                "worst", "set-up times a change"}};
  const auto add = [&](std::vector<std::string> row) {
    if (!row.empty()) rows.push_back(std::move(row));
  };
  for (const std::string& policy : policies) {
    const TimeOf time = [&](const ComparedLine& line, const Optimum&) { return line.time(policy); };
    for (const std::uint32_t ranks : sizes) {
      for (const bool pays : {false, true}) {
        add(summary_row(lines, ranks, policy, time, pays, setup));
      }
    }
  }
  for (const std::uint32_t ranks : sizes) {
    add(summary_row(
        lines, ranks, "clairvoyant, set up",
        [](const ComparedLine&, const Optimum& optimum) { return std::optional(optimum.paid); },
        false, setup));
  }
  return markdown_table(rows);
}

// What was found for each part.
std::string maps(const Lines& lines, std::uint32_t ranks) {
  Rows rows = {{"workload", "budget", "part", "starting map", "time / time of start", "DC-sendrecv",
                "DC-RDMA", "RC-RDMA", "DC initiators", "maps simulated"}};
  for (const auto& [line, optimum] : lines) {
    if (line->ranks != ranks) continue;
    for (const Found& found : optimum.parts) {
      std::vector<std::string> row = {
          line->scenario->title, line->budget, found.part, found.start,
          fmt::format("{:.3f}", found.time / std::max(found.best_start, 1.0))};
      for (const double share : found.shares) row.push_back(fmt::format("{:.0f} %", 100 * share));
      row.push_back(fmt::format("{}", found.initiators));
      row.push_back(fmt::format("{}", found.simulations));
      rows.push_back(std::move(row));
    }
  }
  return markdown_table(rows);
}

std::string page_of(const Lines& lines, const std::vector<std::uint32_t>& sizes,
                    const std::vector<std::string>& policies, const ExperimentOptions& options,
                    std::uint32_t simulations, double setup) {
  const bool recorded = !options.recordings.empty();
  std::string page = fmt::format(
      "# clairvoyant\n\nThe time of each policy divided by that of a clairvoyant policy given "
      "each part of a workload in\nadvance. Of the two numbers the first is against channels that "
      "are all *in place* before the part begins;\nthe second is against channels that are *set "
      "up* in it, or in the warm-up before it, each requested at its\nfirst message. None changes "
      "during a part. Budgets are the same.\n\n{}\nThe clairvoyant maps are the best that "
      "a search found by simulating maps on the same model. The search\nstarts from the best of "
      "seven maps (all on DC-sendrecv; all on DC-RDMA; RC-RDMA up to the memory limit, with\nthe "
      "rest on one or the other; the selections of AQPS and turnout from the true counts), with 4, "
      "12, 28 or 64\ninitiators, or as many as there are ranks. It then changes groups of "
      "directions (into a rank, out of a rank, "
      "over one distance) and single\nones, the busiest first, with at most {} maps per part. The "
      "result is an upper bound on the best map's time;\nno map is proved optimal. {} Set up, the "
      "best of these maps and "
      "of the starting ones counts; in a\nworkload with a warm-up those of all its parts "
      "together.\n\n## Summary\n\n{}\n*Set-up times a change*: how much longer "
      "a policy takes than with all channels in place, for each change of the\npattern, the "
      "beginning among them; the worst of the workloads without a warm-up. A queue pair is set up "
      "in {}, one after\nthe other: with each of {} others that takes a process {}. The "
      "clairvoyant that sets its channels up loses as much\nas its last rows say.\n\n"
      "{{plot}}\n\n",
      provenance(options.profile), simulations,
      recorded ? "Recordings are played whole."
               : "Parts are shortened to about 20,000 messages while maps are compared; the best "
                 "map\nand the best start are then measured at full length.",
      summary(lines, sizes, policies, setup), print_time(static_cast<Picoseconds>(setup)),
      sizes.back() - 1, print_time(static_cast<Picoseconds>(setup * (sizes.back() - 1))));
  for (const std::uint32_t ranks : sizes) {
    page += fmt::format("## {0} processes\n\n{1}\n### Maps found, {0} processes\n\n{2}\n", ranks,
                        ratios(lines, ranks, policies), maps(lines, ranks));
  }
  page += how_it_was_run("clairvoyant", options, {}, options.settings);
  page += settings_text(sizes, options);
  if (!recorded) page += "Workload lengths are those of the experiment `policies`.\n";
  return page;
}

Result<std::uint32_t> simulations_of(const NamedValues& options) {
  constexpr std::uint32_t kUsual = 24, kMost = 100'000;
  std::uint32_t simulations = kUsual;
  for (const auto& [name, text] : options) {
    const Result<std::uint64_t> value = value::parse_count(text);
    if (name != kSimulations || !value || value.value() > kMost) {
      return Status{Code::invalid,
                    fmt::format("--option {}={}: expected {}=0 to {}, maps simulated per part",
                                name, text, kSimulations, kMost)};
    }
    simulations = static_cast<std::uint32_t>(value.value());
  }
  return simulations;
}

Result<ExperimentResult> run(const ExperimentOptions& options, const Runner& runner) {
  const Result<std::vector<std::string>> policies =
      policies_of(options.policies, {"turnout", "aqps", "dc-rdma-od", "rc-rdma-od"});
  if (!policies) return policies.status();
  const Result<std::uint32_t> simulations = simulations_of(options.options);
  if (!simulations) return simulations.status();
  const Result<std::vector<Scenario>> chosen = scenarios_of(options);
  if (!chosen) return chosen.status();
  Settings settings;
  settings.costs = options.costs;
  const Result<selection::CostsFile> costs = selection::load_costs(settings);
  if (!costs) return costs.status();
  const double setup = costs.value().costs.setup_rc_time.value * hca::kNanosecond;
  const std::vector<std::uint32_t> sizes = sizes_of(options, {8, 16});
  const Result<std::vector<ComparedLine>> compared =
      compare(chosen.value(), sizes, policies.value(), options, runner);
  if (!compared) return compared.status();
  Result<std::vector<Optimum>> optima =
      optima_of(compared.value(), options, simulations.value(), runner);
  if (!optima) return optima.status();
  Lines lines;
  for (std::size_t i = 0; i < optima.value().size(); ++i)
    lines.emplace_back(&compared.value()[i], std::move(optima.value()[i]));
  return ExperimentResult{
      page_of(lines, sizes, policies.value(), options, simulations.value(), setup),
      ratio_plots(compared.value(), sizes, policies.value(), "best maps, set up",
                  [&](std::size_t line, const std::string& policy) {
                    return ratio_of(lines[line].first->time(policy), lines[line].second.paid);
                  })};
}

}  // namespace

Experiment clairvoyant_experiment() {
  return {"clairvoyant", "every policy against the best channel map found for each part", run,
          true};
}

}  // namespace turnout::sim
