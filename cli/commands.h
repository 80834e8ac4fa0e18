// SPDX-License-Identifier: BSD-3-Clause
// The subcommands of `turnout`. Each prints to standard output, what is wrong to standard error,
// and returns the process's exit code (command_line.h).
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/settings.h"
#include "core/report/report.h"

namespace turnout::cli {

// The adapter chosen and why, the others found, costs and limits.
int info();
// What is wrong with this machine for Turnout, and how to mend it. 1: something will not work.
int doctor(bool json);
struct ConfigOptions {
  std::string word;       // only settings with it in name or text; empty: all but tuning parameters
  bool changed = false;   // only settings that differ from their default
  bool markdown = false;  // docs/configuration.md instead (defaults)
};
// The table of settings and their values in force.
int config_table(const ConfigOptions& options);

struct ReportOptions {
  std::vector<std::string> paths;  // files, or folders of *.json
  std::size_t peers = SIZE_MAX;
  std::size_t decisions = SIZE_MAX;
  std::string html;   // a file for the page of the jobs instead of text; empty: none
  bool full = false;  // all tables instead of the summary
  bool json = false;  // the profiles of the jobs instead of tables
};
int report(const ReportOptions& options);

// Adds the report in a file. False: there is none; why is on standard error.
bool read_report(const std::filesystem::path& path, std::vector<EndpointReport>* reports);
// All tables of each job.
[[nodiscard]] std::string format_jobs(std::vector<EndpointReport> reports,
                                      const TableLimits& limits);
// The summary of each job (job_summary.h).
[[nodiscard]] std::string summarize_jobs(std::vector<EndpointReport> reports);
// The HTML page of all jobs (html/page.h).
[[nodiscard]] std::string page_of_jobs(std::vector<EndpointReport> reports);

struct TopOptions {
  bool once = false;
  double wait = 10;       // seconds, with `once`, until somebody tells something
  std::string job;        // only this one; empty: all
  std::uint32_t pid = 0;  // only this process; 0: all
  std::size_t peers = 8;
  std::size_t decisions = 4;
};
// What running processes of this user did so far, again each second, until it is interrupted.
int top(const TopOptions& options);

// What the selection knows of the device: values in force and their sources, or for
// docs/device-costs.md (built in).
int costs_table(bool markdown);

// The text of docs/configuration.md.
[[nodiscard]] std::string configuration_page();

}  // namespace turnout::cli
