// SPDX-License-Identifier: BSD-3-Clause
// LauncherIdentity: who this process is to its launcher (Open MPI, MPICH's and Intel's hydra,
// SLURM, any PMIx): -1 and empty when unknown. Reads the environment and, for hydra, /proc (its job
// has no name there). Any thread.
#pragma once

#include <string>

namespace turnout {

struct LauncherIdentity {
  int rank = -1, ranks = -1;
  int local_ranks = -1;  // of the job on this host
  std::string job;
};
[[nodiscard]] LauncherIdentity launcher_identity();

}  // namespace turnout
