// SPDX-License-Identifier: BSD-3-Clause
// JobFindings: what is worth knowing of a job, in plain sentences: who used Turnout, who sent most,
// which channels the pairs got, how near memory came to its budget, what went wrong.
//
// Pure functions of reports, any thread. Texts hold nothing that a report says but numbers.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/report/job_traffic.h"
#include "core/report/report.h"

namespace turnout {

struct Finding {
  enum class Level : std::uint8_t { note, warning };
  Level level = Level::note;
  std::string text;
  std::string advice;  // what to do about it; may be empty
};

// The first tells how many processes there are; then warnings, then notes. At most a dozen.
[[nodiscard]] std::vector<Finding> job_findings(std::span<const EndpointReport> reports,
                                                const JobTraffic& traffic);

}  // namespace turnout
