// SPDX-License-Identifier: BSD-3-Clause
// LiveReport: while somebody watches (`turnout top`), an endpoint writes what it did so far into a
// folder once a second.
//
// The watcher makes the folder, private to the user, and touches the file kWatch in it each second.
// An endpoint looks at that file once a second from its own progress, so that there is no thread:
// nobody watching costs one stat a second. Its report is JSON, replaced whole, and removed when
// nobody watches any more or the endpoint ends; one of a killed process is left to the watcher.
//
// Owned by an endpoint and driven by its thread. Until open() it does nothing. Failures are logged
// once and then forgotten: the program goes on.
#pragma once

#include <cstdint>
#include <limits>
#include <string>

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
  ~LiveReport();

  // `endpoint` tells those of one process apart, `job` is Settings::report_job.
  void open(std::uint64_t endpoint, const std::string& job);

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
  [[nodiscard]] static std::string folder(const std::string& base);

 private:
  [[nodiscard]] bool watched();
  void write(EndpointReport report);
  void remove() noexcept;

  std::string folder_, watch_, file_, job_;
  std::uint32_t owner_ = 0;  // process; a forked child leaves its parent's file alone
  Nanoseconds next_ = std::numeric_limits<Nanoseconds>::max();
  bool written_ = false, warned_ = false;
};

}  // namespace turnout
