// SPDX-License-Identifier: BSD-3-Clause
#include "cli/watch.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <optional>
#include <set>
#include <string_view>
#include <thread>

#include "core/report/report_live.h"

namespace turnout::cli {
namespace {

constexpr double kLook = 0.1;  // seconds
// How long no new process has to appear before it is taken that all have reported.
constexpr double kSettled = 1.3;

// 4711 of 4711.0123456789abcdef.json
std::optional<pid_t> process_of(std::string_view file) {
  pid_t pid = 0;
  const auto [end, error] = std::from_chars(file.data(), file.data() + file.size(), pid);
  if (error != std::errc{} || pid <= 0 || end == file.data() + file.size() || *end != '.')
    return {};
  return pid;
}

double age_of(const struct stat& info) {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<double>(now.tv_sec - info.st_mtim.tv_sec) +
         static_cast<double>(now.tv_nsec - info.st_mtim.tv_nsec) / 1e9;
}

}  // namespace

Result<Watch> Watch::open() {
  const std::string own = fmt::format("/run/user/{}", ::geteuid());
  std::set<std::string> bases = {runtime_folder(), "/tmp"};
  if (::access(own.c_str(), W_OK | X_OK) == 0) bases.insert(own);
  std::vector<Folder> folders;
  std::vector<std::string> refused;
  for (const std::string& base : bases) {
    const std::string path = LiveReport::folder(base);
    Result<Descriptor> fd = open_private(path, true);
    if (fd) {
      folders.push_back({path, std::move(fd).value()});
    } else {
      refused.push_back(fd.status().text());
    }
  }
  if (folders.empty()) return Status{Code::permission, fmt::format("{}", fmt::join(refused, "; "))};
  return Watch(std::move(folders), std::move(refused));
}

Watch::~Watch() {
  for (const Folder& folder : folders_) ::unlinkat(folder.fd.get(), LiveReport::kWatch, 0);
}

Status Watch::touch() {
  for (const Folder& folder : folders_) {
    const Descriptor file(::openat(folder.fd.get(), LiveReport::kWatch,
                                   O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0600));
    if (!file || ::futimens(file.get(), nullptr) != 0) {
      return folder_failure("touch the watch in", folder.path, errno);
    }
  }
  return {};
}

Result<std::vector<Watched>> Watch::settle(double wait,
                                           const std::function<bool(const Watched&)>& wanted,
                                           std::vector<std::string>* damaged,
                                           const std::function<bool()>& go_on) {
  using Seconds = std::chrono::duration<double>;
  const auto start = std::chrono::steady_clock::now();
  double changed = 0;
  std::set<std::uint64_t> known;
  std::vector<Watched> seen;
  while (!go_on || go_on()) {
    const double now = Seconds(std::chrono::steady_clock::now() - start).count();
    if (Status s = touch(); !s.ok()) return s;
    damaged->clear();
    seen = read(damaged);
    // Reports that an earlier watcher left do not count: their processes write new ones.
    std::erase_if(seen,
                  [&](const Watched& one) { return one.age > now || (wanted && !wanted(one)); });
    for (const Watched& one : seen) {
      if (known.insert(one.report.endpoint).second) changed = now;
    }
    if (!known.empty() ? now - changed > kSettled : now > wait) break;
    std::this_thread::sleep_for(Seconds(kLook));
  }
  return seen;
}

std::vector<Watched> Watch::read(std::vector<std::string>* damaged) const {
  std::vector<Watched> reports;
  damaged->insert(damaged->end(), refused_.begin(), refused_.end());
  for (const Folder& folder : folders_) read_folder(folder, &reports, damaged);
  std::stable_sort(reports.begin(), reports.end(), [](const Watched& a, const Watched& b) {
    return std::pair(a.report.rank, a.report.pid) < std::pair(b.report.rank, b.report.pid);
  });
  return reports;
}

void Watch::read_folder(const Folder& folder, std::vector<Watched>* reports,
                        std::vector<std::string>* damaged) const {
  for (const std::string& name : entries(folder.fd)) {
    if (name.front() == '.' || !name.ends_with(LiveReport::kSuffix)) continue;
    const std::optional<pid_t> pid = process_of(name);
    if (!pid) continue;
    if (::kill(*pid, 0) != 0) {  // it has ended, or is another user's process by now
      ::unlinkat(folder.fd.get(), name.c_str(), 0);
      continue;
    }
    struct stat info {};
    if (::fstatat(folder.fd.get(), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) continue;
    const Result<std::string> text = read_report_file(folder.fd, name);
    if (!text) {
      // It may have ended just now.
      if (text.status().sys_errno() != ENOENT) damaged->push_back(text.status().text());
      continue;
    }
    Result<EndpointReport> report = report_from_json(text.value());
    if (!report) {
      damaged->push_back(fmt::format("{}/{}: {}", folder.path, name, report.status().text()));
      continue;
    }
    reports->push_back({std::move(report).value(), age_of(info)});
  }
}

}  // namespace turnout::cli
