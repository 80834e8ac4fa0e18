// SPDX-License-Identifier: BSD-3-Clause
#include "core/report/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>

#include "cli/command_line.h"
#include "cli/commands.h"
#include "cli/html/page.h"
#include "core/report/job_profile.h"
#include "core/report/job_summary.h"
#include "core/report/report_text.h"

namespace turnout::cli {
namespace {

namespace fs = std::filesystem;

// A report of thousands of peers and decisions has some MiB.
constexpr std::uintmax_t kMaxFile = std::uintmax_t{64} << 20;

bool complain(const fs::path& path, std::string_view why,
              std::string_view what = "reading reports") {
  fmt::print(stderr, "turnout: {} failed: {}: {}\n", what, path.string(), why);
  return false;
}

}  // namespace

bool read_report(const fs::path& path, std::vector<EndpointReport>* reports) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) {
    return complain(path, error ? error.message() : "neither a file nor a folder");
  }
  if (fs::file_size(path, error) > kMaxFile) return complain(path, "larger than 64 MiB");
  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (!file) return complain(path, std::generic_category().message(errno));
  Result<EndpointReport> report = report_from_json(text);
  if (!report) return complain(path, report.status().text());
  reports->push_back(std::move(report).value());
  return true;
}

namespace {

bool read_folder(const fs::path& folder, std::vector<EndpointReport>* reports) {
  std::error_code error;
  std::vector<fs::path> files;
  for (fs::directory_iterator i(folder, error), end; !error && i != end; i.increment(error)) {
    const std::string name = i->path().filename().string();
    if (name.ends_with(".json") && !name.starts_with('.')) files.push_back(i->path());
  }
  if (error) return complain(folder, error.message());
  if (files.empty()) return complain(folder, "no reports (*.json) in this folder");
  std::sort(files.begin(), files.end());
  bool good = true;
  for (const fs::path& file : files) good = read_report(file, reports) && good;
  return good;
}

}  // namespace

bool read_all_reports(const std::vector<std::string>& paths, std::vector<EndpointReport>* reports) {
  bool good = true;
  for (const std::string& path : paths) {
    std::error_code error;
    good =
        (fs::is_directory(path, error) ? read_folder(path, reports) : read_report(path, reports)) &&
        good;
  }
  return good;
}

namespace {

using Jobs = std::vector<std::pair<std::string, std::vector<EndpointReport>>>;

Jobs by_job(std::vector<EndpointReport> reports) {
  std::map<std::string, std::vector<EndpointReport>> jobs;
  for (EndpointReport& one : reports) jobs[one.job].push_back(std::move(one));
  return {std::make_move_iterator(jobs.begin()), std::make_move_iterator(jobs.end())};
}

bool write_page(const fs::path& path, std::vector<EndpointReport> reports) {
  if (reports.empty()) return complain(path, "no reports to write", "writing the page");
  const std::string page = page_of_jobs(std::move(reports));
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << page << std::flush;
  return file ? true : complain(path, std::generic_category().message(errno), "writing the page");
}

// `text` of each job, below its name where there are several.
template <class Text>
std::string each_job(std::vector<EndpointReport> reports, Text text) {
  const Jobs jobs = by_job(std::move(reports));
  if (jobs.empty()) return text({});
  std::string out;
  for (const auto& [job, members] : jobs) {
    if (jobs.size() > 1)
      out += fmt::format("job {}\n", job.empty() ? "without a name" : printable(job));
    out += text(members);
  }
  return out;
}

}  // namespace

std::string format_jobs(std::vector<EndpointReport> reports, const TableLimits& limits) {
  return each_job(std::move(reports), [&](std::span<const EndpointReport> members) {
    return format_reports(members, limits);
  });
}

std::string summarize_jobs(std::vector<EndpointReport> reports) {
  return each_job(std::move(reports),
                  [](std::span<const EndpointReport> members) { return format_summary(members); });
}

std::string page_of_jobs(std::vector<EndpointReport> reports) {
  return report_page(by_job(std::move(reports)));
}

namespace {

struct ReportOptions {
  std::vector<std::string> paths;  // files, or folders of *.json
  TableLimits limits;
  std::string html;   // a file for the page of the jobs instead of text; empty: none
  bool full = false;  // all tables instead of the summary
  bool json = false;  // the profiles of the jobs instead of tables
};

int run_report(const ReportOptions& options) {
  std::vector<EndpointReport> reports;
  bool good = read_all_reports(options.paths, &reports);
  if (!options.html.empty()) {
    good = write_page(options.html, std::move(reports)) && good;
  } else if (options.json) {
    fmt::print("{}", jobs_to_json(by_job(std::move(reports))));
  } else if (options.full || options.limits.peers != SIZE_MAX ||
             options.limits.decisions != SIZE_MAX) {
    fmt::print("{}", format_jobs(std::move(reports), options.limits));
  } else {
    fmt::print("{}", summarize_jobs(std::move(reports)));
  }
  return good ? 0 : kFailed;
}

}  // namespace

void add_report(CLI::App& app) {
  const auto [report, o] = add_command<ReportOptions>(
      app, "report", "summary of the JSON reports that TURNOUT_REPORT=FOLDER wrote", run_report);
  report->add_option("path", o->paths, "report files, or folders of them")->required();
  report->add_flag("-f,--full", o->full, "all tables of each rank, and the sums");
  report->add_option("-p,--peers", o->limits.peers,
                     "with --full: at most this many peers of each rank, the busiest");
  report->add_option("-d,--decisions", o->limits.decisions,
                     "with --full: at most this many decisions of each rank, the latest");
  auto* const json = report->add_flag("-j,--json", o->json, "the profile of each job as JSON");
  report->add_option("--html", o->html, "write one HTML page with charts to this file")
      ->excludes(json);
}

}  // namespace turnout::cli
