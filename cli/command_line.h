// SPDX-License-Identifier: BSD-3-Clause
// What the programs `turnout` and `turnout-sim` share: parsing of the command line, its errors with
// the nearest known word, and exit codes.
//
// Exit codes: 0; 1, what was asked for failed; 2, wrong use, with a message on standard error.
// `turnout run` and `turnout verbs` return the program's. Called from main() only.
#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "base/status.h"

namespace turnout::cli {

inline constexpr int kFailed = 1, kWrongUse = 2;

template <class... Args>
[[nodiscard]] Status invalid(fmt::format_string<Args...> format, Args&&... args) {
  return {Code::invalid, fmt::format(format, std::forward<Args>(args)...)};
}

// Says on standard error what is wrong. kWrongUse for what is invalid, else kFailed.
int complain(std::string_view program, const Status& status);

// Adds a subcommand whose options are an Options; `run` returns the exit code.
template <class Options>
std::pair<CLI::App*, Options*> add_command(CLI::App& app, std::string name, std::string help,
                                           int (*run)(const Options&)) {
  const auto options = std::make_shared<Options>();
  CLI::App* const command = app.add_subcommand(std::move(name), std::move(help));
  command->callback([=] { throw CLI::RuntimeError(run(*options)); });
  return {command, options.get()};
}

// Runs the subcommand that the command line names, or prints help or the version. Gives the exit
// code.
[[nodiscard]] int run_command_line(CLI::App& app, int argc, char** argv);

}  // namespace turnout::cli
