// SPDX-License-Identifier: BSD-3-Clause
// libFuzzer target: a file of a device's costs.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "core/selection/device_costs.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace turnout;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const Result<selection::CostsFile> file = selection::parse_costs(text, "fuzz");
  if (!file) return 0;
  for (const selection::CostRow& row : selection::cost_table()) {
    const selection::CostValue& cost = file.value().costs.*row.field;
    if (!(cost.value >= 0) || !(cost.error() >= 0) || !std::isfinite(cost.error())) {
      __builtin_trap();
    }
  }
  // What is valid prints, and reads back.
  if (!selection::parse_costs(selection::print_costs(file.value()), "again")) __builtin_trap();
  return 0;
}
