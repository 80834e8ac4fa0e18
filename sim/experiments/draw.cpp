// SPDX-License-Identifier: BSD-3-Clause
#include "sim/experiments/draw.h"

#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>

#include <array>
#include <cerrno>
#include <system_error>

extern char** environ;  // NOLINT: POSIX names it so

namespace turnout::sim {

namespace {

// What tools/plot.py answers when Python has no matplotlib, and posix_spawn()'s child when there is
// no such program.
constexpr int kNoMatplotlib = 3, kNoProgram = 127;

// The exit status; -1: it was ended by a signal.
Result<int> run(std::array<std::string, 4> words) {
  std::array<char*, words.size() + 1> arguments{};
  for (std::size_t i = 0; i < words.size(); ++i) arguments[i] = words[i].data();
  pid_t child = 0;
  const int error =
      ::posix_spawnp(&child, arguments[0], nullptr, nullptr, arguments.data(), environ);
  if (error == ENOENT) return kNoProgram;
  if (error != 0) {
    return Status{
        Code::system,
        fmt::format("starting {} failed: {}", words[0], std::generic_category().message(error)),
        error};
  }
  int state = 0;
  while (::waitpid(child, &state, 0) < 0) {
    if (errno == EINTR) continue;
    return Status{
        Code::system,
        fmt::format("waiting for {} failed: {}", words[0], std::generic_category().message(errno)),
        errno};
  }
  return WIFEXITED(state) ? WEXITSTATUS(state) : -1;
}

}  // namespace

Status draw(const std::string& script, const std::string& data, const std::string& picture) {
  if (script.empty()) return {Code::unsupported, "tools/plot.py not found; it draws the plot"};
  // The first Python of the PATH may be one without the system's packages.
  for (const char* const python : {"python3", "/usr/bin/python3"}) {
    const Result<int> status = run({python, script, data, picture});
    if (!status) return status.status();
    if (status.value() == 0) return {};
    if (status.value() == kNoMatplotlib || status.value() == kNoProgram) continue;
    return {Code::system, fmt::format("{} {} {} {} failed", python, script, data, picture)};
  }
  return {
      Code::unsupported,
      fmt::format("drawing {} failed: no python3 with matplotlib found; install the Debian package "
                  "python3-matplotlib, or run \"python3 -m pip install matplotlib\"",
                  picture)};
}

}  // namespace turnout::sim
