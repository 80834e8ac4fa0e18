// SPDX-License-Identifier: BSD-3-Clause
#include "sim/study/children.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <new>
#include <system_error>

namespace turnout::sim {
namespace {

using Work = std::function<Status(std::size_t index, Finished& finished)>;

Status failed(const char* what) {
  const int error = errno;
  return {Code::system, fmt::format("{}: {}", what, std::generic_category().message(error)), error};
}

Status in_processes(std::size_t count, std::uint32_t jobs, const Work& work, Finished& finished) {
  Status status;
  std::uint32_t alive = 0;
  std::fflush(nullptr);  // or each child would write what is waiting there
  const pid_t parent = getpid();
  for (std::size_t next = 0; alive > 0 || (status.ok() && next < count);) {
    if (status.ok() && next < count && alive < jobs) {
      const pid_t child = fork();
      if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGTERM);
        if (getppid() != parent) _exit(1);
        _exit(work(next, finished).ok() ? 0 : 1);
      }
      if (child < 0) status = failed("starting a worker process failed");
      if (child > 0) ++alive;
      ++next;
      continue;
    }
    int how = 0;
    if (wait(&how) < 0) {
      if (errno == EINTR) continue;
      return failed("waiting for a worker process failed");
    }
    --alive;
    if (!status.ok() || (WIFEXITED(how) && WEXITSTATUS(how) == 0)) continue;
    status = {Code::internal,
              WIFSIGNALED(how)
                  ? fmt::format("the process of a run was killed by signal {}; run the command "
                                "again to continue",
                                WTERMSIG(how))
                  : std::string("a run ended without a result; see the messages above")};
  }
  return status;
}

}  // namespace

Status in_children(std::size_t count, std::uint32_t jobs, const Work& work) {
  if (count == 0) return {};
  void* const shared =
      mmap(nullptr, sizeof(Finished), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) return failed("allocating shared memory failed");
  auto* const finished = new (shared) Finished(0);
  Status status;
  if (jobs > 1) {
    status = in_processes(count, jobs, work, *finished);
  } else {
    for (std::size_t i = 0; status.ok() && i < count; ++i) status = work(i, *finished);
  }
  munmap(shared, sizeof(Finished));
  return status;
}

}  // namespace turnout::sim
