// SPDX-License-Identifier: BSD-3-Clause
#include "core/report/report_live.h"
#include "core/types/launcher.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <ctime>

#include "base/log.h"
#include "base/private_folder.h"

namespace turnout {

LiveReport::~LiveReport() {
  remove();
}

std::string LiveReport::folder(const std::string& base) {
  return fmt::format("{}/turnout-{}-top", base, ::geteuid());
}

void LiveReport::open(std::uint64_t endpoint, const std::string& job) {
  folder_ = folder(runtime_folder());
  watch_ = fmt::format("{}/{}", folder_, kWatch);
  file_ = fmt::format("{}.{:016x}{}", ::getpid(), endpoint, kSuffix);
  job_ = job;
  owner_ = static_cast<std::uint32_t>(::getpid());
  next_ = 0;
}

bool LiveReport::watched() {
  struct stat info {};
  timespec now{};
  // The time of files: an endpoint's own clock need not have anything to do with it.
  const bool there = ::lstat(watch_.c_str(), &info) == 0 && info.st_uid == ::geteuid() &&
                     ::clock_gettime(CLOCK_REALTIME, &now) == 0;
  const bool fresh = there && now.tv_sec - info.st_mtim.tv_sec <= kStale / 1'000'000'000;
  if (!fresh) remove();
  return fresh;
}

void LiveReport::write(EndpointReport report) {
  report.history.clear();  // long, and not shown
  report.memory_over_time.clear();
  if (report.job.empty()) report.job = job_.empty() ? launcher_identity().job : job_;
  const Result<Descriptor> folder = open_private(folder_, false);
  Status status = folder.ok() ? Status{} : folder.status();
  if (status.ok() && !folder.value()) return;
  if (status.ok()) status = write_whole(folder.value(), folder_, file_, to_json(report));
  if (status.ok()) {
    written_ = true;
  } else if (!warned_) {
    warned_ = true;
    TURNOUT_LOG(endpoint, warn, "writing a report for turnout top failed: {}", status.text());
  }
}

void LiveReport::remove() noexcept {
  if (!written_ || owner_ != static_cast<std::uint32_t>(::getpid())) return;
  written_ = false;
  ::unlink(fmt::format("{}/{}", folder_, file_).c_str());
}

}  // namespace turnout
