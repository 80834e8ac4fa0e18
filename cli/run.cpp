// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <set>
#include <string_view>
#include <system_error>

#include "base/installation.h"
#include "base/private_folder.h"
#include "cli/command_line.h"
#include "cli/commands.h"
#include "cli/launch_facts.h"
#include "cli/run_program.h"
#include "cli/verbs_folder.h"
#include "core/report/report.h"

namespace turnout::cli {
namespace {

namespace fs = std::filesystem;

struct RunOptions {
  std::vector<std::string> command;  // the launcher and its arguments
  // "-": the summary on standard output; "html" or *.html: a page; *.txt: the summary in that file;
  // else a folder for the reports, besides the summary.
  std::string report = "-";
  const CLI::Option* report_given = nullptr;
  bool full = false;  // all tables instead of the summary
  std::string budget, policy, trace;
  bool dry_run = false;
};

int complain(std::string_view text, int code = kFailed) {
  fmt::print(stderr, "turnout run: {}\n", text);
  return code;
}

// False: some are damaged, and told of.
bool read_reports(const std::string& folder, std::vector<EndpointReport>* reports) {
  bool good = true;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    if (at->path().extension() == ".json") good = read_report(at->path(), reports) && good;
  }
  return good;
}

enum class ReportForm { none, text, text_file, page, folder };

ReportForm form_of(const RunOptions& options) {
  if (options.report_given->count() == 0 && !options.full) return ReportForm::none;
  if (options.report == "-") return ReportForm::text;
  if (options.report == "html" || options.report.ends_with(".html")) return ReportForm::page;
  return options.report.ends_with(".txt") ? ReportForm::text_file : ReportForm::folder;
}

bool write_file(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text << std::flush;
  if (!file)
    complain(fmt::format("writing the report failed: {}: {}", path,
                         std::generic_category().message(errno)));
  return static_cast<bool>(file);
}

// The report of the job, in the form that was asked for. False: it could not be written.
bool write_report(const RunOptions& options, std::vector<EndpointReport> reports) {
  const ReportForm form = form_of(options);
  if (form == ReportForm::none) return true;
  if (form == ReportForm::page) {
    const std::string path = options.report == "html" ? "turnout-report.html" : options.report;
    if (!write_file(path, page_of_jobs(std::move(reports)))) return false;
    fmt::print(stderr, "turnout run: report: {}\n", path);
    return true;
  }
  const std::string text =
      options.full ? format_jobs(std::move(reports), {}) : summarize_jobs(std::move(reports));
  if (form == ReportForm::text_file) return write_file(options.report, text);
  fmt::print("{}", text);
  std::fflush(stdout);
  return true;
}

// Whether the processes used Turnout, in words.
void tell(const std::vector<EndpointReport>& reports, const Launch& launch,
          const LaunchFacts& facts) {
  std::set<std::pair<std::string, std::uint32_t>> processes;
  std::size_t lonely = 0;
  unsigned ranks = launch.ranks;
  for (const EndpointReport& one : reports) {
    processes.emplace(one.host, one.pid);
    ranks = std::max(ranks, static_cast<unsigned>(std::max<std::int64_t>(one.ranks, 0)));
    if (one.peers.empty()) ++lonely;
  }
  const std::size_t of = std::max<std::size_t>(ranks, processes.size());
  if (processes.empty() && of == 0) {
    fmt::print(stderr, "turnout run: no process used Turnout\n");
  } else {
    fmt::print(stderr, "turnout run: {} of {} process{} used Turnout\n", processes.size(), of,
               of == 1 ? "" : "es");
  }
  if (processes.size() < of || processes.empty()) {
    fmt::print(stderr, "  The others ended without MPI_Finalize, or:\n");
    for (const std::string& reason : reasons_of_absence(facts)) {
      fmt::print(stderr, "  - {}\n", reason);
    }
  } else if (lonely == reports.size() && of > 1) {
    fmt::print(
        stderr,
        "  No message used it: the MPI library sent all messages itself, for example through\n"
        "  shared memory inside a host. Set MPIR_CVAR_NOLOCAL=1 for MPICH, I_MPI_FABRICS=ofi for\n"
        "  Intel MPI, OMPI_MCA_pml=cm for Open MPI.\n");
  }
}

Status prepare_folder(const RunOptions& options, const Launch& launch, PassingFolder* passing,
                      std::string* folder) {
  std::error_code error;
  if (form_of(options) == ReportForm::folder) {
    fs::create_directories(options.report, error);
    if (error) return folder_failure("create", options.report, error.value());
    *folder = fs::canonical(options.report, error).string();
    return error ? folder_failure("access", options.report, error.value()) : Status{};
  }
  // Processes of other hosts leave theirs where all of them can write: here, as a rule.
  if (!launch.one_host) {
    *folder = fmt::format("{}/turnout-report-{}", fs::current_path(error).string(), ::getpid());
    fs::create_directories(*folder, error);
    return error ? folder_failure("create", *folder, error.value()) : Status{};
  }
  sweep_folders();
  Result<PassingFolder> made = make_passing_folder();
  if (!made) return made.status();
  *passing = std::move(made).value();
  *folder = **passing;
  return {};
}

int run_job(const RunOptions& options) {
  if (options.command.empty()) {
    return complain("a command is missing: turnout run -- mpirun -n 4 ./program", kWrongUse);
  }
  LaunchFacts facts = launch_facts(options.command);
  const std::string provider = provider_file();
  if (provider.empty()) {
    return complain(
        "libturnout-fi.so not found beside this program; run make build or make install");
  }
  facts.provider_folder = fs::path(provider).parent_path().string();
  if (facts.version.mpi == Mpi::unknown) {
    complain(fmt::format("{} --version: unknown MPI library; setting the variables of all of them",
                         facts.command.front()));
  }
  for (const auto& [name, value] :
       {std::pair{"TURNOUT_MEMORY_BUDGET", &options.budget}, {"TURNOUT_POLICY", &options.policy}}) {
    if (!value->empty()) facts.settings.emplace_back(name, *value);
  }
  std::error_code error;
  if (!options.trace.empty()) {
    facts.settings.emplace_back("TURNOUT_TRACE", fs::absolute(options.trace, error).string() + "/");
  }
  Launch launch = plan_launch(facts);
  if (options.dry_run) {
    fmt::print("{}", shell_text(launch));
    return 0;
  }
  PassingFolder passing;
  Status status = prepare_folder(options, launch, &passing, &facts.report_folder);
  if (!status.ok()) return complain(status.text());
  launch = plan_launch(facts);
  for (const auto& [name, value] : launch.variables) ::setenv(name.c_str(), value.c_str(), 1);
  const int code = run_program(launch.command, "turnout run");
  if (code == 126 || code == 127) return code;  // with its message

  std::vector<EndpointReport> reports;
  const bool good = read_reports(facts.report_folder, &reports);
  bool written = reports.empty() || write_report(options, reports);
  if (form_of(options) == ReportForm::page && !reports.empty()) written = written && good;
  tell(reports, launch, facts);
  if (form_of(options) == ReportForm::folder) {
    fmt::print(stderr, "  reports: {}\n", facts.report_folder);
  } else if (passing == nullptr) {
    fs::remove_all(facts.report_folder, error);
  }
  return code == 0 && !written ? kFailed : code;
}

}  // namespace

void add_run(CLI::App& app, int* argc, char** argv) {
  const auto [run, options] = add_command<RunOptions>(
      app, "run", "start an MPI job with Turnout as its provider: turnout run -- mpirun ...",
      run_job);
  options->command =
      take_program(argc, argv, "run", {"-b", "--budget", "-p", "--policy", "-t", "--trace"});
  options->report_given = run->add_option("-r,--report", options->report,
                                          "print a summary at exit: each channel, and why. =FOLDER "
                                          "also keeps the reports; =html or "
                                          "=FILE.html writes a page, =FILE.txt the summary")
                              ->expected(0, 1)
                              ->type_name("[=WHERE]")
                              ->default_str("-");
  run->add_flag("-f,--full", options->full, "all tables of each rank instead of the summary");
  run->add_option("-b,--budget", options->budget,
                  "memory limit for each process (TURNOUT_MEMORY_BUDGET)");
  run->add_option("-p,--policy", options->policy, "how channels are chosen (TURNOUT_POLICY)");
  run->add_option("-t,--trace", options->trace,
                  "record the messages into this folder (TURNOUT_TRACE)");
  run->add_flag("--dry-run", options->dry_run,
                "print the variables and the command instead of starting it");
  run->footer(
      "The command after -- is a launcher of MPICH, Open MPI or Intel MPI: mpirun, mpiexec, srun "
      "or\n"
      "prterun. Variables that are already set are kept.");
}

}  // namespace turnout::cli
