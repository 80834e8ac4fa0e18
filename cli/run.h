// SPDX-License-Identifier: BSD-3-Clause
// `turnout run -- mpirun ...`: starts an MPI job with Turnout as its provider, and reports at the
// end whether its processes used it.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace turnout::cli {

struct RunOptions {
  std::vector<std::string> command;  // the launcher and its arguments
  // "-": the summary on standard output; "html" or *.html: a page; *.txt: the summary in that file;
  // else a folder for the reports, besides the summary.
  std::string report = "-";
  bool tells = false;  // --report was given
  bool full = false;   // all tables instead of the summary
  std::string budget, policy, trace;
  bool dry_run = false;
};

CLI::App* add_run(CLI::App& app, RunOptions* options);
// What `LAUNCHER --version` prints, on either stream; empty: it cannot be started.
[[nodiscard]] std::string launcher_version_text(const std::string& launcher);
// The launcher's exit code; 1: it could not be prepared.
[[nodiscard]] int run_job(const RunOptions& options);

}  // namespace turnout::cli
