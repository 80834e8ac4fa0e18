// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>

#include "base/installation.h"
#include "cli/command_line.h"
#include "cli/commands.h"
#include "cli/run.h"
#include "cli/run_program.h"
#include "cli/verbs.h"

namespace turnout::cli {
namespace {

struct OfSimulator {
  const char* name;
  const char* help;
};
// Subcommands of the program turnout-sim, which users who only run MPI programs need not build.
constexpr OfSimulator kOfSimulator[] = {
    {"calibrate", "measure an adapter for the selection and write a costs file"},
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

// All subcommands, with their options.
struct CommandLine {
  CLI::App app{
      "Turnout chooses the InfiniBand transport for each peer while a program runs.\n"
      "MPI programs use it as a libfabric provider. This command starts them and shows what was "
      "chosen, and "
      "why."};
  ConfigOptions config;
  bool costs = false, doctor_json = false;
  ReportOptions report;
  TopOptions top;
  VerbsOptions verbs;
  RunOptions run;
  CLI::App *run_command, *report_command, *top_command, *info_command, *doctor_command,
      *verbs_command;
  CLI::Option* config_option;

  CommandLine() {
    app.name("turnout");
    app.set_version_flag("-V,--version", "turnout " TURNOUT_VERSION);
    app.require_subcommand(1);
    run_command = add_run(app, &run);
    add_report();
    add_top();
    doctor_command = app.add_subcommand("doctor", "check this machine for problems, with remedies");
    doctor_command->add_flag("--json", doctor_json, "print the findings as JSON");
    add_info();
    verbs_command = add_verbs(app, &verbs);
    for (const OfSimulator& one : kOfSimulator) app.add_subcommand(one.name, one.help);
    app.footer(
        "Exit codes: 0 success, 1 failure, 2 wrong usage. `run` and `verbs` return the program's.");
  }

 private:
  void add_report() {
    report_command = app.add_subcommand(
        "report", "summary of the JSON reports that TURNOUT_REPORT=FOLDER wrote");
    report_command->add_option("path", report.paths, "report files, or folders of them")
        ->required();
    report_command->add_flag("-f,--full", report.full, "all tables of each rank, and the sums");
    report_command->add_option("-p,--peers", report.peers,
                               "with --full: at most this many peers of each rank, the busiest");
    report_command->add_option("-d,--decisions", report.decisions,
                               "with --full: at most this many decisions of each rank, the latest");
    auto* const json =
        report_command->add_flag("-j,--json", report.json, "the profile of each job as JSON");
    report_command
        ->add_option("--html", report.html, "write one HTML page with charts to this file")
        ->excludes(json);
  }

  void add_top() {
    top_command = app.add_subcommand("top", "watch running programs");
    top_command->add_flag("-1,--once", top.once, "print all tables once and exit");
    top_command
        ->add_option("-w,--wait", top.wait,
                     "with --once: wait at most this many seconds for a report")
        ->capture_default_str()
        ->check(CLI::Range(0.0, 3600.0));
    top_command->add_option("-j,--job", top.job, "only this job");
    top_command->add_option("-p,--pid", top.pid, "only this process");
    top_command->add_option("--peers", top.peers, "peers of each process, the busiest")
        ->capture_default_str();
    top_command
        ->add_option("-d,--decisions", top.decisions, "decisions of each process, the latest")
        ->capture_default_str();
  }

  void add_info() {
    info_command = app.add_subcommand(
        "info", "the adapter in use and why, adapters found, costs, limits, settings");
    config_option = info_command
                        ->add_option("-c,--config", config.word,
                                     "settings: value, default, meaning; =WORD: those that match")
                        ->expected(0, 1)
                        ->type_name("[=WORD]");
    info_command->add_flag("--changed", config.changed,
                           "with --config: only settings that differ from their default");
    info_command->add_flag("--costs", costs, "device costs that the selection uses, with sources");
    info_command->add_flag("--markdown", config.markdown,
                           "with --config or --costs: docs/configuration.md or device-costs.md");
  }
};

[[nodiscard]] int run_info(const CommandLine& line) {
  const bool config = line.config_option->count() > 0;
  if ((line.config.markdown && !config && !line.costs) || (config && line.costs) ||
      (line.config.changed && !config)) {
    fmt::print(stderr,
               "turnout info: --markdown needs one of --config and --costs; --changed needs "
               "--config\n");
    return kWrongUse;
  }
  return config       ? config_table(line.config)
         : line.costs ? costs_table(line.config.markdown)
                      : info();
}

[[nodiscard]] int run_command(int argc, char** argv) {
  if (argc > 1 &&
      std::any_of(std::begin(kOfSimulator), std::end(kOfSimulator),
                  [&](const OfSimulator& one) { return std::string_view(argv[1]) == one.name; })) {
    return run_simulator(argv);
  }
  CommandLine line;
  line.verbs.program = take_program(&argc, argv, "verbs", {"--fabric", "--profile"});
  line.run.command =
      take_program(&argc, argv, "run", {"-b", "--budget", "-p", "--policy", "-t", "--trace"});
  if (const std::optional<int> code = parse_command_line(line.app, argc, argv)) return *code;
  if (*line.info_command) return run_info(line);
  if (*line.doctor_command) return doctor(line.doctor_json);
  if (*line.top_command) return top(line.top);
  if (*line.verbs_command) return run_verbs(line.verbs);
  if (*line.report_command) return report(line.report);
  line.run.tells = line.run_command->count("--report") > 0 || line.run.full;
  return run_job(line.run);
}

}  // namespace
}  // namespace turnout::cli

int main(int argc, char** argv) {
  return turnout::cli::finish(turnout::cli::run_command(argc, argv));
}
