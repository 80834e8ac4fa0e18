// SPDX-License-Identifier: BSD-3-Clause
// turnout-sim: the subcommands of `turnout` that need the simulator. `turnout` starts it for them.
#include "cli/calibrate.h"
#include "cli/command_line.h"
#include "cli/plot.h"
#include "cli/sim.h"

int main(int argc, char** argv) {
  using namespace turnout;
  CLI::App app{"The simulator of Turnout."};
  app.name("turnout");
  app.set_version_flag("-V,--version", "turnout " TURNOUT_VERSION);
  app.require_subcommand(1);
  cli::PlotSourcesOptions plot_options;
  auto* const plot_sources = cli::add_plot(app, &plot_options);
  cli::CalibrateOptions calibrate_options;
  auto* const calibrate = cli::add_calibrate(app, &calibrate_options);
  cli::SimOptions sim_options;
  cli::add_sim(app, &sim_options);
  if (const std::optional<int> code = cli::parse_command_line(app, argc, argv)) return *code;
  if (*plot_sources) return cli::finish(cli::plot_sources(plot_options));
  if (*calibrate) return cli::finish(cli::run_calibrate(calibrate_options));
  return cli::finish(cli::run_sim(sim_options));
}
