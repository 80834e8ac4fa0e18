// SPDX-License-Identifier: BSD-3-Clause
// Runs many studies in several processes, with the results in a folder.
//
// The virtual adapter allows one world per process, so parallel runs are child processes, one for
// each run, which write the results to the folder; their memory is free again when they end. The
// caller must have one thread and no world. A child that exits early ends the set with an error;
// finished results stay in the folder.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "sim/study/study.h"

namespace turnout::sim {

struct SetOptions {
  std::uint32_t jobs = 1;  // more than one: all studies have `kept`
  // Told of each run that was made, in a line; from children too. May be empty.
  std::function<void(const std::string& line)> told;
};

// One result for each study, in their order; a study whose run failed has its failure.
// Errors: invalid (jobs without a folder), system, internal (a child ended early).
[[nodiscard]] Result<std::vector<Result<Study>>> run_studies(std::span<const StudyOptions> studies,
                                                             const SetOptions& options,
                                                             const Runner& runner);

}  // namespace turnout::sim
