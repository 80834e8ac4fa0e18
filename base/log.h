// SPDX-License-Identifier: BSD-3-Clause
// The one logger of Turnout: by level, by subsystem, off by default (TURNOUT_LOG,
// TURNOUT_LOG_FILE).
//
// Lines go to standard error (or the file named) with process id, level and subsystem. Warnings and
// errors are always shown: they tell what the user can do. A library that Turnout runs in may take
// lines into its own log (Host); standard error then has them from there, a file has them from
// here. Any thread may log. A disabled level costs one load and one branch; arguments are not
// formatted.
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

// The least level that anybody wants of each subsystem; written by configure() and set_host(), read
// everywhere.
extern std::atomic<std::uint8_t> threshold[static_cast<std::size_t>(Subsystem::count)];

// spec: "warn", or a level for all and exceptions: "info,connection=debug,hca=trace".
// file: empty for standard error. Returns false (and keeps the former state) if spec is malformed.
// A file that cannot be opened is warned about; lines go to standard error then.
bool configure(std::string_view spec, std::string_view file);
// Whether configure() would take this spec.
[[nodiscard]] bool well_formed(std::string_view spec);

// The log of the library that Turnout runs in. It decides which lines it takes. Any thread calls
// it.
struct Host {
  bool (*takes)(Subsystem, Level) noexcept;
  // The text ends without a newline, and may have some inside.
  void (*write)(Subsystem, Level, std::string_view text);
};
// `host` stays as long as it is set; null: none. What it takes may change: set it again then.
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
