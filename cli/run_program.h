// SPDX-License-Identifier: BSD-3-Clause
// Runs a program as a shell would, and stays until it ended.
//
// The program is in the caller's process group, so what a terminal sends (^C, ^\, ^Z, hang-up)
// reaches it without us; what others send to this process (SIGTERM, SIGHUP, SIGINT, SIGQUIT,
// SIGUSR1, SIGUSR2) is handed on. It gets the signal mask and dispositions that this process was
// started with. For a process with one thread that waits for no other child.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace turnout::cli {

// The program's exit status; 128 and the number of the signal that ended it; 127, not found, or
// 126, found and cannot be run, with a message on standard error. `who` says it: "turnout verbs".
[[nodiscard]] int run_program(const std::vector<std::string>& words, std::string_view who);

// One word to a shell, in quotes, whatever is in it.
[[nodiscard]] std::string shell_quoted(std::string_view text);
// The same, without quotes where a shell needs none.
[[nodiscard]] std::string shell_word(std::string_view text);

// What `PROGRAM --version` prints, on either stream; empty: it cannot be started.
[[nodiscard]] std::string version_text(const std::string& program);

// The words behind "--", or from the first on that is no option, of a subcommand that starts a
// program; argc and argv lose them. Empty: it is another subcommand, or there are none.
// `with_value`: options whose next word is their value.
[[nodiscard]] std::vector<std::string> take_program(
    int* argc, char** argv, std::string_view subcommand,
    std::initializer_list<std::string_view> with_value);

}  // namespace turnout::cli
