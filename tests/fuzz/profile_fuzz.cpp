// SPDX-License-Identifier: BSD-3-Clause
// libFuzzer target: a profile file, which may inherit from itself under any name.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "sim/formats/profile_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace turnout;
  const std::string text(reinterpret_cast<const char*>(data), size);
  const Result<sim::ProfileFile> file = sim::parse_profile(
      text, "fuzz", [&](const std::string&) -> Result<std::string> { return text; });
  if (!file) return 0;
  const hca::Profile& p = file.value().profile;
  // What the engine divides by and multiplies with.
  if (p.wire_packet < 1 || p.cache_fetches < 1 || p.wire_rate < 0 || p.wire_hop < 0) {
    __builtin_trap();
  }
  (void)sim::profile_markdown({&file.value(), 1});
  return 0;
}
