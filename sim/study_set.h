// SPDX-License-Identifier: BSD-3-Clause
// Many studies at once: the runs of a table, kept in a folder and made by several processes.
//
// The virtual adapter has one world in a process, so runs at one time are children, which take one
// run after the other and leave the results in the folder. The caller has one thread, and no world
// yet. A child that ends early ends the set with an error; what was finished stays in the folder.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "sim/study.h"

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
