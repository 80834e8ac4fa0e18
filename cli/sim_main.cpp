// SPDX-License-Identifier: BSD-3-Clause
// turnout-sim: the subcommands of `turnout` that need the simulator. `turnout` starts it for them.
#include "cli/command_line.h"
#include "cli/commands.h"

int main(int argc, char** argv) {
  using namespace turnout;
  CLI::App app{"The simulator of Turnout."};
  app.name("turnout");
  app.set_version_flag("-V,--version", "turnout " TURNOUT_VERSION);
  app.require_subcommand(1);
  cli::add_plot(app);
  cli::add_calibrate(app);
  cli::add_plan(app);
  cli::add_sim(app);
  return cli::run_command_line(app, argc, argv);
}
