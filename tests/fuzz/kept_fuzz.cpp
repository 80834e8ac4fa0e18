// SPDX-License-Identifier: BSD-3-Clause
// libFuzzer target: a kept result of a run, and kept maps, and that what was read is written the
// same.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "sim/experiments/optimum.h"
#include "sim/study/kept_results.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace turnout::sim;
  const std::string_view given(reinterpret_cast<const char*>(data), size);
  if (const auto optimum = optimum_from_kept_json(given, "x")) {
    const std::string written = to_kept_json("x", optimum.value());
    const auto read = optimum_from_kept_json(written, "x");
    if (!read || to_kept_json("x", read.value()) != written) __builtin_trap();
  }
  const auto kept = from_kept_json(given, "x");
  if (!kept) return 0;
  const std::string text = to_kept_json("x", kept.value().result);
  const auto again = from_kept_json(text, "x");
  if (!again || to_kept_json("x", again.value().result) != text) __builtin_trap();
  return 0;
}
