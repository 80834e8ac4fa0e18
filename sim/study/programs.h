// SPDX-License-Identifier: BSD-3-Clause
// Programs of one experiment alone: workloads that `turnout sim` does not list, with names and
// options all the same, so that their results can be kept and their runs made again.
//
// Constant data; any thread. Errors: invalid, with the nearest name of a listed workload.
#pragma once

#include <string_view>

#include "base/status.h"
#include "sim/workloads/workload.h"

namespace turnout::sim {

// aqps-memory: every process is heard by rank 0 (memory_program.h).
[[nodiscard]] const Workload& memory_workload();
// one-by-one: rank 0 sends to each other rank in turn, each by itself.
[[nodiscard]] const Workload& one_by_one_workload();
// everybody: each rank to every other, or a few of them to all and back.
[[nodiscard]] const Workload& everybody_workload();

// A listed workload, or one of these.
[[nodiscard]] Result<const Workload*> find_program(std::string_view name);

}  // namespace turnout::sim
