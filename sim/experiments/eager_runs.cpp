// SPDX-License-Identifier: BSD-3-Clause
#include "sim/experiments/eager_runs.h"

#include <fmt/format.h>

#include "sim/experiments/page.h"

namespace turnout::sim::eager {

Setup usual_setup(std::uint32_t ranks) {
  return {{{"rounds", std::string(ranks >= kMany ? kRoundsOfMany : kRounds)}},
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

StudyOptions study_of(const ExperimentOptions& options, std::string_view program,
                      const std::string& design, std::uint32_t ranks, const Setup& setup) {
  StudyOptions study = begin_study(options, ranks, fmt::format("{} ", program));
  study.workload = program;
  study.options = overlaid(setup.options, options.options);
  // A connection to everyone the program speaks with, as in the paper.
  NamedValues settings = overlaid({{"memory_budget", "64GiB"}}, room_for_all(ranks));
  settings.insert(settings.end(), setup.settings.begin(), setup.settings.end());
  study.settings = overlaid(settings, options.settings);
  study.policies = {design};
  return study;
}

Run run_of(const PolicyResult& result) {
  const Timed timed = timed_phases(result);
  return {timed.time, timed.messages, result.outcome.receiving};
}

}  // namespace turnout::sim::eager
