// SPDX-License-Identifier: BSD-3-Clause
// publish(): where the report of an endpoint that ends goes.

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cctype>
#include <cerrno>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <mutex>
#include <set>
#include <system_error>
#include <utility>

#include "base/launcher.h"
#include "base/private_folder.h"
#include "core/report/job_summary.h"
#include "core/report/report.h"

namespace turnout {

namespace {

// The holder of the lock writes a file or prints the tables; who waits longer meets a stopped
// process.
constexpr int kLockTries = 500;
constexpr long kLockPause = 10'000'000;  // ns
constexpr std::string_view kLockName = ".lock";
constexpr std::string_view kSuffix = ".json";

std::string plain(std::string_view name) {
  std::string out;
  for (const char c : name.substr(0, 128)) {
    const bool good = std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_' ||
                      (c == '.' && !out.empty());
    out += good ? c : '_';
  }
  return out;
}

std::string temporary_folder(const std::string& job) {
  return fmt::format("{}/turnout-{}-report-{}", runtime_folder(), ::geteuid(), plain(job));
}

Result<Descriptor> open_chosen(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) return folder_failure("create", path, error.value());
  Descriptor fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd) return folder_failure("open", path, errno);
  return fd;
}

Result<Descriptor> lock_file(const Descriptor& folder, const std::string& path) {
  Descriptor file(::openat(folder.get(), std::string(kLockName).c_str(),
                           O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file) return folder_failure("lock", path, errno);
  for (int attempt = 0; ::flock(file.get(), LOCK_EX | LOCK_NB) != 0; ++attempt) {
    if (errno != EWOULDBLOCK && errno != EINTR) return folder_failure("lock", path, errno);
    if (attempt == kLockTries) {
      return Status{Code::again,
                    fmt::format("{} stays locked by another process; its report is lost", path)};
    }
    const timespec pause{0, kLockPause};
    ::nanosleep(&pause, nullptr);
  }
  return file;
}

bool same_place(const Descriptor& folder, const std::string& path) {
  struct stat opened {
  }, named{};
  return ::fstat(folder.get(), &opened) == 0 && ::lstat(path.c_str(), &named) == 0 &&
         opened.st_dev == named.st_dev && opened.st_ino == named.st_ino;
}

// A summary for a terminal; `turnout report` shows everything.
void print(std::span<const EndpointReport> reports) {
  std::fflush(stdout);  // what the program printed comes first
  static_cast<void>(write_all(STDOUT_FILENO, format_summary(reports)).ok());
}

// rank-3.4711.0123456789abcdef.json: a process may have several endpoints.
std::string file_name(const EndpointReport& report) {
  return fmt::format("rank-{}.{}.{:016x}{}", report.rank, report.pid, report.endpoint, kSuffix);
}

std::vector<std::string> report_names(const Descriptor& folder) {
  std::vector<std::string> names = entries(folder);
  std::erase_if(names, [](const std::string& name) {
    return !name.ends_with(kSuffix) || name.front() == '.';
  });
  return names;
}

// The reports that wait in the folder.
std::vector<EndpointReport> collect(const Descriptor& folder) {
  std::vector<EndpointReport> reports;
  for (const std::string& name : report_names(folder)) {
    const Result<std::string> text = read_report_file(folder, name);
    if (!text) continue;
    if (Result<EndpointReport> report = report_from_json(text.value())) {
      reports.push_back(std::move(report).value());
    }
  }
  // An endpoint that was only opened to be looked at says nothing beside one that worked.
  std::set<std::pair<int, std::uint32_t>> working;
  for (const EndpointReport& report : reports) {
    if (carried_anything(report)) working.emplace(report.rank, report.pid);
  }
  std::erase_if(reports, [&](const EndpointReport& report) {
    return !carried_anything(report) && working.contains({report.rank, report.pid});
  });
  return reports;
}

std::size_t count_processes(const Descriptor& folder) {
  std::set<std::string> seen;
  for (const std::string& name : report_names(folder)) {
    // rank-3.4711 of rank-3.4711.0123456789abcdef.json
    seen.insert(name.substr(0, name.rfind('.', name.size() - kSuffix.size() - 1)));
  }
  return seen.size();
}

// Whether an endpoint of this process (not of one it was forked from) handed in a report under this
// name before: then the job's table may be printed already.
bool handed_in_before(const std::string& name, bool now) {
  static std::mutex mutex;
  static pid_t owner = 0;
  static std::set<std::string> names;
  const std::scoped_lock guard(mutex);
  if (owner != ::getpid()) names.clear();
  owner = ::getpid();
  return now ? !names.insert(name).second : names.contains(name);
}

Status publish_with_job(const EndpointReport& report, std::size_t expected) {
  const std::string path = temporary_folder(report.job);
  // The process's former endpoint may have been the last one that the table waited for.
  const bool again = handed_in_before(path, false);
  // The last process of the job removes the folder; who opened it before then starts again.
  for (int attempt = 0; attempt < 8; ++attempt) {
    Result<Descriptor> folder = open_private(path, !again);
    if (!folder) return folder.status();
    if (!folder.value()) {
      if (carried_anything(report)) print({&report, 1});
      return {};
    }
    const Result<Descriptor> locked = lock_file(*folder, path);
    if (!locked && locked.status().sys_errno() == ENOENT) continue;
    if (!locked) return locked.status();
    if (!same_place(*folder, path)) continue;
    if (Status s = write_whole(*folder, path, file_name(report), to_json(report)); !s.ok())
      return s;
    static_cast<void>(handed_in_before(path, true));
    if (count_processes(*folder) < expected) return {};
    print(collect(*folder));
    for (const std::string& name : entries(*folder)) ::unlinkat(folder->get(), name.c_str(), 0);
    if (::rmdir(path.c_str()) != 0) return folder_failure("remove", path, errno);
    return {};
  }
  return {Code::again, fmt::format("{} vanishes whenever it is opened", path)};
}

}  // namespace

Status publish(const EndpointReport& original, const std::string& report_setting,
               const std::string& job) {
  if (report_setting.empty() || report_setting == "0") return {};
  EndpointReport report = original;
  const LauncherIdentity launcher = launcher_identity();
  if (report.rank < 0) report.rank = launcher.rank;
  if (report.ranks < 0) report.ranks = launcher.ranks;
  if (report.job.empty()) report.job = job.empty() ? launcher.job : job;

  if (report_setting != "1") {
    const Result<Descriptor> folder = open_chosen(report_setting);
    if (!folder) return folder.status();
    std::string name = file_name(report);
    if (!report.job.empty()) name = plain(report.job) + "." + name;
    return write_whole(folder.value(), report_setting, name, to_json(report));
  }
  const int expected = launcher.local_ranks > 0 ? launcher.local_ranks : launcher.ranks;
  if (report.job.empty() || report.rank < 0 || expected <= 1) {
    if (!handed_in_before("", true) || carried_anything(report)) {
      print({&report, 1});
    }
    return {};
  }
  return publish_with_job(report, static_cast<std::size_t>(expected));
}

}  // namespace turnout
