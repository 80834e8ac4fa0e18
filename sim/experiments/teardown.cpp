// SPDX-License-Identifier: BSD-3-Clause
// teardown: the workload nwchem with so many connections at most, and whose place the next one
// gets: what the fourth paper measured of ACTS, beside what a clairvoyant would need.
//
// Two modes. ACTS's own: processes have a limit and data servers have none, and a get or a put
// waits for its connection (there is no DC). Turnout's own: a limit for everyone, and nothing
// waits. How much is run of the paper's program is chosen by what it costs; spec/claims.md has its
// numbers.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <span>

#include "base/settings.h"
#include "base/value.h"
#include "core/memory/account.h"
#include "sim/analysis/victim_bound.h"
#include "sim/experiments/page.h"
#include "sim/experiments/teardown_claims.h"

namespace turnout::sim {
namespace {

constexpr std::uint32_t kPerNode = 4;  // [ACTS V.A]
constexpr const char* kOrders[] = {"lru", "lru-m", "cost"};
constexpr std::uint32_t kLimits[] = {128, 32, 4};
constexpr std::uint32_t kSeeds = 3;
// Processes from which on `cost` and the bound are left out, and from which on there is one seed,
// one run at a time, since a run takes up to 20 GB, and the largest limit, at which few connections
// or none are evicted, with one order.
constexpr std::uint32_t kMany = 2048, kMost = 4096;

// So many tasks that a process makes as many connections as the paper's at 4096 processes (T4).
constexpr std::uint32_t kTasks = 48;
// Between two barriers; with few, processes wait for each other more than for connections.
constexpr std::uint32_t kTasksOfIteration = 16;

std::string print_change(const TeardownRow& row, const TeardownRow& unlimited) {
  return row.limit == 0 ? "-" : print_percent(change_of(row, unlimited));
}

std::string runs_table(const TeardownRuns& runs) {
  Rows table = {{"connections", "order", "time", "vs no limit", "made per process",
                 "disconnects per process", "eviction time per process", "per eviction",
                 "longest eviction", "maximum at one time", "queue pair memory"}};
  const double n = runs.processes();
  for (const TeardownRow& row : runs.rows) {
    const auto of = [&row](auto&& what) {
      return median(row, [&](const Outcome& o) { return what(o.connections); });
    };
    const auto us = [](double ns) { return fmt::format("{:.0f} us", ns / 1e3); };
    using Connections = ConnectionsReport;
    const double freed = of([](const Connections& c) { return c.freed; });
    table.push_back(
        {row.limit != 0 ? fmt::format("{}", row.limit) : "no limit", row.order,
         fmt::format("{:.3f} s", median(row, [](const Outcome& o) { return o.time; }) / 1e12),
         print_change(row, runs.rows.front()), fmt::format("{:.1f}", made(row) / n),
         fmt::format("{:.1f}", of([](const Connections& c) { return c.tear_downs; }) / n),
         row.limit != 0 ? fmt::format("{:.3f} s", eviction_seconds(row, n)) : "-",
         freed > 0 ? us(eviction_seconds(row, freed) * 1e9) : "-",
         freed > 0 ? us(of([](const Connections& c) { return c.time_most; })) : "-",
         fmt::format("{:.0f}", most_at_one_time(row)),
         value::human_bytes(static_cast<std::uint64_t>(queue_pair_bytes(row)))});
  }
  return markdown_table(table);
}

// From the order in which processes needed their partners in the run without a limit.
std::string bounds_table(const Outcome& outcome) {
  Rows table = {{"connections", "LRU", "LRU-M", "clairvoyant", "LRU / clairvoyant", "LRU-M / LRU"}};
  double processes = 0;
  for (const auto& partners : outcome.partners) processes += partners.empty() ? 0 : 1;
  processes = std::max(processes, 1.0);
  for (const std::uint32_t limit : kLimits) {
    const auto torn_down = [&](VictimBound bound) {
      return static_cast<double>(connections_of_all(outcome.partners, limit, bound).torn_down);
    };
    const double lru = torn_down(lru_connections), lru_m = torn_down(lru_m_connections),
                 best = torn_down(clairvoyant_connections);
    const auto ratio = [](double a, double b) {
      return b > 0 ? fmt::format("{:.2f}", a / b) : std::string("-");
    };
    table.push_back({fmt::format("{}", limit), fmt::format("{:.1f}", lru / processes),
                     fmt::format("{:.1f}", lru_m / processes),
                     fmt::format("{:.1f}", best / processes), ratio(lru, best), ratio(lru_m, lru)});
  }
  return markdown_table(table);
}

std::string bounds_of(const TeardownRuns& runs) {
  const Outcome& unlimited = runs.rows.front().outcomes.front();
  if (unlimited.partners.empty()) return {};
  return fmt::format(
      "Mean evictions per process if each process decided alone, computed from the order in which "
      "the processes\nneeded their partners in the run without a limit (only processes that needed "
      "any; first seed):\n\n{}\n",
      bounds_table(unlimited));
}

// Mean over the limits that all orders were run with of how much longer runs take than without a
// limit.
std::string orders_table(const std::vector<TeardownRuns>& all) {
  Rows table = {
      {"mode", "processes", "order", "time vs no limit, mean", "eviction time per process, mean"}};
  struct Sums {
    double change = 0, time = 0;
  };
  for (const TeardownRuns& runs : all) {
    std::map<std::string, Sums> sums;
    std::map<std::uint32_t, std::size_t> orders;  // by limit
    for (const TeardownRow& row : runs.rows) {
      if (row.limit == 0) continue;
      ++orders[row.limit];
      sums[row.order];
    }
    std::erase_if(orders, [&](const auto& one) { return one.second < sums.size(); });
    const auto cells = static_cast<double>(orders.size());
    for (const TeardownRow& row : runs.rows) {
      if (!orders.contains(row.limit)) continue;
      Sums& sum = sums[row.order];
      sum.change += change_of(row, runs.rows.front()).median / cells;
      sum.time += eviction_seconds(row, runs.processes()) / cells;
    }
    for (const auto& [order, sum] : sums) {
      table.push_back({runs.acts ? "ACTS's" : "Turnout's", fmt::format("{}", runs.ranks), order,
                       print_percent(sum.change), fmt::format("{:.4f} s", sum.time)});
    }
  }
  return markdown_table(table);
}

StudyOptions study_of(const ExperimentOptions& options, const NamedValues& settings,
                      const TeardownRuns& runs, const TeardownRow& row, std::uint32_t nth) {
  const std::string what =
      row.limit == 0 ? "no limit, " : fmt::format("{} {}, ", row.limit, row.order);
  StudyOptions study = begin_study(options, runs.ranks, what);
  study.title = fmt::format("{} {}", runs.acts ? "ACTS" : "Turnout", what);
  study.place.ranks_per_node = kPerNode;
  study.place.seed += nth;
  study.workload = "nwchem";
  study.options = runs.options;
  study.data_servers = runs.acts;
  study.settings = overlaid({{"default_transport", runs.acts ? "ud" : "auto"}}, settings);
  study.time_limit = Picoseconds{1000} * hca::kSecond;
  if (row.limit == 0) {
    study.settings = overlaid(study.settings, room_for_all(runs.ranks));
  } else {
    study.settings = overlaid(
        study.settings, {{"max_conn", fmt::format("{}", row.limit)}, {"eviction", row.order}});
  }
  return study;
}

Result<std::vector<Outcome>> outcomes_of(const std::vector<StudyOptions>& studies,
                                         const ExperimentOptions& options, const Runner& runner) {
  std::vector<Outcome> outcomes;
  // As many of a set at a time as there may be processes; of the largest one.
  const std::size_t at_once =
      !studies.empty() && studies.front().place.ranks >= kMost ? 1 : studies.size();
  for (std::size_t i = 0; i < studies.size(); i += at_once) {
    const auto results = results_of(std::span(studies).subspan(i, at_once), options, runner);
    if (!results) return results.status();
    for (const Study& study : results.value()) {
      outcomes.push_back(study.results.front().outcome);
    }
  }
  return outcomes;
}

// The runs without a limit.
Status measure_unlimited(const ExperimentOptions& options, const NamedValues& settings,
                         const std::string& policy, std::uint32_t seeds, const Runner& runner,
                         TeardownRuns* runs) {
  TeardownRow& row = runs->rows.front();
  std::vector<StudyOptions> studies;
  for (std::uint32_t nth = 0; nth < seeds; ++nth) {
    studies.push_back(study_of(options, settings, *runs, row, nth));
    studies.back().policies = {policy};
  }
  if (runs->ranks < kMany) {
    // The first by itself, since it is not kept: who needed whom is too much.
    studies.front().kept = nullptr;
    studies.front().keep_partners = true;
    Result<Study> first = run_study(studies.front(), runner);
    if (!first) return first.status();
    row.outcomes.push_back(std::move(first.value().results.front().outcome));
    studies.erase(studies.begin());
  }
  Result<std::vector<Outcome>> others = outcomes_of(studies, options, runner);
  if (!others) return others.status();
  for (Outcome& outcome : others.value()) row.outcomes.push_back(std::move(outcome));
  return {};
}

Status measure(const ExperimentOptions& options, const NamedValues& settings,
               const std::string& policy, std::uint32_t seeds, const Runner& runner,
               TeardownRuns* runs) {
  runs->rows = {{0, "-", {}}};
  for (const std::uint32_t limit : kLimits) {
    for (const char* const order : kOrders) {
      if (runs->ranks >= kMany && std::string_view(order) == "cost") continue;
      if (runs->ranks >= kMost && limit == kLimits[0] && order != kOrders[0]) continue;
      runs->rows.push_back({limit, order, {}});
    }
  }
  if (Status s = measure_unlimited(options, settings, policy, seeds, runner, runs); !s.ok()) {
    return s;
  }
  std::vector<StudyOptions> studies;
  std::vector<std::vector<Outcome>*> whose;
  for (TeardownRow& row : runs->rows) {
    for (std::uint32_t nth = 0; nth < seeds && row.limit != 0; ++nth) {
      // A limit that is never reached changes nothing.
      const Outcome& unlimited = runs->rows.front().outcomes[nth];
      if (row.limit >= most_at_one_time(unlimited)) {
        row.outcomes.push_back(unlimited);
        continue;
      }
      whose.push_back(&row.outcomes);
      studies.push_back(study_of(options, settings, *runs, row, nth));
      studies.back().policies = {policy};
    }
  }
  Result<std::vector<Outcome>> outcomes = outcomes_of(studies, options, runner);
  if (!outcomes) return outcomes.status();
  for (std::size_t i = 0; i < studies.size(); ++i) {
    whose[i]->push_back(std::move(outcomes.value()[i]));
  }
  return {};
}

std::string section_of(const TeardownRuns& runs, std::uint32_t seeds) {
  return fmt::format(
      "## {}: {} processes, {} per node\n\n{}{}\n{}", runs.acts ? "ACTS's mode" : "Turnout's mode",
      runs.ranks, kPerNode,
      seeds == 1 ? "One seed.\n\n"
                 : fmt::format("Medians of {} seeds; in parentheses the minimum and the maximum, "
                               "each relative to its run without a limit.\n\n",
                               seeds),
      runs_table(runs), bounds_of(runs));
}

Result<ExperimentResult> run(const ExperimentOptions& options, const Runner& runner) {
  const Result<std::vector<std::string>> policies = policies_of(options.policies, {"rc-rdma-od"});
  if (!policies) return policies.status();
  if (policies.value().size() != 1 || !connects_on_demand(policies.value().front())) {
    return Status{Code::invalid,
                  "teardown: --policy: expected one that connects on demand: srq, rc-rdma-od, "
                  "ardma-srq or ardma-sr"};
  }
  const std::vector<std::uint32_t> sizes = sizes_of(options, {512, 2048, 4096});
  // Buffers so small that thousands of endpoints fit; memory limits nothing else here: all 4096
  // connect to the counter.
  const NamedValues settings = overlaid({{"ring_entries", "2"},
                                         {"receive_buffers", "32"},
                                         {"control_buffers", "64"},
                                         {"send_buffers", "16"},
                                         {"memory_budget", "16GiB"},
                                         {"keepalive", "1000s"}},  // nobody dies

                                        options.settings);
  const NamedValues shape =
      overlaid({{"tasks", fmt::format("{}", kTasks)},
                {"iterations", fmt::format("{}", kTasks / kTasksOfIteration)}},
               options.options);
  std::vector<TeardownRuns> all;
  std::string tables;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] <= kPerNode) {
      return Status{Code::invalid,
                    fmt::format("teardown: --sizes: more than {} processes", kPerNode)};
    }
    std::uint32_t seeds = sizes[i] < kMost ? kSeeds : 1;
    if (!options.seeds.empty()) seeds = options.seeds[std::min(i, options.seeds.size() - 1)];
    for (const bool acts : {true, false}) {
      if (!acts && i > 0) continue;  // the first size shows what it is
      all.push_back({acts, sizes[i], kPerNode, shape, {}});
      if (Status s =
              measure(options, settings, policies.value().front(), seeds, runner, &all.back());
          !s.ok()) {
        return s;
      }
      tables += section_of(all.back(), seeds);
    }
  }
  std::string page = fmt::format(
      "# teardown\n\nThe workload [nwchem](../nwchem.md) under `{}`, with a limit on the "
      "connections per process (`max_conn`) and\nthree eviction orders (`eviction`), in two "
      "modes:\n\n- **ACTS's**: as in the paper, only processes have a limit. The first process of "
      "a node is its data server as\n  well; it has no limit, evicts nobody, and every connection "
      "is to one. The default transport is UD, so a get or\n  a put waits until its connection is "
      "made, and where the limit is reached until another's is gone. Numbers are\n  of the "
      "processes with a limit; times are of the whole run.\n- **Turnout's**: everyone has the "
      "limit, and nothing waits for a connection: while one is set up or evicted,\n  operations "
      "and messages use DC.\n\n{}\n",
      policies.value().front(), provenance(options.profile));
  page += fmt::format("## Against the paper\n\n{}\n", claims_table(teardown_claims(all)));
  page += fmt::format(
      "## Eviction orders\n\nMeans over the limits below. The run times hardly differ; the default "
      "of `eviction` with `max_conn` is `lru`, which\nspends less time on evictions than "
      "`lru-m`.\n\n{}\n",
      orders_table(all));
  page += tables;
  page += fmt::format(
      "- Eviction time: from the choice of a connection to its free slot, summed over a process's "
      "own choices.\n- Queue pair memory: for the process with most of it, including the default "
      "transport.\n- The table of processes that decide alone is only a bound. In a real run, a "
      "partner needed only once may get no\n  connection, and none is evicted within one set-up "
      "time.\n- {} tasks per process, about as many as make the paper's 93 to 121 connections at "
      "4096 processes, and a barrier\n  after {} of them.\n\n",
      kTasks, kTasksOfIteration);
  page += how_it_was_run("teardown", options, shape, settings);
  return ExperimentResult{std::move(page), {}};
}

}  // namespace

Experiment teardown_experiment() {
  return {"teardown",
          "ACTS: nwchem with a connection limit and three eviction orders (claims T1 to T6)", run,
          false, true};
}

}  // namespace turnout::sim
