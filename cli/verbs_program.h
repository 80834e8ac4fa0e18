// Runs a program as a shell would, and stays until it ended.
//
// The program is in the caller's process group, so what a terminal sends (^C, ^\, ^Z, hang-up)
// reaches it without us; what others send to this process (SIGTERM, SIGHUP, SIGINT, SIGQUIT,
// SIGUSR1, SIGUSR2) is handed on. It gets the signal mask and dispositions that this process was
// started with. For a process with one thread that waits for no other child.
#pragma once

#include <string>
#include <vector>

namespace turnout::cli {

// The program's exit status; 128 and the number of the signal that ended it; 127, not found, or
// 126, found and cannot be run, with a message on standard error.
[[nodiscard]] int run_program(const std::vector<std::string>& words);

}  // namespace turnout::cli
