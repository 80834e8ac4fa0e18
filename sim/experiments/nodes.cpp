// SPDX-License-Identifier: BSD-3-Clause
// nodes: processes send to everybody, with many of them on each node: connections of a process, and
// their memory, where they are the pairs' own (RC), the nodes' (XRC), or none (DC).
#include <fmt/format.h>

#include <algorithm>

#include "base/value.h"
#include "core/memory/account.h"
#include "sim/experiments/page.h"
#include "sim/study/programs.h"

namespace turnout::sim {
namespace {

constexpr std::uint32_t kPerNode = 16;
constexpr std::uint32_t kRounds = 4;  // that are timed
// With more processes than these a connection for each pair takes hours to simulate: those of one
// node send to everybody and everybody to them. What such a process has is the same: who reaches
// it, and whom it reaches, are all.
constexpr std::uint32_t kMostWithPairs = 8 * kPerNode;
constexpr std::uint64_t kBytes = 64;
constexpr Picoseconds kTimeLimit = Picoseconds{1000} * hca::kSecond;

std::uint32_t senders_of(std::uint32_t ranks) noexcept {
  return ranks > kMostWithPairs ? kPerNode : ranks;
}

std::string channels_words(const Outcome& outcome) {
  std::string words;
  for (const Channels& one : outcome.channels) {
    if (one.messages * 100 < outcome.messages) continue;  // the way there
    words += fmt::format(
        "{}{} {:.0f} %", words.empty() ? "" : ", ", one.channel,
        100.0 * static_cast<double>(one.messages) / static_cast<double>(outcome.messages));
  }
  return words;
}

std::string table_of(const Study& study) {
  Rows table = {{"policy", "connections per process", "queue pair memory", "ring memory",
                 "memory per process", "messages by channel", "time per message"}};
  for (const PolicyResult& result : study.results) {
    const Outcome& o = result.outcome;
    const Timed timed = timed_phases(result);
    table.push_back({fmt::format("`{}`", result.policy), fmt::format("{}", o.rc_peak),
                     value::human_bytes(largest_of(o, MemoryKind::queue_pairs)),
                     value::human_bytes(largest_of(o, MemoryKind::rings)),
                     value::human_bytes(o.memory_peak), channels_words(o),
                     fmt::format("{:.0f} ns", timed.time / 1e3 / timed.messages)});
  }
  return markdown_table(table);
}

// The policy `turnout` within a budget, with such connections and without.
constexpr std::uint32_t kBudgetRanks = 4 * kPerNode;
constexpr const char* kBudgets[] = {"48MiB", "24MiB", "16MiB"};

std::vector<StudyOptions> budget_studies(const ExperimentOptions& options,
                                         const NamedValues& settings) {
  std::vector<StudyOptions> studies;
  for (const char* const budget : kBudgets) {
    for (const char* const xrc : {"no", "auto"}) {
      StudyOptions study = begin_study(options, kBudgetRanks, fmt::format("{} {} ", budget, xrc));
      study.title = fmt::format("alltoall, {}, xrc={}", budget, xrc);
      study.place.ranks_per_node = kPerNode;
      study.workload = "alltoall";
      study.options = {{"rounds", "300"}, {"bytes", fmt::format("{}", kBytes)}, {"group", "8"}};
      study.settings =
          overlaid(settings, {{"memory_budget", budget}, {"xrc", xrc}, {"interval", "1ms"}});
      study.policies = {"turnout"};
      study.time_limit = kTimeLimit;
      studies.push_back(std::move(study));
    }
  }
  return studies;
}

// `result`: of budget_studies(), in their order.
std::string budget_table(std::vector<Study>::const_iterator result) {
  Rows table = {{"budget per process", "`xrc`", "time per message", "connections per process",
                 "memory per process", "messages by channel"}};
  for (const char* const budget : kBudgets) {
    for (const char* const xrc : {"no", "auto"}) {
      const PolicyResult& one = (result++)->results.front();
      const Timed timed = timed_phases(one);
      table.push_back({budget, xrc,
                       fmt::format("{:.0f} ns", timed.time / 1e3 / timed.messages * kBudgetRanks),
                       fmt::format("{}", one.outcome.rc_peak),
                       value::human_bytes(one.outcome.memory_peak), channels_words(one.outcome)});
    }
  }
  return markdown_table(table);
}

Result<ExperimentResult> run(const ExperimentOptions& options, const Runner& runner) {
  const auto policies = policies_of(options.policies, {"rc-rdma-od", "xrc-rdma-od", "dc-rdma-od"});
  if (!policies) return policies.status();
  const std::vector<std::uint32_t> sizes = sizes_of(options, {kMostWithPairs, 64 * kPerNode});
  // Buffers so small that a thousand endpoints fit; memory limits nothing here.
  const NamedValues settings = overlaid({{"receive_buffers", "64"},
                                         {"control_buffers", "64"},
                                         {"send_buffers", "32"},
                                         {"ring_entries", "4"},
                                         {"ring_entry_size", "512"},
                                         {"memory_budget", "4GiB"}},
                                        options.settings);
  std::vector<StudyOptions> studies = budget_studies(options, settings);
  const auto of_budgets = static_cast<std::ptrdiff_t>(studies.size());
  for (const std::uint32_t ranks : sizes) {
    if (ranks < 2) return Status{Code::invalid, "nodes: --sizes: at least 2 processes"};
    StudyOptions study = begin_study(options, ranks);
    study.place.ranks_per_node = kPerNode;
    study.workload = everybody_workload().name;
    study.options = {{"rounds", fmt::format("{}", kRounds)},
                     {"bytes", fmt::format("{}", kBytes)},
                     {"senders", fmt::format("{}", senders_of(ranks))}};
    study.settings = settings;
    study.own_settings = {{"rc-rdma-od", room_for_all(ranks)},
                          {"xrc-rdma-od", room_for_all((ranks + kPerNode - 1) / kPerNode)}};
    study.policies = policies.value();
    study.time_limit = kTimeLimit;
    studies.push_back(std::move(study));
  }
  const Result<std::vector<Study>> results = results_of(studies, options, runner);
  if (!results) return results.status();
  std::string tables;
  auto result = results.value().begin() + of_budgets;
  for (const std::uint32_t ranks : sizes) {
    tables += fmt::format(
        "## {} nodes of {} processes\n\n{}{}\n", (ranks + kPerNode - 1) / kPerNode, kPerNode,
        senders_of(ranks) < ranks
            ? fmt::format("The {} processes of the first node send to all others and receive from "
                          "them. The others do not send to each other.\n\n",
                          kPerNode)
            : "",
        table_of(*result++));
  }
  std::string page = fmt::format(
      "# nodes\n\nEach process sends {} bytes to every other, {} times, after two rounds in which "
      "connections are set up.\nUnder `rc-rdma-od` each pair has a connection. Under `xrc-rdma-od` "
      "each process has one connection per node,\nincluding its own, and the processes of that "
      "node share the other end ([019](../decisions/019-xrc.md)).\nUnder `dc-rdma-od` there are no "
      "connections.\n\n{}\n",
      kBytes, kRounds, provenance(options.profile));
  page += tables;
  page += fmt::format(
      "## Within a budget, {} nodes of {} processes\n\nPolicy `turnout`, workload `alltoall` with "
      "rounds=300, bytes={}, group=8, interval 1 ms.\n\n{}\n",
      kBudgetRanks / kPerNode, kPerNode, kBytes, budget_table(results.value().begin()));
  page +=
      "- Connections: RC queue pairs or XRC initiators at one time, for the process with most of "
      "them.\n- Memory: of each kind, for the process with most of it. Queue pairs include those "
      "of the default transport\n  and the XRC targets that the process created.\n- Time per "
      "message: of the timed rounds, per message of one process.\n\n";
  page += how_it_was_run("nodes", options, options.options, settings);
  return ExperimentResult{std::move(page), {}};
}

}  // namespace

Experiment node_experiment() {
  return {"nodes", "connections and memory where many processes share a node", run};
}

}  // namespace turnout::sim
