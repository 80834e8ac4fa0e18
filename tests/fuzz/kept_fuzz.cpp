// SPDX-License-Identifier: BSD-3-Clause
// libFuzzer target: a kept result of a run, and that what was read is written the same.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "sim/study/kept_results.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace turnout::sim;
  const auto kept = from_kept_json({reinterpret_cast<const char*>(data), size}, "x");
  if (!kept) return 0;
  const std::string text = to_kept_json("x", kept.value().result);
  const auto again = from_kept_json(text, "x");
  if (!again || to_kept_json("x", again.value().result) != text) __builtin_trap();
  return 0;
}
