// SPDX-License-Identifier: BSD-3-Clause
#include "base/log.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <mutex>
#include <optional>
#include <string>
#include <system_error>

#include "base/index_of.h"

namespace turnout::log {

namespace {

constexpr std::size_t kSubsystems = static_cast<std::size_t>(Subsystem::count);
constexpr std::array<std::string_view, 6> kLevelNames = {"trace", "debug", "info",
                                                         "warn",  "error", "off"};
constexpr std::array<std::string_view, kSubsystems> kSubsystemNames = {
    "base",      "hca",    "verbs",    "channel",  "connection", "protocol",
    "selection", "memory", "endpoint", "provider", "cli"};

constexpr std::uint8_t kDefault = static_cast<std::uint8_t>(Level::warn);

// What TURNOUT_LOG asks for, and the library that may ask for more.
constinit std::array<std::atomic<std::uint8_t>, kSubsystems> wanted = {
    kDefault, kDefault, kDefault, kDefault, kDefault, kDefault,
    kDefault, kDefault, kDefault, kDefault, kDefault};
std::atomic<const Host*> host{nullptr};

// The file that lines go to; -1 is standard error. It stays open until another configure(), so that
// a line logged while the process ends still finds it.
std::atomic<int> output{-1};
std::mutex configuring;
std::string open_file;  // what `output` is; guarded by `configuring`

std::string_view trim(std::string_view s) {
  const auto first = s.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return s.substr(first, s.find_last_not_of(" \t") - first + 1);
}

using Levels = std::array<std::uint8_t, kSubsystems>;

std::optional<Levels> parse(std::string_view spec) {
  Levels levels;
  levels.fill(kDefault);
  bool first = true;
  while (first || !spec.empty()) {
    const auto comma = spec.find(',');
    const std::string_view item = trim(spec.substr(0, comma));
    if (comma != std::string_view::npos && trim(spec.substr(comma + 1)).empty()) {
      return std::nullopt;  // a comma with nothing behind it
    }
    spec = comma == std::string_view::npos ? std::string_view{} : spec.substr(comma + 1);
    const auto equals = item.find('=');
    if (equals == std::string_view::npos) {
      // A level for all is meaningful only before the exceptions to it.
      const auto level = index_of(kLevelNames, item);
      if (!level || !first) return std::nullopt;
      levels.fill(static_cast<std::uint8_t>(*level));
    } else {
      const auto subsystem = index_of(kSubsystemNames, trim(item.substr(0, equals)));
      const auto level = index_of(kLevelNames, trim(item.substr(equals + 1)));
      if (!subsystem || !level) return std::nullopt;
      levels[*subsystem] = static_cast<std::uint8_t>(*level);
    }
    first = false;
  }
  return levels;
}

std::string expand(std::string_view file) {
  std::string name;
  for (std::size_t i = 0; i < file.size(); ++i) {
    if (file[i] == '%' && i + 1 < file.size() && file[i + 1] == 'p') {
      name += fmt::format("{}", ::getpid());
      ++i;
    } else {
      name += file[i];
    }
  }
  return name;
}

std::uint8_t least_level(const Host& taking, Subsystem s) {
  std::uint8_t level = 0;
  while (level < static_cast<std::uint8_t>(Level::off) &&
         !taking.takes(s, static_cast<Level>(level))) {
    ++level;
  }
  return level;
}

// With `configuring` held.
void update_thresholds() {
  const Host* const taking = host.load(std::memory_order_relaxed);
  for (std::size_t i = 0; i < kSubsystems; ++i) {
    std::uint8_t least = wanted[i].load(std::memory_order_relaxed);
    if (taking != nullptr) least = std::min(least, least_level(*taking, static_cast<Subsystem>(i)));
    threshold[i].store(least, std::memory_order_relaxed);
  }
}

// Without newlines at the end; a line that follows another is indented.
std::string clean(std::string_view text) {
  std::string line;
  while (!text.empty() && text.back() == '\n') text.remove_suffix(1);
  for (const char c : text) {
    // Peers and files name things: keep control characters away from the terminal.
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\n') {
      line += "\n    ";
    } else {
      line += (byte < 0x20 && c != '\t') || byte == 0x7f ? '?' : c;
    }
  }
  return line;
}

void write_own(Subsystem s, Level level, int fd, std::string_view text) {
  const auto l = static_cast<std::size_t>(level);
  const std::string line =
      fmt::format("turnout[{}] {:5} {}: {}\n", ::getpid(),
                  l < kLevelNames.size() ? kLevelNames[l] : "?", name(s), text);
  // One write(2), so that lines of several processes do not mix. What the log cannot tell nobody
  // can be told either: the result is looked at only for an interruption before the first byte.
  while (::write(fd, line.data(), line.size()) < 0 && errno == EINTR) {
  }
}

}  // namespace

static_assert(kSubsystems == 11, "kSubsystemNames, `wanted`, `threshold` list every subsystem");
constinit std::atomic<std::uint8_t> threshold[kSubsystems] = {
    kDefault, kDefault, kDefault, kDefault, kDefault, kDefault,
    kDefault, kDefault, kDefault, kDefault, kDefault};

bool well_formed(std::string_view spec) {
  return parse(spec).has_value();
}

bool configure(std::string_view spec, std::string_view file) {
  const std::optional<Levels> levels = parse(spec);
  if (!levels) return false;
  const std::string name = expand(file);
  int failure = 0;
  {
    const std::scoped_lock lock(configuring);
    for (std::size_t i = 0; i < kSubsystems; ++i) {
      wanted[i].store((*levels)[i], std::memory_order_relaxed);
    }
    update_thresholds();
    if (name != open_file) {
      int fd = -1;
      if (!name.empty()) {
        fd = ::open(name.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (fd < 0) failure = errno;
      }
      // The former file stays open: another thread may be writing to it at this moment, and a
      // number that is used again could be anybody's file. That is once or twice in a process.
      output.store(fd, std::memory_order_release);
      open_file = failure == 0 ? name : std::string{};
    }
  }
  if (failure != 0) {
    TURNOUT_LOG(base, warn, "opening the log file failed: {}: {}; logging to standard error", name,
                std::generic_category().message(failure));
  }
  return true;
}

void set_host(const Host* taking) {
  const std::scoped_lock lock(configuring);
  host.store(taking, std::memory_order_release);
  update_thresholds();
}

std::string_view name(Subsystem s) noexcept {
  const auto i = static_cast<std::size_t>(s);
  return i < kSubsystems ? kSubsystemNames[i] : "?";
}

void write(Subsystem s, Level level, std::string_view text) {
  const int saved = errno;
  const std::string line = clean(text);
  const Host* const taking = host.load(std::memory_order_acquire);
  const bool taken = taking != nullptr && taking->takes(s, level);
  if (taken) taking->write(s, level, line);
  const int file = output.load(std::memory_order_acquire);
  const bool asked = static_cast<std::uint8_t>(level) >=
                     wanted[static_cast<std::size_t>(s)].load(std::memory_order_relaxed);
  // The host writes to standard error: no line twice there.
  if (asked && (file >= 0 || !taken)) write_own(s, level, file >= 0 ? file : STDERR_FILENO, line);
  errno = saved;
}

}  // namespace turnout::log
