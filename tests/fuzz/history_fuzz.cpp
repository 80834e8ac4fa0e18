// SPDX-License-Identifier: BSD-3-Clause
// libFuzzer target: the history of a report, as far as the grid of a picture.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "sim/analysis/sources.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace turnout::sim;
  const auto report =
      turnout::report_from_json(std::string_view(reinterpret_cast<const char*>(data), size));
  if (!report) return 0;
  const auto arrivals = arrivals_of_reports({&report.value(), 1}, -1);
  if (!arrivals) return 0;
  const auto grid = SourceGrid::make(arrivals.value(), 10, 10);
  if (!grid) __builtin_trap();  // what was read is in range
  if (to_plot_json(grid.value(), arrivals.value(), "fuzz").empty()) __builtin_trap();
  return 0;
}
