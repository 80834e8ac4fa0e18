// The history of a report: how many messages came from whom in each interval of a process's life.
// Turned into Arrivals for a picture (sim/sources.h).
//
// In the JSON of a report it is "history", an array of
//   {"begin_ns": N, "end_ns": N, "sources": [[PEER, MESSAGES], ...]}
// with PEER as in the report's "peers". Plain functions, any thread. Untrusted text: every number
// is checked.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "core/report.h"
#include "sim/sources.h"

namespace turnout::sim {

struct SourceInterval {
  std::int64_t begin = 0, end = 0;  // ns since the endpoint was created
  std::vector<std::pair<std::uint32_t, std::uint64_t>> sources;  // PeerReport::peer, messages
};

struct ReportWithHistory {
  EndpointReport report;
  bool has_history = false;
  std::vector<SourceInterval> history;
};

// Errors: those of report_from_json(); invalid, naming the field of the history.
[[nodiscard]] Result<ReportWithHistory> read_report_with_history(std::string_view text);

// The sources are ranks if the reports of all peers are given, else peers in the order in which
// the process heard of them. `rank` -1: of the only report. Errors: invalid: no report of that
// rank, or one without a history, saying what to do instead.
[[nodiscard]] Result<Arrivals> arrivals_of_reports(std::span<const ReportWithHistory> reports,
                                                   int rank);

}  // namespace turnout::sim
