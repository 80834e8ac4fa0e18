// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <utility>

#include "base/settings.h"
#include "cli/command_line.h"
#include "cli/commands.h"
#include "cli/run_program.h"
#include "cli/split.h"
#include "cli/verbs_folder.h"
#include "cli/verbs_tree.h"
#include "core/verbs/device.h"
#include "core/verbs/library.h"

namespace turnout::cli {
namespace {

namespace fs = std::filesystem;

struct VerbsOptions {
  bool env = false;     // print what a shell can take over, instead of running a program
  std::string fabric;   // TURNOUT_FABRIC; empty: as it is
  std::string profile;  // TURNOUT_ADAPTER; empty: as it is
  std::vector<std::string> faults;   // TURNOUT_FAULT; empty: as it is
  bool mlx5dv = false;               // the program may hear that mlx5dv is there
  bool mlx5 = false;                 // an mlx5 device below the system's libraries
  std::vector<std::string> program;  // with its arguments
};

int fail(const Status& status) {
  complain("turnout verbs", status);
  return kFailed;
}

struct Library {
  const char* name;
  bool needed;
};
// In the order of preloading; the shim is the last before the system's.
constexpr const char* kShim = "libturnout-shim.so";
constexpr const char* kConnectionManager = "librdmacm.so.1";
constexpr std::array<Library, 4> kLibraries = {{{"libibverbs.so.1", true},
                                                {"libmlx5.so.1", true},
                                                {kConnectionManager, false},
                                                {kShim, true}}};
// The connection manager for the system's libibverbs: a folder in ours.
constexpr const char* kSystemFolder = "system";
// Loaded by the shim.
constexpr const char* kMlx5Device = "libturnout-mlx5.so";
// The adapter that it is (TURNOUT_ADAPTER).
constexpr std::string_view kMlx5Adapter = kAdapterNames[1];

struct Libraries {
  std::string folder;
  std::vector<std::string> paths;
  bool connection_manager = false;
};

Result<Libraries> find_libraries(const Settings& settings) {
  Libraries found;
  found.folder = verbs::virtual_folder(settings);
  std::error_code error;
  if (const fs::path real = fs::canonical(found.folder, error); !error) found.folder = real;
  // ld.so(8): both separate libraries, and nothing quotes them.
  if (found.folder.find_first_of(" :;") != std::string::npos) {
    return Status{
        Code::invalid,
        fmt::format("{} cannot be used in LD_PRELOAD: its path has a space, a colon or a semicolon",
                    found.folder)};
  }
  for (const Library& library : kLibraries) {
    std::string path = fmt::format("{}/{}", found.folder, library.name);
    if (::access(path.c_str(), R_OK) != 0) {
      if (!library.needed) continue;
      return Status{Code::no_device,
                    fmt::format("reading {} failed: {}; run `make build`, or set "
                                "TURNOUT_VERBS_PATH to another folder",
                                path, std::generic_category().message(errno)),
                    errno};
    }
    found.connection_manager = found.connection_manager || !library.needed;
    found.paths.push_back(std::move(path));
  }
  return found;
}

// `first`, then what of the variable is not among it.
std::string put_before(std::vector<std::string> first, const char* variable,
                       std::string_view separators) {
  const char* const old = std::getenv(variable);
  for (std::string& word : split(old == nullptr ? "" : old, separators)) {
    if (std::find(first.begin(), first.end(), word) == first.end())
      first.push_back(std::move(word));
  }
  return fmt::format("{}", fmt::join(first, ":"));
}

// What an option says, whatever libfabric's name for the setting says.
void set_variable(const std::string& variable, const std::string& value) {
  ::setenv(variable.c_str(), value.c_str(), 1);
  ::unsetenv(fmt::format("FI_{}", variable).c_str());
}

// What of the variable is not in our folder.
std::vector<std::string> others(const std::string& folder, const char* variable,
                                std::string_view separators) {
  const char* const old = std::getenv(variable);
  std::vector<std::string> words = split(old == nullptr ? "" : old, separators);
  std::erase_if(words, [&](const std::string& word) {
    std::error_code error;
    const fs::path real = fs::weakly_canonical(word, error);
    const fs::path parent = real.parent_path();
    return !error && (real == folder || parent == folder || parent == folder + "/" + kSystemFolder);
  });
  return words;
}

using Variables = std::vector<std::pair<std::string, std::string>>;

Variables variables_of(const VerbsOptions& options, const Libraries& libraries,
                       const std::string& tree) {
  Variables variables;
  if (!options.fabric.empty()) variables.emplace_back("TURNOUT_FABRIC", options.fabric);
  if (options.mlx5) {
    variables.emplace_back("TURNOUT_ADAPTER", kMlx5Adapter);
  } else if (!options.profile.empty()) {
    variables.emplace_back("TURNOUT_ADAPTER", options.profile);
  }
  // UCX takes a yes of mlx5dv_is_supported for an mlx5's work queues in memory.
  if (options.mlx5dv) {
    variables.emplace_back("TURNOUT_MLX5DV", "yes");
  } else if (environment_value("mlx5dv") == nullptr) {
    variables.emplace_back("TURNOUT_MLX5DV", "no");
  }
  if (const char* const plan = environment_value("fault"); plan != nullptr)
    variables.emplace_back("TURNOUT_FAULT", plan);
  variables.emplace_back("TURNOUT_SHIM_ROOT", tree);
  if (options.mlx5) {
    // The system's libraries, and ours only below them. But for connections: there is no kernel's
    // connection manager that the system's librdmacm could speak with.
    std::vector<std::string> preloaded = others(libraries.folder, "LD_PRELOAD", ": ");
    if (libraries.connection_manager) {
      preloaded.insert(preloaded.begin(), fmt::format("{}/{}/{}", libraries.folder, kSystemFolder,
                                                      kConnectionManager));
    }
    preloaded.insert(preloaded.begin(), fmt::format("{}/{}", libraries.folder, kShim));
    variables.emplace_back("TURNOUT_SHIM_MLX5",
                           fmt::format("{}/{}", libraries.folder, kMlx5Device));
    variables.emplace_back(
        "LD_LIBRARY_PATH",
        fmt::format("{}", fmt::join(others(libraries.folder, "LD_LIBRARY_PATH", ":;"), ":")));
    variables.emplace_back("LD_PRELOAD", fmt::format("{}", fmt::join(preloaded, ":")));
    return variables;
  }
  // Of a `turnout verbs --mlx5` around this one.
  if (std::getenv("TURNOUT_SHIM_MLX5") != nullptr) variables.emplace_back("TURNOUT_SHIM_MLX5", "");
  // For dlopen("libibverbs.so.1") of programs and plug-ins.
  variables.emplace_back("LD_LIBRARY_PATH",
                         put_before({libraries.folder}, "LD_LIBRARY_PATH", ":;"));
  variables.emplace_back("LD_PRELOAD", put_before(libraries.paths, "LD_PRELOAD", ": "));
  return variables;
}

std::string join(const std::vector<std::string>& faults) {
  return fmt::format("{}", fmt::join(faults, "; "));
}

// By the library that reads it.
Status check_faults(const std::string& plan) {
  using Check = const char*(const char*);
  auto* const check = reinterpret_cast<Check*>(verbs::symbol("turnout_fault_error"));
  const char* const error = check == nullptr ? nullptr : check(plan.c_str());
  return error == nullptr ? Status{} : Status(Code::invalid, error);
}

TreeOptions tree_options(const VerbsOptions& options, const Libraries& libraries) {
  return {.connection_manager = libraries.connection_manager, .mlx5 = options.mlx5};
}

// What cannot be had together.
Status check_together(const VerbsOptions& options) {
  if (!options.mlx5) return {};
  if (options.mlx5dv) {
    return {Code::invalid,
            "--mlx5 and --mlx5dv exclude each other: mlx5dv is the system's with --mlx5"};
  }
  if (!options.profile.empty() && options.profile != kMlx5Adapter) {
    return {Code::invalid,
            fmt::format("--mlx5 and --profile {} exclude each other: the mlx5 device is a {}",
                        options.profile, kMlx5Adapter)};
  }
  return {};
}

int print_environment(const VerbsOptions& options, const Libraries& libraries,
                      const verbs::Device& device) {
  const Result<std::string> folder =
      keep_folder(be64toh(device.attributes().node_guid), options.mlx5 ? "-mlx5" : "");
  if (!folder) return fail(folder.status());
  const Status status = write_tree(folder.value(), device, tree_options(options, libraries));
  if (!status.ok()) return fail(status);
  for (const auto& [name, value] : variables_of(options, libraries, folder.value())) {
    fmt::print("export {}={}\n", name, shell_quoted(value));
  }
  return 0;
}

int run_verbs(const VerbsOptions& options) {
  if (options.env != options.program.empty()) {
    fmt::print(
        stderr,
        "Usage: turnout verbs [--fabric NAME] [--profile NAME] [--fault SPEC]... "
        "[--mlx5dv | --mlx5] -- PROGRAM [ARGS...]\n"
        "       turnout verbs [--fabric NAME] [--profile NAME] [--fault SPEC]... [--mlx5] --env\n");
    return kWrongUse;
  }
  if (Status s = check_together(options); !s.ok()) {
    complain("turnout verbs", s);
    return kWrongUse;
  }
  // The library that answers below reads them, too.
  if (!options.fabric.empty()) set_variable("TURNOUT_FABRIC", options.fabric);
  if (!options.profile.empty()) set_variable("TURNOUT_ADAPTER", options.profile);
  if (options.mlx5) set_variable("TURNOUT_ADAPTER", std::string(kMlx5Adapter));
  // The program's libraries tell of names that nobody knows.
  Result<Settings> settings = Settings::load(UnknownNames::ignore);
  if (!settings) return fail(settings.status());
  const Result<Libraries> libraries = find_libraries(settings.value());
  if (!libraries) return fail(libraries.status());
  if (Status s = settings->set("device", "virtual"); !s.ok()) return fail(s);
  if (Status s = settings->set("verbs_path", libraries.value().folder); !s.ok()) return fail(s);
  // The faults are the program's. Opened with them the adapter might not answer.
  const std::string faults = options.faults.empty() ? settings->fault : join(options.faults);
  set_variable("TURNOUT_FAULT", "");
  Result<std::unique_ptr<verbs::Device>> device = verbs::Device::open(settings.value());
  if (!device) return fail(device.status());
  if (Status s = check_faults(faults); !s.ok()) return fail(s);
  if (!faults.empty()) set_variable("TURNOUT_FAULT", faults);
  if (options.env) return print_environment(options, libraries.value(), *device.value());

  sweep_folders();
  Result<PassingFolder> folder = make_passing_folder();
  if (!folder) return fail(folder.status());
  const std::string& tree = **folder;
  Status status = write_tree(tree, *device.value(), tree_options(options, libraries.value()));
  if (!status.ok()) return fail(status);
  // Before the program begins: a fabric without processes is made anew.
  device.value().reset();
  for (const auto& [name, value] : variables_of(options, libraries.value(), tree)) {
    set_variable(name, value);
  }
  return run_program(options.program, "turnout verbs");
}

}  // namespace

void add_verbs(CLI::App& app, int* argc, char** argv) {
  const auto [verbs, options] = add_command<VerbsOptions>(
      app, "verbs", "run a verbs program on the virtual adapter: turnout verbs -- PROGRAM ARGS...",
      run_verbs);
  options->program = take_program(argc, argv, "verbs", {"--fabric", "--profile", "--fault"});
  verbs->add_flag("--env", options->env,
                  "print export lines for a shell and exit: eval \"$(turnout verbs --env)\"");
  verbs->add_option("--fabric", options->fabric, "virtual fabric (TURNOUT_FABRIC)");
  verbs->add_option("--profile", options->profile, "adapter model (TURNOUT_ADAPTER)");
  verbs
      ->add_option("--fault", options->faults,
                   "a fault that the adapter makes happen, such as rnr:after=100,times=3; may be "
                   "repeated (TURNOUT_FAULT)")
      ->expected(1)
      ->take_all();
  verbs->add_flag("--mlx5dv", options->mlx5dv,
                  "report mlx5dv support (TURNOUT_MLX5DV): for programs that use DC through "
                  "mlx5dv, but no direct access to mlx5 queues");
  verbs->add_flag("--mlx5", options->mlx5,
                  "emulate a ConnectX-5 (mlx5_0) below the system's own libibverbs and libmlx5, "
                  "which the program uses unchanged");
  verbs->footer(
      "Everything after -- or after the first positional argument is passed to the program.");
}

}  // namespace turnout::cli
