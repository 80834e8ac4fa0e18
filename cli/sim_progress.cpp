#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>

#include "cli/sim.h"
#include "sim/result_writer.h"

namespace turnout::cli {

namespace {

constexpr std::int64_t kRedraw = 100'000'000;  // ns
constexpr std::uint32_t kWidth = 24;

std::int64_t now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

Progress::Progress() : terminal_(::isatty(STDERR_FILENO) == 1) {}

Progress::~Progress() {
  clear();
}

void Progress::show(const std::string& what, std::uint32_t ended, std::uint32_t ranks,
                    std::int64_t picoseconds, std::uint64_t events) {
  if (!terminal_) return;
  const std::int64_t time = now();
  if (what != last_what_) {
    last_what_ = what;
    began_ = time;
  } else if (time - last_ < kRedraw) {
    return;
  }
  last_ = time;
  drawn_ = true;
  const std::uint32_t filled =
      ranks == 0 ? 0 : static_cast<std::uint32_t>(std::uint64_t{ended} * kWidth / ranks);
  const double seconds = static_cast<double>(time - began_) / 1e9;
  std::string line =
      fmt::format("\r{} [{:#<{}}{:.<{}}] {} of {} ranks ended, at {}, {:.1f} M events", what, "",
                  filled, "", kWidth - filled, ended, ranks, sim::print_time(picoseconds),
                  static_cast<double>(events) / 1e6);
  if (seconds > 0) line += fmt::format(", {:.2f} M/s", static_cast<double>(events) / 1e6 / seconds);
  fmt::print(stderr, "{}\033[K", line);
  std::fflush(stderr);
}

void Progress::clear() {
  if (!drawn_) return;
  drawn_ = false;
  fmt::print(stderr, "\r\033[K");
  std::fflush(stderr);
}

}  // namespace turnout::cli
