// SPDX-License-Identifier: BSD-3-Clause
// LauncherIdentity: who this process is to its launcher (Open MPI, MPICH's and Intel's hydra,
// SLURM, any PMIx): -1 and empty when unknown. Reads the environment and, for hydra, /proc (its job
// has no name there). And what /proc tells of a process. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace turnout {

struct LauncherIdentity {
  int rank = -1, ranks = -1;
  int local_ranks = -1;  // of the job on this host
  std::string job;
};
[[nodiscard]] LauncherIdentity launcher_identity();
// The same of another process of this user; unknown where /proc does not show its environment.
[[nodiscard]] LauncherIdentity launcher_identity_of(int pid);

// Small files of /proc: at most `most` bytes; empty: it cannot be read.
[[nodiscard]] std::optional<std::string> read_proc(const std::string& path, std::size_t most);
// proc(5), /proc/PID/stat, what is needed of it.
struct ProcessStat {
  char state = '?';
  int parent = 0;
  std::uint64_t processor_time = 0;  // of all threads, clock ticks
  std::uint64_t start = 0;           // clock ticks since boot
};
[[nodiscard]] std::optional<ProcessStat> process_stat(int pid);

}  // namespace turnout
