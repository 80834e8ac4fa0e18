// SPDX-License-Identifier: BSD-3-Clause
// What the HTML page of a job draws, as JSON: the reports reduced to what can be looked at, so that
// a job of thousands of processes stays some MiB. What is left out is counted.
//
// Pure function of reports, any thread. Times are microseconds since the first process began.
#pragma once

#include <nlohmann/json.hpp>
#include <span>

#include "core/report/job_traffic.h"
#include "core/report/report.h"

namespace turnout::cli {

struct PageLimits {
  static constexpr std::size_t kPairs = 60;   // on the timeline, the busiest
  static constexpr std::size_t kSide = 64;    // rows of the matrix; more processes are grouped
  static constexpr std::size_t kSeries = 64;  // processes whose memory is shown over time
  static constexpr std::size_t kDecisions = 2000;
  static constexpr std::size_t kProcesses = 8192;  // in the chart of memory peaks
  static constexpr std::size_t kText = 240;        // bytes of one text
};

[[nodiscard]] nlohmann::ordered_json page_data(std::span<const EndpointReport> reports,
                                               const JobTraffic& traffic);

}  // namespace turnout::cli
