// SPDX-License-Identifier: BSD-3-Clause
// libFuzzer target: a recording; two of the same are merged.
#include <cstddef>
#include <cstdint>
#include <sstream>
#include <string>

#include "sim/formats/recording.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace turnout::sim;
  constexpr TraceLimits kLimits{.ranks = 1000, .events = 10000};
  std::istringstream in(std::string(reinterpret_cast<const char*>(data), size));
  const auto recording = read_recording(in, "fuzz", kLimits);
  if (!recording) return 0;
  Recording other = recording.value();
  other.endpoint += 1;
  other.rank = other.rank < 0 ? -1 : other.rank + 1;
  const auto trace = merge_recordings({recording.value(), other}, "fuzz", kLimits);
  if (trace.ok() && !check_trace(trace.value(), kLimits).ok()) __builtin_trap();
  return 0;
}
