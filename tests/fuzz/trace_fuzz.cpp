// SPDX-License-Identifier: BSD-3-Clause
// libFuzzer target: a trace; what is accepted is written and read back as the same.
#include <cstddef>
#include <cstdint>
#include <sstream>
#include <string>

#include "sim/formats/trace.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace turnout::sim;
  constexpr TraceLimits kLimits{.ranks = 1000, .events = 10000};
  std::istringstream in(std::string(reinterpret_cast<const char*>(data), size));
  const auto trace = read_trace(in, "fuzz", kLimits);
  if (!trace) return 0;
  if (!check_trace(trace.value(), kLimits).ok()) __builtin_trap();
  std::stringstream text;
  if (!write_trace(trace.value(), text).ok()) __builtin_trap();
  const auto again = read_trace(text, "again", kLimits);
  if (!again || !(again.value() == trace.value())) __builtin_trap();
  Trace compact = trace.value();
  (void)compact_tags(&compact);
  (void)repeat_trace(compact, 3, kLimits).ok();
  return 0;
}
