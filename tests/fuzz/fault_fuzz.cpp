// SPDX-License-Identifier: BSD-3-Clause
// What users write into TURNOUT_FAULT. A plan that is accepted has items that are accepted alone.
#include <string_view>

#include "hca/device/fault_plan.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using turnout::hca::FaultPlan;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto plan = FaultPlan::parse(text, 0);
  if (!plan.ok()) {
    if (plan.status().text().empty()) __builtin_trap();
    return 0;
  }
  for (std::size_t i = 0; i < plan.value().faults().size(); ++i) {
    const auto again = FaultPlan::parse(plan.value().faults()[i].text, 0);
    if (!again.ok() || again.value().faults().size() != 1) __builtin_trap();
    (void)plan.value().hits(i, size);
  }
  return 0;
}
