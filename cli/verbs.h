// SPDX-License-Identifier: BSD-3-Clause
// `turnout verbs`: runs unmodified verbs programs on the virtual adapter.
//
// The program runs with our libraries preloaded, and a shim that redirects the files of a kernel
// driver (hca/shim/) to a temporary tree, removed when the program ends. One call per process, from
// its main thread: it changes the environment. Errors are printed to standard error; the exit
// status is that of shells: 126, 127, 128 plus a signal's number, else the program's.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace turnout::cli {

struct VerbsOptions {
  bool env = false;     // print what a shell can take over, instead of running a program
  std::string fabric;   // TURNOUT_FABRIC; empty: as it is
  std::string profile;  // TURNOUT_ADAPTER; empty: as it is
  bool mlx5dv = false;  // the program may hear that mlx5dv is there
  std::vector<std::string> program;  // with its arguments
};

CLI::App* add_verbs(CLI::App& app, VerbsOptions* options);
int run_verbs(const VerbsOptions& options);

}  // namespace turnout::cli
