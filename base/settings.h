// SPDX-License-Identifier: BSD-3-Clause
// Settings: one typed field per line of settings.def, read once per process.
//
// Sources, later ones override: default, TOML file (TURNOUT_CONFIG), environment. In the
// environment a setting has two names: FI_TURNOUT_*, as libfabric names what its providers read,
// and TURNOUT_*, which overrides it. Tuning parameters have no variable of their own: they are
// items of the list TURNOUT_TUNING, or keys of the file's table [tuning]. Names of earlier versions
// are accepted with a warning. Malformed or out-of-range values are errors that name the variable,
// the value and what is accepted. Unknown variables, unknown keys of the file and variables that
// contradict each other are warned about once.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace turnout {

// Several libraries of one process read the settings; one of them tells about names nobody knows.
enum class UnknownNames : std::uint8_t { warn, ignore };

// What `rendezvous` may be.
inline constexpr std::array<std::string_view, 6> kRendezvousNames = {"getcqe", "get", "rput",
                                                                     "putnr",  "put", "auto"};
// What `eviction` may be.
inline constexpr std::array<std::string_view, 4> kEvictionNames = {"none", "lru", "lru-m", "cost"};
// What `adapter` may be.
inline constexpr std::array<std::string_view, 4> kAdapterNames = {"turnout", "connectx-5",
                                                                  "connect-ib", "rxe"};
// What `rtr_sentinel` may be.
inline constexpr std::array<std::string_view, 2> kRtrSentinelNames = {"keep", "set"};
// What `policy` may be.
inline constexpr std::array<std::string_view, 12> kPolicyNames = {
    "turnout",        "aqps",           "rc-rdma-od",         "dc-rdma-od",         "srq",
    "static:dc-rdma", "static:rc-rdma", "static:dc-sendrecv", "static:ud-sendrecv", "ardma-srq",
    "ardma-sr",       "xrc-rdma-od"};
// A connection is made at a peer's first message, as far as the limits go.
[[nodiscard]] constexpr bool connects_on_demand(std::string_view policy) noexcept {
  return policy == "rc-rdma-od" || policy == "srq" || policy == "ardma-srq" || policy == "ardma-sr";
}
// Its channels are over DC, or begin there.
[[nodiscard]] constexpr bool needs_dc(std::string_view policy) noexcept {
  return policy.find("dc-") != std::string_view::npos || policy == "srq" || policy == "ardma-srq" ||
         policy == "ardma-sr" || policy == "xrc-rdma-od";
}

struct Settings {
  using text = std::string;
  using boolean = bool;
  using count = std::uint64_t;
  using bytes = std::uint64_t;
  using duration = std::int64_t;  // nanoseconds

#define TURNOUT_SETTING(name, kind, default_value, help) kind name{};
#include "base/settings.def"
#undef TURNOUT_SETTING

  // What set(), a file or the environment gave a value, its default or another.
  struct Given {
    std::string_view name;
    std::string_view prefix;  // of the variable that errors name
  };
  std::vector<Given> given;
  [[nodiscard]] const Given* find_given(std::string_view name) const noexcept {
    const auto found = std::find_if(given.begin(), given.end(),
                                    [name](const Given& one) { return one.name == name; });
    return found == given.end() ? nullptr : &*found;
  }
  [[nodiscard]] bool is_given(std::string_view name) const noexcept {
    return find_given(name) != nullptr;
  }
  // The variable that set the value, else the one that would: TURNOUT_X, or for a tuning parameter
  // "TURNOUT_TUNING: x".
  [[nodiscard]] std::string variable(std::string_view name) const;

  // All defaults, nothing read from outside.
  [[nodiscard]] static Settings defaults();
  // Defaults, then the file, then the environment; validated as a whole (ranges and relations
  // between settings). Also configures the logger from `log` and `log_file`. A variable that is set
  // but empty counts as not set.
  [[nodiscard]] static Result<Settings> load(UnknownNames unknown = UnknownNames::warn);
  // The settings of a TOML text: `name = value` lines and a table [tuning]. `file` is for messages.
  // Not validated.
  [[nodiscard]] Status apply_toml(std::string_view text, std::string_view file);
  // Tuning parameters as name=value,name=value; `where` is for messages. Not validated.
  [[nodiscard]] Status apply_tuning(std::string_view list, std::string_view where);
  // What the environment holds. Not validated.
  [[nodiscard]] Status apply_environment();
  // Parse one value as the environment would; the error names the setting. Tuning parameters, too.
  [[nodiscard]] Status set(std::string_view name, std::string_view value);
  // Ranges and relations (settings_rules.cpp); the error names the variable, the value and the
  // range.
  [[nodiscard]] Status validate() const;
};

// One row of the table, for `turnout info --config` and the docs.
struct SettingInfo {
  std::string_view name;  // "memory_budget"
  std::string variable;   // Settings::variable
  std::string_view kind;  // "bytes"
  std::string_view default_value;
  std::string_view help;
  std::string value;  // as in `settings`, printed with its unit
  bool tuning;        // an item of TURNOUT_TUNING
};
[[nodiscard]] std::vector<SettingInfo> describe(const Settings& settings);

// What the environment holds for a setting, under either name; null if nothing, or if it is empty.
// For libraries that need one value and no errors.
[[nodiscard]] const char* environment_value(std::string_view name);

// The known setting whose name is nearest (edit distance), empty if nothing is near.
[[nodiscard]] std::string_view nearest_setting(std::string_view name);

}  // namespace turnout
