// SPDX-License-Identifier: BSD-3-Clause
// `turnout why`: of saved reports, or of the processes that run on this host now.
#include <fmt/format.h>

#include <set>

#include "cli/command_line.h"
#include "cli/commands.h"
#include "cli/watch.h"
#include "cli/why_text.h"

namespace turnout::cli {
namespace {

constexpr double kWait = 10;  // seconds, for the first report of a running process

struct WhyOptions {
  std::uint32_t rank = 0, peer = 0;
  std::vector<std::string> paths;  // saved reports; none: the processes of this host
  std::string job;                 // only this one
};

Status read_running(std::vector<EndpointReport>* reports) {
  Result<Watch> watch = Watch::open();
  if (!watch) return watch.status();
  std::vector<std::string> damaged;
  Result<std::vector<Watched>> seen = watch.value().settle(kWait, {}, &damaged);
  if (!seen) return seen.status();
  for (const std::string& text : damaged) fmt::print(stderr, "{}\n", text);
  for (Watched& one : seen.value()) reports->push_back(std::move(one.report));
  return {};
}

// The reports of the job that was asked for, or of the only one.
Status choose_job(const WhyOptions& options, std::vector<EndpointReport>* reports) {
  if (!options.job.empty()) {
    std::erase_if(*reports, [&](const auto& report) { return report.job != options.job; });
  }
  std::set<std::string> jobs;
  for (const EndpointReport& report : *reports) jobs.insert(report.job);
  if (jobs.size() < 2) return {};
  std::string names;
  for (const std::string& job : jobs) names += fmt::format(" {}", job.empty() ? "(none)" : job);
  return invalid("reports of {} jobs; name one with --job:{}", jobs.size(), names);
}

int run_why(const WhyOptions& options) {
  std::vector<EndpointReport> reports;
  Status status;
  bool good = true;
  if (options.paths.empty()) {
    status = read_running(&reports);
  } else {
    good = read_all_reports(options.paths, &reports);
  }
  if (status.ok()) status = choose_job(options, &reports);
  if (status.ok() && reports.empty()) {
    fmt::print(stderr, "turnout why failed: no reports{}\n",
               options.paths.empty() ? ": no process of yours runs over Turnout, or none calls the "
                                       "library now"
                                     : "");
    return kFailed;
  }
  if (status.ok()) {
    const Result<std::string> text = why_text(reports, options.rank, options.peer);
    if (text) {
      fmt::print("{}", text.value());
      return good ? 0 : kFailed;
    }
    status = text.status();
  }
  return complain("turnout why", status);
}

}  // namespace

void add_why(CLI::App& app) {
  const auto [why, o] = add_command<WhyOptions>(
      app, "why", "why two ranks use the channels that they use, and what would change it",
      run_why);
  why->add_option("rank", o->rank, "a rank, or the number of a process that has none")->required();
  why->add_option("peer", o->peer, "the other one")->required();
  why->add_option("report", o->paths,
                  "report files, or folders of them; none: the processes that run now");
  why->add_option("-j,--job", o->job, "only this job");
}

}  // namespace turnout::cli
