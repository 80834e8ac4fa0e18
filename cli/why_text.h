// SPDX-License-Identifier: BSD-3-Clause
// What `turnout why` prints of one pair of processes: both directions, each in plain sentences and
// one table.
//
// Pure functions of reports, any thread. Reports may come from a file: what they say becomes
// printable.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/status.h"
#include "core/report/report.h"

namespace turnout::cli {

// At most so many columns.
inline constexpr std::size_t kWhyColumns = 100;

// Of the reports of one job. A process is named by its rank, or by its process number where no
// launcher told ranks, or where it left no report. Errors: invalid, naming the processes there are.
[[nodiscard]] Result<std::string> why_text(std::span<const EndpointReport> reports,
                                           std::uint32_t rank, std::uint32_t peer);

}  // namespace turnout::cli
