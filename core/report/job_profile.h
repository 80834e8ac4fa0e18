// SPDX-License-Identifier: BSD-3-Clause
// JobProfile: the profiles of a job's processes reduced: of each quantity the least, the mean and
// the most of a process and the sum, as in the tables of the paper, and what the network saw by
// size over all, as in its figures (Koop et al., SC 2006, Tables 1 and 2, Figures 5 to 11).
//
// Pure functions of reports, any thread. The endpoints of one process are added up first.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/report/report.h"

namespace turnout {

struct Spread {
  double least = 0, mean = 0, most = 0, sum = 0;
};

struct JobProfile {
  enum class Unit : std::uint8_t { number, bytes, nanoseconds, share };
  struct Line {
    std::string name;  // of what, as the table has it
    std::string key;   // in JSON
    Unit unit = Unit::number;
    Spread spread;              // a share has no sum
    std::size_t processes = 0;  // that know it, at least one
  };
  std::size_t processes = 0;
  std::size_t profiled = 0;  // of them; reports of older versions have no profile
  std::vector<Line> lines;
  CommunicationProfile counts;  // of the job
};

[[nodiscard]] JobProfile job_profile(std::span<const EndpointReport> reports);

// For people, at most 110 columns; empty where no report has a profile.
[[nodiscard]] std::string format_profile(const JobProfile& profile);

// What `turnout report --json` prints: an array with an object for each job, by name.
[[nodiscard]] std::string jobs_to_json(
    std::span<const std::pair<std::string, std::vector<EndpointReport>>> jobs);

}  // namespace turnout
