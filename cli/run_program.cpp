// SPDX-License-Identifier: BSD-3-Clause
#include "cli/run_program.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <system_error>

#include "base/file_descriptor.h"

namespace turnout::cli {
namespace {

constexpr int kHandedOn[] = {SIGTERM, SIGHUP, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2};
constexpr int kNotFound = 127, kNotRun = 126, kOfSignals = 128;  // POSIX, XCU 2.8.2

int complain(std::string_view who, const std::string& what, int error, int code) {
  fmt::print(stderr, "{}: {} failed: {}\n", who, what, std::generic_category().message(error));
  return code;
}

int wait_for(pid_t child) {
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

// Until the program has ended: what it ended with.
int hand_signals_on(pid_t child, const sigset_t& signals) {
  for (;;) {
    siginfo_t info{};
    const int number = ::sigwaitinfo(&signals, &info);
    if (number == SIGCHLD) {
      int status = 0;
      if (::waitpid(child, &status, WNOHANG) == child) return status;
    } else if (number > 0 && info.si_code != SI_KERNEL) {
      ::kill(child, number);  // from the kernel: of the terminal, to the whole group
    }
  }
}

}  // namespace

int run_program(const std::vector<std::string>& words, std::string_view who) {
  std::vector<char*> arguments;
  arguments.reserve(words.size() + 1);
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);

  // The child's errno, if it cannot become the program.
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return complain(who, "creating a pipe", errno, 1);
  const int from_child = above_standard(ends[0]), to_parent = above_standard(ends[1]);
  if (from_child < 0 || to_parent < 0) return complain(who, "creating a pipe", errno, 1);

  sigset_t signals, before;
  ::sigemptyset(&signals);
  for (const int number : kHandedOn) ::sigaddset(&signals, number);
  ::sigaddset(&signals, SIGCHLD);
  ::sigprocmask(SIG_BLOCK, &signals, &before);
  // Where it is ignored, children leave nothing to wait for.
  struct sigaction standard {
  }, children_before{};
  standard.sa_handler = SIG_DFL;
  ::sigaction(SIGCHLD, &standard, &children_before);

  const pid_t child = ::fork();
  if (child < 0) return complain(who, "starting a process", errno, 1);
  if (child == 0) {
    ::sigaction(SIGCHLD, &children_before, nullptr);
    ::sigprocmask(SIG_SETMASK, &before, nullptr);
    ::execvp(arguments[0], arguments.data());
    const int error = errno;
    [[maybe_unused]] const ssize_t told = ::write(to_parent, &error, sizeof error);
    ::_exit(kNotRun);
  }
  ::close(to_parent);
  int error = 0;
  ssize_t size = 0;
  do {
    size = ::read(from_child, &error, sizeof error);
  } while (size < 0 && errno == EINTR);
  ::close(from_child);
  if (size == sizeof error) {
    wait_for(child);
    return complain(who, "running " + words[0], error, error == ENOENT ? kNotFound : kNotRun);
  }
  const int status = hand_signals_on(child, signals);
  return WIFSIGNALED(status) ? kOfSignals + WTERMSIG(status) : WEXITSTATUS(status);
}

std::string shell_quoted(std::string_view text) {
  std::string word = "'";
  for (const char c : text) word += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return word + "'";
}

std::string shell_word(std::string_view text) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./,:@%";
  const bool plain = !text.empty() && text.find_first_not_of(kPlain) == std::string_view::npos;
  return plain ? std::string(text) : shell_quoted(text);
}

std::string version_text(const std::string& program) {
  constexpr std::size_t kMost = 64 << 10;
  const std::string line = fmt::format("{} --version 2>&1 </dev/null", shell_word(program));
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(::popen(line.c_str(), "r"), &::pclose);
  std::string text;
  std::array<char, 4096> part;
  while (pipe && text.size() < kMost) {
    const std::size_t n = std::fread(part.data(), 1, part.size(), pipe.get());
    if (n == 0) break;
    text.append(part.data(), n);
  }
  return text;
}

std::vector<std::string> take_program(int* argc, char** argv, std::string_view subcommand,
                                      std::initializer_list<std::string_view> with_value) {
  if (*argc < 2 || argv[1] != subcommand) return {};
  for (int i = 2; i < *argc; ++i) {
    const std::string_view word = argv[i];
    if (std::find(with_value.begin(), with_value.end(), word) != with_value.end()) {
      ++i;
      continue;
    }
    if (word != "--" && word.starts_with('-')) continue;
    std::vector<std::string> program(argv + i + (word == "--" ? 1 : 0), argv + *argc);
    *argc = i;
    argv[i] = nullptr;
    return program;
  }
  return {};
}

}  // namespace turnout::cli
