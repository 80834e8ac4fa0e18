// The one logger of Turnout: by level, by subsystem, off by default (TURNOUT_LOG,
// TURNOUT_LOG_FILE).
//
// Lines go to standard error (or the file named) with process id, level and subsystem. Warnings and
// errors are always shown: they tell what the user can do. Any thread may log. A disabled level
// costs one load and one branch; arguments are not formatted.
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

// The least level that is printed for each subsystem; written by configure(), read everywhere.
extern std::atomic<std::uint8_t> threshold[static_cast<std::size_t>(Subsystem::count)];

// spec: "warn", or a level for all and exceptions: "info,connection=debug,hca=trace".
// file: empty for standard error. Returns false (and keeps the former state) if spec is malformed.
// A file that cannot be opened is warned about; lines go to standard error then.
bool configure(std::string_view spec, std::string_view file);
// Whether configure() would take this spec.
[[nodiscard]] bool well_formed(std::string_view spec);

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
