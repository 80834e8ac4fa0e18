// SPDX-License-Identifier: BSD-3-Clause
// LiveReport: while somebody watches (`turnout top`, `turnout stuck`), an endpoint writes what it
// did so far into a folder once a second.
//
// The watcher makes the folder, private to the user, and touches the file kWatch in it each second.
// An endpoint looks at that file once a second from its own progress, so that there is no thread:
// nobody watching costs one stat a second. Its report is JSON, replaced whole, and removed when
// nobody watches any more or the endpoint ends; one of a killed process is left to the watcher.
//
// Owned by an endpoint and driven by its thread. Until open() it does nothing. Failures are logged
// once and then forgotten: the program goes on.
#pragma once

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <ctime>
#include <limits>
#include <string>

#include "base/launcher.h"
#include "base/log.h"
#include "base/private_folder.h"
#include "core/report/report.h"
#include "core/time/clock.h"

namespace turnout {

class LiveReport {
 public:
  static constexpr const char* kWatch = ".watch";
  static constexpr const char* kSuffix = ".json";
  static constexpr Nanoseconds kInterval = 1'000'000'000;
  static constexpr Nanoseconds kStale = 5'000'000'000;  // nobody touches kWatch any more

  LiveReport() = default;
  LiveReport(const LiveReport&) = delete;
  LiveReport& operator=(const LiveReport&) = delete;
  ~LiveReport() { remove(); }

  // `endpoint` tells those of one process apart, `job` is Settings::report_job.
  void open(std::uint64_t endpoint, const std::string& job) {
    folder_ = folder(runtime_folder());
    watch_ = fmt::format("{}/{}", folder_, kWatch);
    file_ = fmt::format("{}.{:016x}{}", ::getpid(), endpoint, kSuffix);
    job_ = job;
    owner_ = static_cast<std::uint32_t>(::getpid());
    next_ = 0;
  }

  // make() gives the EndpointReport; called only if somebody watches, at most once a second and
  // seldom enough to take no more than a fiftieth of the time.
  template <class Make>
  void tick(Nanoseconds now, Clock& clock, Make make) {
    if (now < next_) [[likely]]
      return;
    next_ = now + kInterval;
    if (!watched()) return;
    write(make());
    const Nanoseconds end = clock.now();
    next_ = end + (50 * (end - now) > kInterval ? 50 * (end - now) : kInterval);
  }

  // The folder of this user's processes below `base`.
  [[nodiscard]] static std::string folder(const std::string& base) {
    return fmt::format("{}/turnout-{}-top", base, ::geteuid());
  }

 private:
  [[nodiscard]] bool watched() {
    struct stat info {};
    timespec now{};
    // The time of files: an endpoint's own clock need not have anything to do with it.
    const bool there = ::lstat(watch_.c_str(), &info) == 0 && info.st_uid == ::geteuid() &&
                       ::clock_gettime(CLOCK_REALTIME, &now) == 0;
    const bool fresh = there && now.tv_sec - info.st_mtim.tv_sec <= kStale / 1'000'000'000;
    if (!fresh) remove();
    return fresh;
  }
  void write(EndpointReport report) {
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
      TURNOUT_LOG(endpoint, warn, "writing a report for turnout top and turnout stuck failed: {}",
                  status.text());
    }
  }
  void remove() noexcept {
    if (!written_ || owner_ != static_cast<std::uint32_t>(::getpid())) return;
    written_ = false;
    ::unlink(fmt::format("{}/{}", folder_, file_).c_str());
  }

  std::string folder_, watch_, file_, job_;
  std::uint32_t owner_ = 0;  // process; a forked child leaves its parent's file alone
  Nanoseconds next_ = std::numeric_limits<Nanoseconds>::max();
  bool written_ = false, warned_ = false;
};

}  // namespace turnout
