// SPDX-License-Identifier: BSD-3-Clause
// `turnout verbs`: other people's verbs programs, unmodified, on the virtual adapter.
//
// The program gets our libraries preloaded, and a shim that shows it the files which a kernel
// driver would have (hca/shim/), from a tree that is made for it and removed when it ended. One
// call in a process, from its main thread: it changes the environment. Errors are told on standard
// error, and by the exit status as shells have it: 126, 127, 128 and a signal's number, else the
// program's.
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
