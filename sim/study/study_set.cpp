// SPDX-License-Identifier: BSD-3-Clause
#include "sim/study/study_set.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <ctime>
#include <memory>
#include <new>
#include <system_error>

#include "sim/study/kept_results.h"
#include "sim/study/result_writer.h"

namespace turnout::sim {

namespace {

struct Run {
  const StudyOptions* study;
  std::string policy, identity;
};

// Runs that have ended; shared with the children.
using Finished = std::atomic<std::uint32_t>;

Status failed(const char* what) {
  const int error = errno;
  return {Code::system, fmt::format("{}: {}", what, std::generic_category().message(error)), error};
}

std::string line_of(const Run& run, const Result<Study>& result, double seconds) {
  std::string what = run.study->title.empty() ? run.study->workload : run.study->title;
  const std::string took =
      result ? print_time(result.value().results.front().outcome.time) : result.status().text();
  return fmt::format("{}, {} ranks, {}: {} ({:.1f} s of CPU time)", what, run.study->place.ranks,
                     run.policy, took, seconds);
}

// Not ok: nothing was kept, and the other runs would do no better.
Status make(const Run& run, std::uint32_t all, Finished& finished, const SetOptions& options,
            const Runner& runner) {
  StudyOptions one = *run.study;
  one.policies = {run.policy};
  if (options.jobs > 1) one.progress = {};  // one line cannot show several
  const std::clock_t begun = std::clock();
  const Result<Study> result = run_study(one, runner);
  const double seconds = static_cast<double>(std::clock() - begun) / CLOCKS_PER_SEC;
  const std::uint32_t number = ++finished;
  if (options.told) {
    options.told(fmt::format("[{}/{}] {}", number, all, line_of(run, result, seconds)));
  }
  if (run.study->kept->find(run.identity)) return {};
  if (!result) return result.status();
  return {Code::system, fmt::format("saving the result of {} failed: {}", run.study->workload,
                                    run.study->kept->folder())};
}

// A process for each run, so many at a time: its memory is free again when it ends.
Status make_in_children(const std::vector<Run>& missing, Finished& finished,
                        const SetOptions& options, const Runner& runner) {
  const auto all = static_cast<std::uint32_t>(missing.size());
  Status status;
  std::uint32_t alive = 0;
  std::fflush(nullptr);  // or each child would write what is waiting there
  const pid_t parent = getpid();
  for (auto run = missing.begin(); alive > 0 || (status.ok() && run != missing.end());) {
    if (status.ok() && run != missing.end() && alive < options.jobs) {
      const pid_t child = fork();
      if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGTERM);
        if (getppid() != parent) _exit(1);
        _exit(make(*run, all, finished, options, runner).ok() ? 0 : 1);
      }
      if (child < 0) status = failed("starting a worker process failed");
      if (child > 0) ++alive;
      ++run;
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

Status make_missing(const std::vector<Run>& missing, const SetOptions& options,
                    const Runner& runner) {
  if (missing.empty()) return {};
  void* const shared =
      mmap(nullptr, sizeof(Finished), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) return failed("allocating shared memory failed");
  auto* const finished = new (shared) Finished(0);
  Status status;
  if (options.jobs > 1) {
    status = make_in_children(missing, *finished, options, runner);
  } else {
    const auto all = static_cast<std::uint32_t>(missing.size());
    for (auto run = missing.begin(); status.ok() && run != missing.end(); ++run) {
      status = make(*run, all, *finished, options, runner);
    }
  }
  munmap(shared, sizeof(Finished));
  return status;
}

}  // namespace

Result<std::vector<Result<Study>>> run_studies(std::span<const StudyOptions> studies,
                                               const SetOptions& options, const Runner& runner) {
  std::vector<Run> missing;
  for (const StudyOptions& study : studies) {
    if (study.kept == nullptr) {
      if (options.jobs > 1) {
        return Status{Code::invalid, "--jobs needs a folder for the results: --save FOLDER"};
      }
      continue;
    }
    for (const std::string& policy : study.policies) {
      std::string identity = study.kept->identity(study, policy);
      if (identity.empty() || study.kept->find(identity)) continue;
      missing.push_back({&study, policy, std::move(identity)});
    }
  }
  if (Status s = make_missing(missing, options, runner); !s.ok()) return s;
  std::vector<Result<Study>> results;
  results.reserve(studies.size());
  for (const StudyOptions& study : studies) results.push_back(run_study(study, runner));
  return results;
}

}  // namespace turnout::sim
