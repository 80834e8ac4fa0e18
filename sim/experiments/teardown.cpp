// SPDX-License-Identifier: BSD-3-Clause
// teardown: the workload nwchem with so many connections at most, and whose place the next one
// gets: what the fourth paper measured of ACTS, beside what a clairvoyant would need.
#include <fmt/format.h>

#include <algorithm>

#include "base/settings.h"
#include "base/value.h"
#include "core/memory/account.h"
#include "sim/experiments/list.h"
#include "sim/experiments/page.h"
#include "sim/study_set.h"
#include "sim/victim_bound.h"

namespace turnout::sim {

namespace {

constexpr std::uint32_t kRanks = 2048;  // 512 nodes [ACTS V.A]
constexpr std::uint32_t kPerNode = 4;
constexpr const char* kOrders[] = {"lru", "lru-m", "cost"};

// With at most so many connections: what spec/claims.md has of them.
struct Limit {
  std::uint32_t connections;
  const char* memory;  // T1
  const char* slower;  // T2
  const char* lru;     // T3
  const char* lru_m;   // T3
};
constexpr Limit kLimits[] = {{128, "1/4", "+2 %", "0.11 s", "0.09 s"},
                             {32, "1/16", "+5 %", "0.704 s", "0.621 s"},
                             {4, "1/128", "+7 %", "-", "-"}};

struct Row {
  const Limit* limit = nullptr;  // null: none
  std::string order;
  std::vector<Outcome> outcomes;  // by seed
};

double median_of(const std::vector<double>& sorted) {
  const std::size_t half = sorted.size() / 2;
  return sorted.size() % 2 == 1 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}

// Of one number of each run.
template <class Of>
double median(const Row& row, Of&& of) {
  std::vector<double> all;
  for (const Outcome& outcome : row.outcomes) all.push_back(static_cast<double>(of(outcome)));
  std::sort(all.begin(), all.end());
  return median_of(all);
}

// Each seed against itself without a limit; of several their median, the least and the most.
std::string change_words(const Row& row, const Row& unlimited) {
  std::vector<double> changes;
  for (std::size_t i = 0; i < row.outcomes.size(); ++i) {
    changes.push_back(change_percent(static_cast<double>(row.outcomes[i].time),
                                     static_cast<double>(unlimited.outcomes[i].time)));
  }
  std::sort(changes.begin(), changes.end());
  if (changes.size() == 1) return print_percent(changes.front());
  return fmt::format("{} ({:+.1f} to {:+.1f})", print_percent(median_of(changes)), changes.front(),
                     changes.back());
}

// Of the process whose queue pairs took most, all that are not there without a connection.
std::string memory_words(const Row& row, const Row& unlimited) {
  const auto most = [](const Outcome& o) { return o.rc_peak; };
  const auto bytes = [](const Outcome& o) { return largest_of(o, MemoryKind::queue_pairs); };
  return fmt::format("{} ({:.3f})",
                     value::human_bytes(static_cast<std::uint64_t>(median(row, bytes))),
                     median(row, most) / std::max(median(unlimited, most), 1.0));
}

std::string runs_table(const std::vector<Row>& rows, std::uint32_t ranks) {
  std::vector<std::vector<std::string>> table = {
      {"connections", "order", "time", "vs no limit", "paper", "made per process",
       "disconnects per process", "eviction time per process", "paper", "per eviction",
       "longest eviction", "maximum at one time", "queue pair memory", "paper"}};
  const Row& unlimited = rows.front();
  for (const Row& row : rows) {
    const auto of = [&row](auto&& what) {
      return median(row, [&](const Outcome& o) { return what(o.connections); });
    };
    const auto seconds = [](double ns) { return fmt::format("{:.3f} s", ns / 1e9); };
    const auto us = [](double ns) { return fmt::format("{:.0f} us", ns / 1e3); };
    using Connections = ConnectionsReport;
    const double freed = of([](const Connections& c) { return c.freed; });
    const double time = of([](const Connections& c) { return c.time; });
    const bool limited = row.limit != nullptr;
    table.push_back(
        {limited ? fmt::format("{}", row.limit->connections) : "no limit", row.order,
         fmt::format("{:.3f} s", median(row, [](const Outcome& o) { return o.time; }) / 1e12),
         limited ? change_words(row, unlimited) : "-", limited ? row.limit->slower : "131 s",
         fmt::format("{:.1f}", of([](const Connections& c) { return c.made; }) / ranks),
         fmt::format("{:.1f}", of([](const Connections& c) { return c.tear_downs; }) / ranks),
         limited ? seconds(time / ranks) : "-",
         !limited               ? "-"
         : row.order == "lru"   ? row.limit->lru
         : row.order == "lru-m" ? row.limit->lru_m
                                : "-",
         freed > 0 ? us(time / freed) : "-",
         freed > 0 ? us(of([](const Connections& c) { return c.time_most; })) : "-",
         fmt::format("{:.0f}", median(row, [](const Outcome& o) { return o.rc_peak; })),
         memory_words(row, unlimited), limited ? row.limit->memory : "1"});
  }
  return markdown_table(table);
}

// From the order in which processes needed their partners in the run without a limit.
std::string bounds_table(const Outcome& outcome) {
  std::vector<std::vector<std::string>> table = {
      {"connections", "LRU", "LRU-M", "clairvoyant", "LRU / clairvoyant", "LRU-M / LRU"}};
  double processes = 0;
  for (const auto& partners : outcome.partners) processes += partners.empty() ? 0 : 1;
  processes = std::max(processes, 1.0);
  for (const Limit& limit : kLimits) {
    const auto torn_down = [&](VictimBound bound) {
      return static_cast<double>(
          connections_of_all(outcome.partners, limit.connections, bound).torn_down);
    };
    const double lru = torn_down(lru_connections), lru_m = torn_down(lru_m_connections),
                 best = torn_down(clairvoyant_connections);
    const auto ratio = [](double a, double b) {
      return b > 0 ? fmt::format("{:.2f}", a / b) : std::string("-");
    };
    table.push_back({fmt::format("{}", limit.connections), fmt::format("{:.1f}", lru / processes),
                     fmt::format("{:.1f}", lru_m / processes),
                     fmt::format("{:.1f}", best / processes), ratio(lru, best), ratio(lru_m, lru)});
  }
  return markdown_table(table);
}

StudyOptions study_of(const ExperimentOptions& options, const NamedValues& settings,
                      std::uint32_t ranks, const Limit* limit, const std::string& order,
                      std::uint32_t nth) {
  const std::string what =
      limit == nullptr ? "no limit, " : fmt::format("{} {}, ", limit->connections, order);
  StudyOptions study = begin_study(options, ranks, what);
  study.place.ranks_per_node = kPerNode;
  study.place.seed += nth;
  study.workload = "nwchem";
  study.options = options.options;
  study.settings = settings;
  study.time_limit = Picoseconds{1000} * hca::kSecond;
  if (limit == nullptr) {
    study.settings = overlaid(study.settings, room_for_all(ranks));
  } else {
    study.settings = overlaid(
        study.settings, {{"max_conn", fmt::format("{}", limit->connections)}, {"eviction", order}});
  }
  return study;
}

Result<std::vector<Row>> measure(const ExperimentOptions& options, const NamedValues& settings,
                                 const std::string& policy, std::uint32_t ranks,
                                 std::uint32_t seeds, const Runner& runner) {
  std::vector<Row> rows = {{nullptr, "-", {}}};
  for (const Limit& limit : kLimits) {
    for (const char* const order : kOrders) rows.push_back({&limit, order, {}});
  }
  std::vector<StudyOptions> studies;
  std::vector<Row*> whose;
  for (std::uint32_t nth = 0; nth < seeds; ++nth) {
    for (Row& row : rows) {
      if (row.limit == nullptr && nth == 0) continue;
      whose.push_back(&row);
      studies.push_back(study_of(options, settings, ranks, row.limit, row.order, nth));
      studies.back().policies = {policy};
    }
  }
  // By itself, since it is not kept: who needed whom is too much.
  StudyOptions unlimited = study_of(options, settings, ranks, nullptr, "", 0);
  unlimited.policies = {policy};
  unlimited.kept = nullptr;
  unlimited.keep_partners = true;
  Result<Study> result = run_study(unlimited, runner);
  if (!result) return result.status();
  rows.front().outcomes.push_back(std::move(result.value().results.front().outcome));
  const auto results = run_studies(studies, {options.jobs, options.told}, runner);
  if (!results) return results.status();
  for (std::size_t i = 0; i < studies.size(); ++i) {
    if (!results.value()[i].ok()) return results.value()[i].status();
    whose[i]->outcomes.push_back(results.value()[i].value().results.front().outcome);
  }
  return rows;
}

Result<ExperimentResult> run(const ExperimentOptions& options, const Runner& runner) {
  const Result<std::vector<std::string>> policies = policies_of(options.policies, {"srq"});
  if (!policies) return policies.status();
  if (policies.value().size() != 1 || !connects_on_demand(policies.value().front())) {
    return Status{Code::invalid,
                  "teardown: --policy: expected one that connects on demand: srq, rc-rdma-od, "
                  "ardma-srq or ardma-sr"};
  }
  std::vector<std::uint32_t> sizes = options.sizes;
  if (sizes.empty()) sizes = {kRanks};
  // Buffers so small that thousands of endpoints fit; memory limits nothing else here.
  const NamedValues settings = overlaid({{"receive_buffers", "32"},
                                         {"control_buffers", "64"},
                                         {"send_buffers", "16"},
                                         {"memory_budget", "4GiB"}},
                                        options.settings);
  std::string tables;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const std::uint32_t ranks = sizes[i];
    const std::uint32_t seeds =
        options.seeds.empty() ? 1 : options.seeds[std::min(i, options.seeds.size() - 1)];
    if (ranks < 2) return Status{Code::invalid, "teardown: --sizes: at least 2 processes"};
    const auto rows = measure(options, settings, policies.value().front(), ranks, seeds, runner);
    if (!rows) return rows.status();
    tables += fmt::format(
        "## {} processes, {} per node\n\n{}{}\nMean evictions per process if each process decided "
        "alone, computed from the order in which the processes\nneeded their partners in the run "
        "without a limit (only processes that needed any; first seed):\n\n{}\n",
        ranks, kPerNode,
        seeds == 1 ? "One seed.\n\n"
                   : fmt::format("Medians of {} seeds; in parentheses the minimum and the maximum, "
                                 "each relative to its run without a limit.\n\n",
                                 seeds),
        runs_table(rows.value(), ranks), bounds_table(rows.value().front().outcomes.front()));
  }
  std::string page = fmt::format(
      "# teardown\n\nThe workload [nwchem](../nwchem.md) under `{}`, with a limit on the "
      "connections per process (`max_conn`) and\nthree eviction orders (`eviction`). The paper's "
      "numbers (claims T1 to T3, 2048 processes on 512 nodes) are\nshown next to ours. In Turnout "
      "nothing waits for a connection: while one is set up or evicted, operations\nand messages "
      "use DC.\n\n{}\n",
      policies.value().front(), provenance(options.profile));
  page += tables;
  page +=
      "- Eviction time: from the choice of a connection to its free slot, summed over a process's "
      "own choices. The\n  process continues meanwhile; in the paper it waits.\n- Queue pair "
      "memory: for the process with most of it, including the default transport; in parentheses "
      "the ratio\n  of its connections at one time to those without a limit.\n- The table of "
      "processes that decide alone is only a bound. In a real run, partners also disconnect "
      "shared\n  connections, a partner needed only once gets no connection, and none is evicted "
      "within one set-up time.\n\n";
  page += fmt::format("## How it was run\n\n{}",
                      how_it_was_run("teardown", options, options.options, settings));
  return ExperimentResult{std::move(page), {}};
}

}  // namespace

std::vector<Experiment> teardown_experiments() {
  return {
      {"teardown", "nwchem with a connection limit and three eviction orders", run, false, true}};
}

}  // namespace turnout::sim
