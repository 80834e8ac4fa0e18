// SPDX-License-Identifier: BSD-3-Clause
// libFuzzer target: a report file, as `turnout report` and `turnout stuck` read and print it, and
// as the setting `prediction` reads it; its name, too.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "cli/stuck_text.h"
#include "core/report/last_run_reader.h"
#include "core/report/report.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace turnout;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  if (const auto name = parse_report_name(bytes); name && name->rank < 0) __builtin_trap();
  const auto report = report_from_json(bytes);
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
  const EndpointReport& own = report.value();
  if (auto run = counted_sources({&own, 1}, own.rank, own.ranks, {1, 2})) {
    if (run->run.sources.size() > 2 || run->endpoints.size() != run->run.sources.size()) {
      __builtin_trap();
    }
    for (const LastRun::Source& source : run->run.sources) {
      if (source.first < 0 || source.last < source.first || source.active < 0) __builtin_trap();
      if (!(source.busy >= 0 && source.busy <= 1)) __builtin_trap();
      if (!(source.switched >= 0 && source.switched <= 1)) __builtin_trap();
    }
  }
  const auto again = report_from_json(to_json(report.value()));
  if (!again.ok()) __builtin_trap();
  return 0;
}
