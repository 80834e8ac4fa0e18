// SPDX-License-Identifier: BSD-3-Clause
// What an MPI launcher needs to be told so that its program's messages go over Turnout: which MPI
// it is, from what it says of its version, and the variables and options of that one. Pure: the
// facts are handed in. Any thread; no errors.
//
// The names are those of Open MPI's mpirun(1) and MCA parameters, MPICH's MPIR_CVAR_*, Intel MPI's
// developer reference and libfabric's fi_provider(7).
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace turnout::cli {

enum class Mpi { unknown, open_mpi_4, open_mpi_5, mpich, intel_mpi, slurm };

struct MpiVersion {
  Mpi mpi = Mpi::unknown;
  std::string name;  // "Open MPI 4.1.4"
};

// `text`: what `LAUNCHER --version` prints.
[[nodiscard]] MpiVersion mpi_of(std::string_view text);

struct LaunchFacts {
  std::vector<std::string> command;  // launcher first
  MpiVersion version;
  std::string provider_folder;                                // of libturnout-fi.so
  std::string report_folder;                                  // TURNOUT_REPORT; empty: as it is
  std::vector<std::pair<std::string, std::string>> settings;  // of Turnout, from options
  unsigned processors = 1;                                    // that this process may use
  unsigned batch_hosts = 1;                                   // of the PBS job this is part of
  bool infiniband = false;                                    // this host has an adapter
  bool root = false;  // this process is root's; Open MPI refuses to run as root by default
  std::map<std::string, std::string> environment;  // of this process
};

struct Launch {
  std::vector<std::string> command;  // what to start
  // Beside the environment there is. What the user has set stays as it is, but for
  // FI_PROVIDER_PATH, which gets a folder more.
  std::vector<std::pair<std::string, std::string>> variables;
  unsigned ranks = 0;    // 0: the command does not say
  bool one_host = true;  // as far as the command says
};

[[nodiscard]] Launch plan_launch(const LaunchFacts& facts);

// The same for `turnout record`: over the transports that the MPI library takes by itself, all of
// whose messages pass through libfabric or UCX. `library` is preloaded and records into `folder`.
[[nodiscard]] Launch plan_recording(const LaunchFacts& facts, const std::string& library,
                                    const std::string& folder);

// Why processes of this MPI may have run without Turnout, and what to look at.
[[nodiscard]] std::vector<std::string> reasons_of_absence(const LaunchFacts& facts);

}  // namespace turnout::cli
