// SPDX-License-Identifier: BSD-3-Clause
// `turnout run -- mpirun ...`: starts an MPI job with Turnout as its provider, and says at the end
// whether its processes used it.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace turnout::cli {

struct RunOptions {
  std::vector<std::string> command;  // the launcher and its arguments
  std::string report;                // a folder, "html"; "-": the tables on standard output
  bool tells = false;                // --report was given
  std::string budget, policy, trace;
  bool dry_run = false;
};

CLI::App* add_run(CLI::App& app, RunOptions* options);
// The launcher's exit code; 1: it could not be prepared.
[[nodiscard]] int run_job(const RunOptions& options);

}  // namespace turnout::cli
