// SPDX-License-Identifier: BSD-3-Clause
// `turnout record`: a job over other transports, with libturnout-record.so preloaded.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/installation.h"
#include "base/private_folder.h"
#include "cli/command_line.h"
#include "cli/commands.h"
#include "cli/launch_facts.h"
#include "cli/run_program.h"

namespace turnout::cli {
namespace {

namespace fs = std::filesystem;

struct RecordOptions {
  std::vector<std::string> command;  // the launcher and its arguments
  std::string folder = "recordings";
  bool dry_run = false;
};

int record_failed(std::string_view text, int code = kFailed) {
  fmt::print(stderr, "turnout record: {}\n", text);
  return code;
}

// Receives that got nothing and computation do not count.
bool has_messages(const fs::path& path) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.size() > 1 && line[1] == ' ' && std::string_view("smug").find(line[0]) != line.npos)
      return true;
  }
  return false;
}

// All of them, or those of processes that exchanged messages.
std::size_t recordings_in(const std::string& folder, bool with_messages = false) {
  std::size_t count = 0;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    if (at->path().extension() == ".recording" && (!with_messages || has_messages(at->path())))
      ++count;
  }
  return count;
}

void tell_nothing(const LaunchFacts& facts) {
  fmt::print(stderr,
             "  Its messages pass through neither libfabric nor UCX, or none was sent to another "
             "process:\n"
             "  - Open MPI has transports of its own: set OMPI_MCA_pml=cm and OMPI_MCA_mtl=ofi, or "
             "OMPI_MCA_pml=ucx\n"
             "  - inside a host, MPICH sends through shared memory: set MPIR_CVAR_NOLOCAL=1\n");
  if (facts.version.mpi == Mpi::unknown)
    fmt::print(stderr, "  - {} is not a known launcher\n", facts.command.front());
}

int run_record(const RecordOptions& options) {
  if (options.command.empty()) {
    return record_failed("a command is missing: turnout record -- mpirun -n 4 ./program",
                         kWrongUse);
  }
  std::error_code error;
  const std::string library =
      fs::path(adapter_folder(program_folder())).string() + "/libturnout-record.so";
  if (!fs::exists(library, error)) {
    return record_failed(
        fmt::format("{} not found; build or install the whole of Turnout (make build)", library));
  }
  LaunchFacts facts = launch_facts(options.command);
  facts.infiniband =
      fs::exists("/sys/class/infiniband", error) && !fs::is_empty("/sys/class/infiniband", error);
  const std::string folder = fs::absolute(options.folder, error).lexically_normal().string();
  const Launch launch =
      plan_recording(facts, fs::weakly_canonical(library, error).string(), folder);
  if (options.dry_run) {
    fmt::print("{}", shell_text(launch));
    return 0;
  }
  if (recordings_in(folder) > 0) {
    return record_failed(
        fmt::format("{} has recordings already; name another folder with --to", folder));
  }
  fs::create_directories(folder, error);
  if (error) return record_failed(folder_failure("create", folder, error.value()).text());
  for (const auto& [name, value] : launch.variables) ::setenv(name.c_str(), value.c_str(), 1);
  const int code = run_program(launch.command, "turnout record");
  if (code == 126 || code == 127) return code;  // with its message
  const std::size_t count = recordings_in(folder, true);
  fmt::print(stderr, "turnout record: recorded the messages of {} process{}{} in {}\n", count,
             count == 1 ? "" : "es", launch.ranks > 0 ? fmt::format(" of {}", launch.ranks) : "",
             folder);
  if (count == 0) tell_nothing(facts);
  return code == 0 && count == 0 ? kFailed : code;
}

}  // namespace

void add_record(CLI::App& app, int* argc, char** argv) {
  const auto [record, options] = add_command<RecordOptions>(
      app, "record",
      "record the messages of a job over any libfabric provider or UCX, for turnout sim replay",
      run_record);
  options->command = take_program(argc, argv, "record", {"-t", "--to"});
  record->add_option("-t,--to", options->folder, "the folder for the recordings, one a process")
      ->capture_default_str();
  record->add_flag("--dry-run", options->dry_run,
                   "print the variables and the command instead of starting it");
}

}  // namespace turnout::cli
