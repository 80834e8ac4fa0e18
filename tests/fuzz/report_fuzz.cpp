// SPDX-License-Identifier: BSD-3-Clause
// libFuzzer target: a report file, as `turnout report` and `turnout stuck` read and print it.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "cli/stuck_text.h"
#include "core/report/report.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace turnout;
  const auto report = report_from_json({reinterpret_cast<const char*>(data), size});
  if (!report.ok()) return 0;
  const std::string tables = format_reports({&report.value(), 1});
  if (tables.find('\x1b') != std::string::npos) __builtin_trap();
  // Two of a job: the second is stale, and waits are old enough.
  cli::Observation seen;
  seen.reports = {{report.value(), 0}, {report.value(), 60}};
  seen.reports[1].report.endpoint ^= 1;
  ++seen.reports[1].report.pid;
  seen.least = 1e-9;
  for (const cli::StuckJob& job : cli::stuck_jobs(seen)) {
    const std::string text = cli::stuck_text(job, seen.least);
    if (std::count(text.begin(), text.end(), '\n') > std::ptrdiff_t{cli::kStuckLines}) {
      __builtin_trap();
    }
    if (text.find('\x1b') != std::string::npos) __builtin_trap();
    if (cli::stuck_json({&job, 1}).empty()) __builtin_trap();
  }
  const auto again = report_from_json(to_json(report.value()));
  if (!again.ok()) __builtin_trap();
  return 0;
}
