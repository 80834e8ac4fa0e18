// SPDX-License-Identifier: BSD-3-Clause
// Settings from hostile text: refused or accepted, never a crash, and what is accepted is in range.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include "base/settings.h"
#include "tests/support/scratch.h"

namespace turnout {
namespace {

rc::Gen<std::string> name() {
  std::vector<std::string> names;
  for (const SettingInfo& row : describe(Settings::defaults())) names.emplace_back(row.name);
  return rc::gen::elementOf(std::move(names));
}

// Values that are nearly right.
rc::Gen<std::string> value() {
  const auto number = rc::gen::map(rc::gen::arbitrary<std::int64_t>(),
                                   [](std::int64_t n) { return std::to_string(n); });
  const auto unit = rc::gen::elementOf(std::vector<std::string>{"", "KiB", "K", "MiB", "G", "TiB",
                                                                "ns", "us", "ms", "s", "min", " ",
                                                                ".", ".5", "e9", "%", "\0"});
  const auto joined =
      rc::gen::map(rc::gen::tuple(number, unit), [](const std::tuple<std::string, std::string>& t) {
        return std::get<0>(t) + std::get<1>(t);
      });
  return rc::gen::oneOf(joined, number, rc::gen::arbitrary<std::string>(),
                        rc::gen::elementOf(std::vector<std::string>{
                            "1", "0", "true", "auto", "16", "4KiB", "1s", "aqps", "./x", "warn"}));
}

void check(const Settings& settings) {
  const Status status = settings.validate();
  if (!status.ok()) {
    RC_ASSERT(status.code() == Code::invalid);
    RC_ASSERT(status.text().find("TURNOUT_") != std::string::npos);
    return;
  }
  RC_ASSERT(settings.ring_entries >= 2 && settings.ring_entries <= 128);
  RC_ASSERT((settings.ring_entries & (settings.ring_entries - 1)) == 0);
  RC_ASSERT(settings.data_qps <= 64);
  RC_ASSERT(settings.interval > 0 && settings.keepalive > 0);
  RC_ASSERT(settings.fabric.find('/') == std::string::npos);
  // What is valid can be printed and read again.
  Settings again = Settings::defaults();
  for (const SettingInfo& row : describe(settings)) RC_ASSERT(again.set(row.name, row.value).ok());
  RC_ASSERT(again.validate().ok());
}

RC_GTEST_PROP(SettingsFuzz, AnyValueOfAnySetting, ()) {
  Settings settings = Settings::defaults();
  const int n = *rc::gen::inRange(1, 6);
  for (int i = 0; i < n; ++i) {
    const std::string key = *name();
    const Status status = settings.set(key, *value());
    RC_ASSERT(status.ok() || status.code() == Code::invalid);
  }
  check(settings);
}

RC_GTEST_PROP(SettingsFuzz, AnyTextAsAFile, (const std::string& text)) {
  test::CapturedStderr quiet;
  Settings settings = Settings::defaults();
  const Status status = settings.apply_toml(text, "fuzz.toml");
  RC_ASSERT(status.ok() || status.code() == Code::invalid);
}

RC_GTEST_PROP(SettingsFuzz, LinesThatAreNearlyRight, ()) {
  test::CapturedStderr quiet;
  std::string text;
  const int n = *rc::gen::inRange(0, 8);
  for (int i = 0; i < n; ++i) {
    const std::string v = *value();
    text += *name() + " = " + (*rc::gen::arbitrary<bool>() ? v : "\"" + v + "\"") + "\n";
  }
  Settings settings = Settings::defaults();
  const Status status = settings.apply_toml(text, "fuzz.toml");
  RC_ASSERT(status.ok() || status.code() == Code::invalid);
  if (status.ok()) check(settings);
}

}  // namespace
}  // namespace turnout
