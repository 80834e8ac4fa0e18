// SPDX-License-Identifier: BSD-3-Clause
// libFuzzer target: a report file, as `turnout report` reads and prints it.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "core/report/report.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace turnout;
  const auto report = report_from_json({reinterpret_cast<const char*>(data), size});
  if (!report.ok()) return 0;
  const std::string tables = format_reports({&report.value(), 1});
  if (tables.find('\x1b') != std::string::npos) __builtin_trap();
  const auto again = report_from_json(to_json(report.value()));
  if (!again.ok()) __builtin_trap();
  return 0;
}
