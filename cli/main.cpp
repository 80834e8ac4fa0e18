// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>

#include "cli/calibrate.h"
#include "cli/commands.h"
#include "cli/plot.h"
#include "cli/run.h"
#include "cli/run_program.h"
#include "cli/sim.h"
#include "cli/verbs.h"

int main(int argc, char** argv) {
  using namespace turnout;
  CLI::App app{
      "Turnout chooses the InfiniBand transport for every peer while a program runs.\n"
      "MPI programs use it as a libfabric provider; this command tells what it would do and "
      "did."};
  app.name("turnout");
  app.set_version_flag("--version", "turnout " TURNOUT_VERSION);
  app.require_subcommand(1);

  auto* const info = app.add_subcommand(
      "info", "the adapter that would be used and why, adapters found, costs, limits, settings");
  bool config = false, costs = false, markdown = false;
  info->add_flag("--config", config, "the table of settings: value, default, meaning");
  info->add_flag("--costs", costs, "what the selection knows of the device, and from where");
  info->add_flag("--markdown", markdown,
                 "with --config or --costs: the page docs/configuration.md or device-costs.md");

  auto* const doctor = app.add_subcommand(
      "doctor", "what is wrong with this machine for Turnout, and what to do about it");
  bool doctor_json = false;
  doctor->add_flag("--json", doctor_json, "a list of findings as JSON instead of the table");

  auto* const report = app.add_subcommand(
      "report", "tables from the JSON reports that TURNOUT_REPORT=FOLDER leaves");
  cli::ReportOptions options;
  report->add_option("path", options.paths, "report files, or folders of them")->required();
  report->add_option("--peers", options.peers, "show this many peers of each rank, the busiest");
  report->add_option("--decisions", options.decisions,
                     "show this many decisions of each rank, the last");
  auto* const json =
      report->add_flag("--json", options.json, "the profile of each job as JSON instead");
  report->add_option("--html", options.html, "write one HTML page, with charts, into this file")
      ->excludes(json);

  auto* const top = app.add_subcommand("top", "what running programs do, as report tells it");
  cli::TopOptions top_options;
  top->add_flag("--once", top_options.once, "print once and end");
  top->add_option("--wait", top_options.wait, "with --once: seconds until somebody must have told")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 3600.0));
  top->add_option("--job", top_options.job, "only this job");
  top->add_option("--pid", top_options.pid, "only this process");
  top->add_option("--peers", top_options.peers, "peers of each process, the busiest")
      ->capture_default_str();
  top->add_option("--decisions", top_options.decisions, "decisions of each process, the last")
      ->capture_default_str();

  cli::PlotSourcesOptions plot_options;
  auto* const plot_sources = cli::add_plot(app, &plot_options);

  cli::CalibrateOptions calibrate_options;
  auto* const calibrate = cli::add_calibrate(app, &calibrate_options);

  cli::SimOptions sim_options;
  auto* const sim = cli::add_sim(app, &sim_options);

  cli::VerbsOptions verbs_options;
  auto* const verbs = cli::add_verbs(app, &verbs_options);
  verbs_options.program = cli::take_program(&argc, argv, "verbs", {"--fabric", "--profile"});

  cli::RunOptions run_options;
  auto* const run = cli::add_run(app, &run_options);
  run_options.command = cli::take_program(&argc, argv, "run", {"--budget", "--policy", "--trace"});

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error);
  }
  int code = 0;
  if (*info) {
    if ((markdown && !config && !costs) || (config && costs)) {
      fmt::print(stderr, "turnout info: --markdown goes with --config or --costs, one of them\n");
      return 1;
    }
    code = config ? cli::config_table(markdown) : costs ? cli::costs_table(markdown) : cli::info();
  } else if (*doctor) {
    code = cli::doctor(doctor_json);
  } else if (*top) {
    code = cli::top(top_options);
  } else if (*plot_sources) {
    code = cli::plot_sources(plot_options);
  } else if (*calibrate) {
    code = cli::run_calibrate(calibrate_options);
  } else if (*sim) {
    code = cli::run_sim(sim_options);
  } else if (*run) {
    run_options.tells = run->count("--report") > 0;
    code = cli::run_job(run_options);
  } else if (*verbs) {
    code = cli::run_verbs(verbs_options);
  } else {
    code = cli::report(options);
  }
  // Output that nobody received (a full disk) is a failure; a reader that left (head) is none.
  if (std::fflush(stdout) != 0 && errno != EPIPE) {
    std::perror("turnout: standard output");
    return 1;
  }
  return code;
}
