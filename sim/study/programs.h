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

// aqps-memory: every process is heard by rank 0, and under a selection the sources that send much
// change, so that it makes all the queue pairs it may have.
//
// Sources begin one after the other: rank 0 pays for setting up thousands of queue pairs. A wave of
// sources sends enough to be given RC-RDMA, then computes: it does not answer when rank 0 asks for
// the channel back, so the queue pairs of the next wave are new ones. Ends when all channels are as
// they shall be. No barriers: they would make channels of their own.
struct MemoryProgram {
  std::uint32_t first_messages = 8;                // of every source
  Picoseconds apart = 4 * 1'000 * 1'000'000LL;     // between two sources' beginnings
  std::uint32_t wave = 26, waves = 0;              // sources of a wave; 0 waves: none
  std::uint32_t burst = 1536;                      // messages of each source of a wave
  Picoseconds busy = 2'000 * 1'000 * 1'000'000LL;  // what it computes afterwards
};
[[nodiscard]] Program memory_program(const MemoryProgram& shape);
[[nodiscard]] const Workload& memory_workload();
// one-by-one: rank 0 sends to each other rank in turn, each by itself.
[[nodiscard]] const Workload& one_by_one_workload();
// everybody: each rank to every other, or a few of them to all and back.
[[nodiscard]] const Workload& everybody_workload();

// A listed workload, or one of these.
[[nodiscard]] Result<const Workload*> find_program(std::string_view name);

}  // namespace turnout::sim
