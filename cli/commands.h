// SPDX-License-Identifier: BSD-3-Clause
// The subcommands of `turnout`. Each add_*() declares the options of one; it prints to standard
// output, what is wrong to standard error, and gives the process's exit code (command_line.h).
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "core/report/report.h"

namespace CLI {
class App;
}

namespace turnout::cli {

// Starts an MPI job with Turnout as its provider, and says at the end whether its processes used
// it. Takes the launcher's words out of the command line.
void add_run(CLI::App& app, int* argc, char** argv);
// Records the messages of a job that does not run over Turnout, for the simulator. Takes the
// launcher's words out of the command line.
void add_record(CLI::App& app, int* argc, char** argv);
// Tables of the reports that processes wrote.
void add_report(CLI::App& app);
// What running processes of this user did so far, again each second, until it is interrupted.
void add_top(CLI::App& app);
// Why a job hangs. 3: operations of a job are pending and nothing moves.
void add_stuck(CLI::App& app);
// Why two ranks use the channels that they use, and what would change it.
void add_why(CLI::App& app);
// What is wrong with this machine for Turnout, and how to mend it. 1: something will not work.
void add_doctor(CLI::App& app);
// The adapter chosen and why, the others found, costs, limits, settings.
void add_info(CLI::App& app);
// Runs an unmodified verbs program on the virtual adapter: with our libraries preloaded, and a shim
// that redirects the files of a kernel driver (hca/shim/) to a temporary tree, removed when the
// program ends. Takes the program's words out of the command line.
void add_verbs(CLI::App& app, int* argc, char** argv);

// Of turnout-sim: measures the costs of a device and writes a file for the setting `costs`.
void add_calibrate(CLI::App& app);
// Plots recordings, traces and reports.
void add_plot(CLI::App& app);
// What a recorded program needs at other numbers of ranks.
void add_plan(CLI::App& app);
// Workloads and experiments on the virtual clock.
void add_sim(CLI::App& app);

// Adds the report in a file. False: there is none; why is on standard error.
bool read_report(const std::filesystem::path& path, std::vector<EndpointReport>* reports);
// The same of all files, and of the files *.json of all folders. False: some could not be read.
bool read_all_reports(const std::vector<std::string>& paths, std::vector<EndpointReport>* reports);
// All tables of each job.
[[nodiscard]] std::string format_jobs(std::vector<EndpointReport> reports,
                                      const TableLimits& limits);
// The summary of each job (job_summary.h).
[[nodiscard]] std::string summarize_jobs(std::vector<EndpointReport> reports);
// The HTML page of all jobs (html/page.h).
[[nodiscard]] std::string page_of_jobs(std::vector<EndpointReport> reports);

}  // namespace turnout::cli
