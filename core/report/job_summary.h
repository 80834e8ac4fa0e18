// SPDX-License-Identifier: BSD-3-Clause
// JobSummary: a job on one screen: the findings in words, messages by channel, memory against the
// budget, and the channels of the busiest pairs with the reason of each. format_reports()
// (report.h) has everything.
//
// Pure function of reports, any thread. Reports may come from a file: control characters are
// removed.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "core/report/report.h"

namespace turnout {

// Limits of the text: lines, and columns of a line.
inline constexpr std::size_t kSummaryLines = 25;
inline constexpr std::size_t kSummaryColumns = 100;

// Reports of one job. Ends with a line feed.
[[nodiscard]] std::string format_summary(std::span<const EndpointReport> reports);

}  // namespace turnout
