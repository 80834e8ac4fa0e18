// SPDX-License-Identifier: BSD-3-Clause
// The HTML page of reports: `turnout report --html`. One file without any resource besides: its
// template, style and script are compiled in.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/report/job_traffic.h"
#include "core/report/report.h"

namespace turnout::cli {

// page.html, page.css and page.js as text, made by CMake.
extern const std::string_view kPageTemplate, kPageStyle, kPageScript;

inline constexpr std::size_t kMaxPageJobs = 16;  // the others are counted

// Jobs by name, as `turnout report` has them. Untrusted reports: nothing of them becomes markup.
[[nodiscard]] std::string report_page(
    std::span<const std::pair<std::string, std::vector<EndpointReport>>> jobs);

// What the page of a job draws: the reports reduced to what can be looked at, so that a job of
// thousands of processes stays some MiB. What is left out is counted. Pure function of reports, any
// thread. Times are microseconds since the first process began.
[[nodiscard]] nlohmann::ordered_json page_data(std::span<const EndpointReport> reports,
                                               const JobTraffic& traffic);

}  // namespace turnout::cli
