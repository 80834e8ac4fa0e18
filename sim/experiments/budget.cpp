// SPDX-License-Identifier: BSD-3-Clause
// budget: what onetoall takes of memory where the budget is small, and what connections to everyone
// would take without one. Every number is read from the accounts of the real endpoints.

#include <fmt/format.h>

#include <algorithm>

#include "base/settings.h"
#include "base/value.h"
#include "core/memory/account.h"
#include "sim/experiments/page.h"
#include "sim/study/programs.h"

namespace turnout::sim {
namespace {

constexpr std::uint32_t kRanks = 4096;
constexpr const char* kBudget = "32000000";
constexpr const char* kNoBudget = "1048576GiB";
constexpr std::uint64_t kEach = 400;           // messages to each rank
constexpr std::uint32_t kIntervalPerRank = 5;  // microseconds: some 20 decisions in a run

// Without a budget, to each rank by itself (sim/study/programs.h).
constexpr std::uint32_t kFirst = 8;  // messages

struct Row {
  std::string policy;
  bool limited = true;
  std::uint32_t ranks = 0;
  Outcome outcome;
};

// Everything for everyone: as rc-rdma-od would run without any limit.
NamedValues unlimited(std::uint32_t ranks) {
  return overlaid({{"memory_budget", kNoBudget}}, room_for_all(ranks));
}

Result<Row> measure(const ExperimentOptions& options, const NamedValues& workload_options,
                    NamedValues settings, const std::string& policy, bool limited,
                    std::uint32_t ranks, const Runner& runner) {
  StudyOptions study = begin_study(options, ranks, limited ? "" : "no budget, ");
  study.workload = "onetoall";
  study.options = workload_options;
  study.settings = limited ? std::move(settings) : overlaid(std::move(settings), unlimited(ranks));
  study.policies = {policy};
  if (!limited) {
    study.workload = one_by_one_workload().name;
    study.options = {{"messages", fmt::format("{}", kFirst)}};
  }
  study.keep_reports = true;
  Result<Study> result = run_study(study, runner);
  if (!result) return result.status();
  Outcome& outcome = result.value().results.front().outcome;
  if (outcome.reports.empty()) {
    return Status{Code::internal, "budget: the simulation kept no reports"};
  }
  return Row{policy, limited, ranks, std::move(outcome)};
}

std::string bytes(std::uint64_t n) {
  return value::human_bytes(n);
}

// The rank whose account was fullest; the first of equals.
std::size_t fullest(const Outcome& outcome) {
  const auto& reports = outcome.reports;
  return static_cast<std::size_t>(
      std::max_element(reports.begin(), reports.end(),
                       [](const auto& a, const auto& b) { return a.peak < b.peak; }) -
      reports.begin());
}

std::string peaks_table(const std::vector<Row>& rows) {
  Rows table = {{"policy", "processes", "budget", "messages", "largest peak", "at rank",
                 "share of budget", "peak at rank 0", "sum of all peaks", "run time",
                 "within budget"}};
  for (const Row& row : rows) {
    const Outcome& o = row.outcome;
    const std::size_t rank = fullest(o);
    std::uint64_t sum = 0;
    for (const EndpointReport& report : o.reports) sum += report.peak;
    const std::uint64_t peak = o.reports[rank].peak;
    const double part = 100 * static_cast<double>(peak) / static_cast<double>(o.budget);
    table.push_back({row.policy, fmt::format("{}", row.ranks),
                     row.limited ? fmt::format("{} B", o.budget) : "none",
                     fmt::format("{}", o.messages), bytes(peak), fmt::format("{}", rank),
                     row.limited ? fmt::format("{:.1f} %", part) : "-",
                     bytes(o.reports.front().peak), bytes(sum),
                     fmt::format("{:.1f} ms", static_cast<double>(o.time) / 1e9),
                     !row.limited       ? "-"
                     : peak <= o.budget ? "yes"
                                        : "**no**"});
  }
  return markdown_table(table);
}

std::string channels_table(const std::vector<Row>& rows) {
  Rows table = {{"policy", "processes", "budget", "DC-sendrecv", "DC-RDMA", "RC-RDMA",
                 "RC queue pairs of rank 0", "RC queue pairs of all ranks", "refusals at rank 0"}};
  for (const Row& row : rows) {
    const auto sent = [&](std::string_view channel) {
      for (const Channels& c : row.outcome.channels) {
        if (c.channel == channel) return fmt::format("{}", c.messages);
      }
      return std::string("0");
    };
    const EndpointReport& first = row.outcome.reports.front();
    std::uint64_t queue_pairs = 0;
    for (const EndpointReport& r : row.outcome.reports) queue_pairs += r.rc_queue_pairs_peak;
    table.push_back({row.policy, fmt::format("{}", row.ranks), row.limited ? "yes" : "none",
                     sent(name(ChannelKind::dc_sendrecv)), sent(name(ChannelKind::dc_rdma)),
                     sent(name(ChannelKind::rc_rdma)), fmt::format("{}", first.rc_queue_pairs_peak),
                     fmt::format("{}", queue_pairs), fmt::format("{}", first.operations.refusals)});
  }
  return markdown_table(table);
}

// Peaks by kind of rank 0.
std::string kinds_table(const std::vector<Row>& rows) {
  Rows table = {{"kind"}};
  for (const Row& row : rows) {
    table.front().push_back(
        fmt::format("{}{}, {}", row.policy, row.limited ? "" : " without budget", row.ranks));
  }
  for (std::size_t k = 0; k < static_cast<std::size_t>(MemoryKind::count); ++k) {
    const std::string_view kind = name(static_cast<MemoryKind>(k));
    table.push_back({std::string(kind)});
    for (const Row& row : rows) {
      std::string peak = "-";
      for (const MemoryLine& line : row.outcome.reports.front().memory) {
        if (line.kind == kind) peak = bytes(line.peak);
      }
      table.back().push_back(std::move(peak));
    }
  }
  return markdown_table(table);
}

Plot make_plot(const std::vector<Row>& rows) {
  Plot plot;
  plot.kind = Plot::Kind::bars;
  plot.title = "Peak memory of rank 0";
  plot.x_label = "memory, log scale";
  plot.x_log = true;
  plot.unit = "B";
  const bool same_size = rows.front().ranks == rows.back().ranks;
  if (same_size) plot.title += fmt::format(", {} processes", rows.front().ranks);
  plot.title += " (modelled)";
  for (const Row& row : rows) {
    const std::string series = row.policy + (row.limited ? "" : ", no budget");
    plot.series.push_back({series,
                           {{static_cast<double>(row.outcome.reports.front().peak),
                             static_cast<double>(plot.rows.size())}},
                           false});
    plot.rows.push_back(fmt::format("{}{}{}", row.policy,
                                    same_size ? "" : fmt::format(", {}", row.ranks),
                                    row.limited ? "" : ", no budget:\nRC to every peer"));
    const auto budget = static_cast<double>(row.outcome.budget);
    const bool known = std::any_of(plot.limits.begin(), plot.limits.end(),
                                   [&](const Plot::Limit& l) { return l.at == budget; });
    if (row.limited && !known) {
      constexpr std::uint64_t kMega = 1'000'000;
      plot.limits.push_back(
          {budget, row.outcome.budget % kMega == 0
                       ? fmt::format("budget: {} MB ({})", row.outcome.budget / kMega,
                                     bytes(row.outcome.budget))
                       : fmt::format("budget: {}", bytes(row.outcome.budget))});
    }
  }
  return plot;
}

Result<ExperimentResult> run(const ExperimentOptions& options, const Runner& runner) {
  const Result<std::vector<std::string>> policies =
      policies_of(options.policies, {"turnout", "aqps", "rc-rdma-od"});
  if (!policies) return policies.status();
  const std::vector<std::uint32_t> sizes = sizes_of(options, {kRanks});
  const NamedValues settings = overlaid({{"memory_budget", kBudget}}, options.settings);
  std::vector<Row> rows;
  for (const std::uint32_t ranks : sizes) {
    if (ranks < 2) return Status{Code::invalid, "budget: --sizes: at least 2 processes"};
    const NamedValues workload_options = overlaid(
        {{"messages", fmt::format("{}", kEach * (ranks - 1))}, {"warmup", "0"}}, options.options);
    const NamedValues with_interval = overlaid(
        {{"interval", fmt::format("{}us", std::uint64_t{kIntervalPerRank} * ranks)}}, settings);
    for (const std::string& policy : policies.value()) {
      for (const bool limited : {true, false}) {
        if (!limited && policy != "rc-rdma-od") continue;
        Result<Row> row =
            measure(options, workload_options, with_interval, policy, limited, ranks, runner);
        if (!row) return row.status();
        rows.push_back(std::move(row).value());
      }
    }
  }
  std::string page = fmt::format(
      "# budget\n\nRank 0 sends to all others round robin (onetoall), {} messages to each by "
      "default, within a memory budget\nper process (`TURNOUT_MEMORY_BUDGET`). Then, under "
      "`rc-rdma-od` with no budget and no other limit, it sends\n{} messages to each peer in turn, "
      "which shows the memory of a connection to every peer. The peaks come from\nthe memory "
      "account of Turnout's endpoint. The account is updated at every reservation, before "
      "the\nallocation, so it misses no peak. The size of a queue pair comes from the profile "
      "(`memory.*`).\n\n{}\n",
      kEach, kFirst, provenance(options.profile));
  page += fmt::format("## Peaks\n\n{}\n{{plot}}\n\n", peaks_table(rows));
  page +=
      fmt::format("## Channels used\n\nMessages by channel, including the final barrier.\n\n{}\n",
                  channels_table(rows));
  page += fmt::format("## Memory of rank 0 by kind\n\nPeak of each kind, in binary units.\n\n{}\n",
                      kinds_table(rows));
  page += how_it_was_run("budget", options, options.options, settings);
  page += fmt::format(
      "\nThe decision interval is {} us times the number of processes (`--set interval=` changes "
      "it), which gives some\n20 decisions per run.\n",
      kIntervalPerRank);
  return ExperimentResult{std::move(page), {make_plot(rows)}};
}

}  // namespace

Experiment budget_experiment() {
  return {"budget", "onetoall within 32 MB per process, and its memory without a budget", run};
}

}  // namespace turnout::sim
