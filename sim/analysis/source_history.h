// SPDX-License-Identifier: BSD-3-Clause
// The history of a report: the messages per source in each interval of a process's life, converted
// to Arrivals for a plot (sim/analysis/sources.h).
//
// In the JSON of a report it is "history", an array of
//   {"begin_ns": N, "end_ns": N, "messages": N, "sources": [[PEER, MESSAGES], ...]}
// with PEER as in the report's "peers"; report_from_json() checks it. Plain functions, any thread.
#pragma once

#include <span>

#include "base/status.h"
#include "core/report/report.h"
#include "sim/analysis/sources.h"

namespace turnout::sim {

// The sources are ranks if the reports of all peers are given, else peers in the order in which
// the process heard of them. `rank` -1: of the only report. Errors: invalid: no report of that
// rank, or one without a history, saying what to do instead.
[[nodiscard]] Result<Arrivals> arrivals_of_reports(std::span<const EndpointReport> reports,
                                                   int rank);

}  // namespace turnout::sim
