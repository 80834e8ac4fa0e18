// SPDX-License-Identifier: BSD-3-Clause
// The one logger of Turnout: by level, by subsystem, off by default (TURNOUT_LOG,
// TURNOUT_LOG_FILE).
//
// Lines go to standard error or to a file, with process id, level and subsystem. Warnings and
// errors are printed by default and include a remedy. A host library may take lines into its own
// log (Host); they then reach standard error through that log, and a file from here. Any thread may
// log. A disabled level costs one load and one branch; arguments are not formatted.
#pragma once

#include <fmt/format.h>

#include <atomic>
#include <cstdint>
#include <string_view>

namespace turnout::log {

enum class Level : std::uint8_t { trace, debug, info, warn, error, off };
enum class Subsystem : std::uint8_t {
  base,
  hca,
  verbs,
  channel,
  connection,
  protocol,
  selection,
  memory,
  endpoint,
  provider,
  cli,
  count
};

// The lowest enabled level of each subsystem; written by configure() and set_host().
extern std::atomic<std::uint8_t> threshold[static_cast<std::size_t>(Subsystem::count)];

// spec: "warn", or a default level with exceptions: "info,connection=debug,hca=trace".
// file: empty for standard error. Returns false and changes nothing if spec is malformed. If the
// file cannot be opened, logs a warning and uses standard error.
bool configure(std::string_view spec, std::string_view file);
// Whether configure() accepts this spec.
[[nodiscard]] bool well_formed(std::string_view spec);

// The log of the host library, which filters lines by itself. Called from any thread.
struct Host {
  bool (*takes)(Subsystem, Level) noexcept;
  // The text has no trailing newline, but may contain newlines.
  void (*write)(Subsystem, Level, std::string_view text);
};
// `host` must stay valid while set; null: none. Call again when its filter changes.
void set_host(const Host* host);

[[nodiscard]] std::string_view name(Subsystem s) noexcept;

[[nodiscard]] inline bool enabled(Subsystem s, Level level) noexcept {
  return static_cast<std::uint8_t>(level) >=
         threshold[static_cast<std::size_t>(s)].load(std::memory_order_relaxed);
}

void write(Subsystem s, Level level, std::string_view text);

template <class... Args>
void print(Subsystem s, Level level, fmt::format_string<Args...> format, Args&&... args) {
  if (enabled(s, level)) write(s, level, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace turnout::log

#define TURNOUT_LOG(subsystem, level, ...)                                                  \
  ::turnout::log::print(::turnout::log::Subsystem::subsystem, ::turnout::log::Level::level, \
                        __VA_ARGS__)
