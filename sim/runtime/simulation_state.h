// SPDX-License-Identifier: BSD-3-Clause
// SimulationState: the ranks of a simulation, and how far they are. Owned by run(); one thread.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "sim/runtime/job.h"
#include "sim/runtime/rank_environment.h"

namespace turnout::sim {

class RankState;

struct SimulationState {
  SimulationState(const Options& options, hca::World& world, RankSettings settings);
  ~SimulationState();

  Job job;
  RankEnvironment environment;
  std::vector<std::unique_ptr<RankState>> ranks;
  std::uint32_t ended = 0, closed = 0;  // ranks
  std::vector<Picoseconds> ended_at;
  Picoseconds last_step = 0;                                  // when a program last went on
  std::string error;                                          // of the first rank that failed
  std::vector<std::pair<std::uint32_t, std::string>> errors;  // with go_on_after_errors
};

}  // namespace turnout::sim
