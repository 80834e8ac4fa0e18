// SPDX-License-Identifier: BSD-3-Clause
// libFuzzer target: a GOAL schedule; what is accepted is a trace.
#include <cstddef>
#include <cstdint>
#include <sstream>
#include <string>

#include "sim/formats/goal.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace turnout::sim;
  constexpr TraceLimits kLimits{.ranks = 1000, .events = 10000};
  std::istringstream in(std::string(reinterpret_cast<const char*>(data), size));
  const auto trace = read_goal(in, "fuzz", kLimits);
  if (trace.ok() && !check_trace(trace.value(), kLimits).ok()) __builtin_trap();
  return 0;
}
