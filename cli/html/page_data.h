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

[[nodiscard]] nlohmann::ordered_json page_data(std::span<const EndpointReport> reports,
                                               const JobTraffic& traffic);

}  // namespace turnout::cli
