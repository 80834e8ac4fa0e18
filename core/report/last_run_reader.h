// SPDX-License-Identifier: BSD-3-Clause
// Reads what the last run of a job counted from the folder of reports that TURNOUT_REPORT named in
// it: the newest report of the own rank, whose peers are told apart by endpoint, and the names of
// the other reports, which say the rank of each endpoint (report_publish.cpp).
//
// The folder is passed through twice and no list of the job's processes is kept: memory is for the
// own report while it is read, and for `most` sources. Reports are untrusted input. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "core/report/report.h"
#include "core/types/last_run.h"

namespace turnout {

// What the name of a report says: JOB.rank-3.4711.0123456789abcdef.json, the job may be missing.
struct ReportName {
  std::string_view process;  // up to the pid: of all endpoints of a process
  int rank = 0;
  std::uint64_t endpoint = 0;
};
// Empty: not the name of a report of a process whose rank is known.
[[nodiscard]] std::optional<ReportName> parse_report_name(std::string_view name);

// What is kept of a run: the sources that sent at least so many messages, and of them so many.
struct LastRunLimits {
  std::uint64_t least_messages = 1;
  std::size_t most_sources = 256;
};

// Sources of one report by Address::id, busiest first, and the rest of LastRun; ranks are 0.
struct CountedSources {
  LastRun run;
  std::vector<std::uint64_t> endpoints;  // of run.sources, in their order
};
// Of the endpoint that received most. Errors: invalid (another number of ranks or rank, no length
// of time, nothing was received).
[[nodiscard]] Result<CountedSources> counted_sources(std::span<const EndpointReport> of_process,
                                                     int rank, int ranks,
                                                     const LastRunLimits& limits);

// Errors: invalid, version, system, permission; not_found: no report of this rank.
[[nodiscard]] Result<LastRun> read_last_run(const std::string& folder, int rank, int ranks,
                                            const LastRunLimits& limits);

}  // namespace turnout
