// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>

#include "base/installation.h"
#include "cli/command_line.h"
#include "cli/commands.h"

namespace turnout::cli {
namespace {

struct OfSimulator {
  const char* name;
  const char* help;
};
// Subcommands of the program turnout-sim, which users who only run MPI programs need not build.
constexpr OfSimulator kOfSimulator[] = {
    {"calibrate", "measure an adapter for the selection and write a costs file"},
    {"plan", "predict memory, connections and time of a recorded program at other sizes"},
    {"plot", "plot who sends to a rank over time, from recordings or reports"},
    {"sim", "run a workload or an experiment in virtual time, on a modelled adapter"},
};

[[nodiscard]] int run_simulator(char** argv) {
  const std::string program = program_folder() + "/turnout-sim";
  ::execv(program.c_str(), argv);
  fmt::print(stderr,
             "turnout {} failed: {}: {}; build or install the whole of Turnout (make build)\n",
             argv[1], program, std::strerror(errno));
  return kFailed;
}

[[nodiscard]] int run_command(int argc, char** argv) {
  for (const OfSimulator& one : kOfSimulator) {
    if (argc > 1 && std::string_view(argv[1]) == one.name) return run_simulator(argv);
  }
  CLI::App app{
      "Turnout chooses the InfiniBand transport for each peer while a program runs.\n"
      "MPI programs use it as a libfabric provider. This command starts them and shows what was "
      "chosen, and "
      "why."};
  app.name("turnout");
  app.set_version_flag("-V,--version", "turnout " TURNOUT_VERSION);
  app.require_subcommand(1);
  add_run(app, &argc, argv);
  add_record(app, &argc, argv);
  add_report(app);
  add_top(app);
  add_stuck(app);
  add_why(app);
  add_doctor(app);
  add_info(app);
  add_verbs(app, &argc, argv);
  for (const OfSimulator& one : kOfSimulator) app.add_subcommand(one.name, one.help);
  app.footer(
      "Exit codes: 0 success, 1 failure, 2 wrong usage; of `stuck` also 3: a job hangs. `run`, "
      "`record` and `verbs` return the program's.");
  return run_command_line(app, argc, argv);
}

}  // namespace
}  // namespace turnout::cli

int main(int argc, char** argv) {
  return turnout::cli::run_command(argc, argv);
}
