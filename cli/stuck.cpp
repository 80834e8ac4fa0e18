// SPDX-License-Identifier: BSD-3-Clause
// `turnout stuck`: watches the jobs of this host for a while, or reads saved reports, and says who
// waits for whom.
#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <optional>

#include "cli/command_line.h"
#include "cli/commands.h"
#include "cli/process_state.h"
#include "cli/stuck_model.h"
#include "cli/stuck_text.h"
#include "cli/top_screen.h"
#include "cli/top_text.h"
#include "cli/watch.h"

namespace turnout::cli {
namespace {

constexpr int kHangs = 3;
constexpr double kLook = 0.1;  // seconds
// A process that reported by itself found something to report already.
constexpr double kWait = 3, kWaitOfSaved = 1;
// An endpoint looks once a second, first up to a second after the watch began, and its report is
// read up to a second after that.
constexpr double kSlack = 2.5;

struct StuckOptions {
  std::vector<std::string> paths;  // saved reports; none: the processes of this host
  std::string job;                 // only this one; empty: all
  std::optional<double> wait;      // seconds
  bool json = false;
};

using Processes = std::map<std::uint32_t, HostProcess>;

Processes processes_now() {
  Processes found;
  for (HostProcess& one : processes_with_provider()) found.emplace(one.pid, std::move(one));
  return found;
}

// All jobs with a process that has the provider, watched for long enough to see what is pending for
// so long.
Status observe(const StuckOptions& options, Observation* seen) {
  Result<Watch> watch = Watch::open();
  if (!watch) return watch.status();
  const Processes before = processes_now();
  const double seconds = seen->least + kSlack;
  std::vector<std::string> damaged;
  for (double left = seconds; left > 0; left -= kLook) {
    if (Status s = watch.value().touch(); !s.ok()) return s;
    sleep_for(kLook);
  }
  seen->reports = watch.value().read(&damaged);
  // What a process reports as its job, a file of settings may have named.
  std::map<std::uint32_t, std::string> jobs;
  for (const Watched& one : seen->reports) jobs[one.report.pid] = one.report.job;
  std::erase_if(seen->reports, [&](const Watched& one) {
    return !options.job.empty() && one.report.job != options.job;
  });
  for (const std::string& text : damaged) fmt::print(stderr, "{}\n", printable(text));
  for (auto& [pid, process] : processes_now()) {
    const auto earlier = before.find(pid);
    if (earlier == before.end()) continue;  // it has just begun
    if (const auto known = jobs.find(pid); known != jobs.end()) process.job = known->second;
    if (!options.job.empty() && process.job != options.job) continue;
    seen->processes.push_back({pid, process.rank, process.ranks, process.job,
                               doing_text(process, earlier->second, seconds),
                               computes(process, earlier->second, seconds)});
  }
  return {};
}

bool read_saved(const StuckOptions& options, Observation* seen) {
  std::vector<EndpointReport> reports;
  const bool good = read_all_reports(options.paths, &reports);
  for (EndpointReport& report : reports) {
    if (options.job.empty() || report.job == options.job)
      seen->reports.push_back({std::move(report)});
  }
  seen->live = false;
  return good;
}

int run_stuck(const StuckOptions& options) {
  Observation seen;
  seen.least = options.wait.value_or(options.paths.empty() ? kWait : kWaitOfSaved);
  bool good = true;
  if (!options.paths.empty()) {
    good = read_saved(options, &seen);
  } else if (const Status s = observe(options, &seen); !s.ok()) {
    complain("turnout stuck", s);
    return kFailed;
  }
  const std::vector<StuckJob> jobs = stuck_jobs(seen);
  if (options.json) {
    fmt::print("{}", stuck_json(jobs));
  } else {
    for (const StuckJob& job : jobs) fmt::print("{}", stuck_text(job, seen.least));
  }
  if (jobs.empty() && good) {
    fmt::print(stderr, "turnout stuck: no process of yours{} runs over Turnout\n",
               options.job.empty() ? "" : " of job " + options.job);
    good = false;
  }
  if (!good) return kFailed;
  return std::ranges::any_of(jobs, [](const StuckJob& job) { return job.hangs(); }) ? kHangs : 0;
}

}  // namespace

void add_stuck(CLI::App& app) {
  const auto [stuck, o] = add_command<StuckOptions>(
      app, "stuck", "why a job hangs: who waits for whom, for what, and since when", run_stuck);
  stuck->add_option("path", o->paths, "saved report files, or folders of them, instead");
  stuck->add_option("-j,--job", o->job, "only this job");
  stuck
      ->add_option(
          "-w,--wait", o->wait,
          "leave out operations that are pending for less: seconds (3; of saved reports 1)")
      ->check(CLI::Range(1.0, 3600.0));
  stuck->add_flag("--json", o->json, "all waits as JSON");
}

}  // namespace turnout::cli
