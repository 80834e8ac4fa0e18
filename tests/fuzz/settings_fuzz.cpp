// SPDX-License-Identifier: BSD-3-Clause
// libFuzzer target: a settings file, and each of its lines as the value of a variable.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/log.h"
#include "base/settings.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace turnout;
  static const bool quiet = log::configure("off", "");
  if (!quiet) __builtin_trap();
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  Settings settings = Settings::defaults();
  if (settings.apply_toml(text, "fuzz").ok() && settings.validate().ok()) {
    // What is valid prints, and reads back as the same.
    Settings again = Settings::defaults();
    for (const SettingInfo& row : describe(settings)) {
      if (!again.set(row.name, row.value).ok()) __builtin_trap();
    }
  }
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(line.size() + (line.size() < rest.size() ? 1 : 0));
    const auto equals = line.find('=');
    if (equals == std::string_view::npos) continue;
    (void)settings.set(line.substr(0, equals), line.substr(equals + 1)).ok();
    (void)nearest_setting(line.substr(0, equals));
    (void)log::well_formed(line);
  }
  (void)settings.validate().ok();
  return 0;
}
