// SPDX-License-Identifier: BSD-3-Clause
// What the programs `turnout` and `turnout-sim` share: parsing of the command line, its errors with
// the nearest known word, and exit codes.
//
// Exit codes: 0; 1, what was asked for failed; 2, wrong use, with a message on standard error.
// `turnout run` and `turnout verbs` return the program's. Called from main() only.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>

#include "base/status.h"

namespace turnout::cli {

inline constexpr int kFailed = 1, kWrongUse = 2;

// kWrongUse for what is invalid, else kFailed.
[[nodiscard]] int exit_code(const Status& status) noexcept;

// Nothing: go on. Else the exit code: help or the version was printed, or the use is wrong.
[[nodiscard]] std::optional<int> parse_command_line(CLI::App& app, int argc, char** argv);

// Flushes standard output. Output that nobody received (a full disk) is a failure; a reader that
// left (head) is none.
[[nodiscard]] int finish(int code);

}  // namespace turnout::cli
