// SPDX-License-Identifier: BSD-3-Clause
#include "cli/run_program.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
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
