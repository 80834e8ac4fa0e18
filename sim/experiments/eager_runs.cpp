// SPDX-License-Identifier: BSD-3-Clause
#include "sim/experiments/eager_runs.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/memory/account.h"
#include "sim/experiments/page.h"

namespace turnout::sim::eager {

namespace {
bool is_buffer(std::string_view kind) {
  return kind == name(MemoryKind::receive_buffers) || kind == name(MemoryKind::rings);
}

}  // namespace

Setup usual_setup(std::string_view program, std::uint32_t ranks) {
  const bool few = ranks >= kMany && (program == "nas-is" || program == "nas-ft");
  return {{{"rounds", std::string(few ? kRoundsOfMany : kRounds)}},
          {{"ring_threshold", std::string(kRingThreshold)}}};
}

Setup paper_setup() {
  return {{{"rounds", std::string(kPaperRounds)}, {"compute", std::string(kPaperCompute)}},
          {{"ring_entries", std::string(kPaperEntries)},
           {"ring_entry_size", std::string(kPaperEntry)},
           {"receive_first", std::string(kPaperReceives)},
           {"receive_buffers", std::string(kPaperReceives)}}};
}

Setup source_setup() {
  return {paper_setup().options,
          {{"ring_entries", std::string(kSourceEntries)},
           {"ring_entry_size", std::string(kSourceEntry)},
           {"ring_threshold", std::string(kSourceThreshold)},
           {"receive_first", std::string(kSourceShared)},
           {"receive_buffers", std::string(kSourceSharedMost)},
           {"private_receive_first", fmt::format("{}", kSourceFirst)},
           {"private_receive_buffers", fmt::format("{}", kSourceLater)},
           {"private_receive_threshold", "1"}}};
}

Setup burst_setup(const Burst& burst, std::uint32_t ranks) {
  return {{{"messages", fmt::format("{}", burst.messages / ranks)},
           {std::string(burst.option.first), std::string(burst.option.second)}},
          {{"break_rule", "lend-freely"},
           {"receive_buffers", "4096"},
           {"credits", "128"},
           {"credits_first", "128"}}};
}

Result<Run> measure(const ExperimentOptions& options, std::string_view program,
                    const std::string& design, std::uint32_t ranks, const Setup& setup,
                    const Runner& runner) {
  StudyOptions study = begin_study(options, ranks, fmt::format("{} ", program));
  study.workload = program;
  study.options = overlaid(setup.options, options.options);
  // A connection to everyone the program speaks with, as in the paper.
  NamedValues settings = overlaid({{"memory_budget", "64GiB"}}, room_for_all(ranks));
  settings.insert(settings.end(), setup.settings.begin(), setup.settings.end());
  study.settings = overlaid(settings, options.settings);
  study.policies = {design};
  study.check_content = false;
  study.keep_reports = true;
  const Result<Study> result = run_study(study, runner);
  if (!result) return result.status();
  const Outcome& outcome = result.value().results.front().outcome;
  if (outcome.reports.empty()) {
    return Status{Code::internal, "eager: the simulation kept no reports"};
  }
  const Timed timed = timed_phases(result.value().results.front());
  Run run{std::string(program), design, ranks, timed.time, timed.messages};
  std::uint64_t sum = 0, rings = 0;
  for (const EndpointReport& report : outcome.reports) {
    std::uint64_t buffers = 0, others = 0;
    for (const MemoryLine& line : report.memory) {
      (is_buffer(line.kind) ? buffers : others) += line.peak;
    }
    run.buffers = std::max(run.buffers, buffers);
    run.others = std::max(run.others, others);
    sum += buffers;
    std::uint64_t connections = 0;
    for (const PeerReport& peer : report.peers) {
      const auto& spans = peer.receive.spans;
      connections += spans.empty() ? 0 : 1;
      rings += std::any_of(spans.begin(), spans.end(),
                           [](const ChannelSpan& span) { return over_ring(span.channel); })
                   ? 1
                   : 0;
    }
    run.connections = std::max(run.connections, connections);
    run.limit_events += report.shared_receives.limit_events;
    run.growths += report.shared_receives.growths;
    run.rnr_naks += report.shared_receives.rnr_naks;
  }
  const auto n = static_cast<double>(outcome.reports.size());
  run.mean_buffers = static_cast<double>(sum) / n;
  run.mean_rings = static_cast<double>(rings) / n;
  return run;
}

}  // namespace turnout::sim::eager
