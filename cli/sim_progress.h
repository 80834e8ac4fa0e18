// SPDX-License-Identifier: BSD-3-Clause
// Progress: how far a simulation is, on standard error: one line on a terminal, drawn anew at most
// ten times a second; elsewhere a line after ten seconds and then every minute. One thread.
#pragma once

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>

#include "sim/study/result_writer.h"

namespace turnout::cli {

class Progress {
 public:
  Progress() : terminal_(::isatty(STDERR_FILENO) == 1) {}
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress() { clear(); }
  void show(const std::string& what, std::uint32_t ended, std::uint32_t ranks,
            std::int64_t picoseconds, std::uint64_t events) {
    const std::int64_t time = now();
    if (what != last_what_) {
      last_what_ = what;
      began_ = last_ = time;
      if (!terminal_) return;
    } else if (time - last_ < (terminal_ ? kRedraw : last_ == began_ ? kFirstLine : kLine)) {
      return;
    }
    last_ = time;
    const std::string done =
        fmt::format("{} of {} ranks ended, at {}, {:.1f} M events", ended, ranks,
                    sim::print_time(picoseconds), static_cast<double>(events) / 1e6);
    if (!terminal_) {
      fmt::print(stderr, "turnout sim: {}: {}\n", what, done);
      return;
    }
    const std::uint32_t filled =
        ranks == 0 ? 0 : static_cast<std::uint32_t>(std::uint64_t{ended} * kWidth / ranks);
    const double seconds = static_cast<double>(time - began_) / 1e9;
    std::string line =
        fmt::format("{} [{:#<{}}{:.<{}}] {}", what, "", filled, "", kWidth - filled, done);
    if (seconds > 0)
      line += fmt::format(", {:.2f} M/s", static_cast<double>(events) / 1e6 / seconds);
    draw(line);
  }
  void say(const std::string& what) { draw(what); }  // on a terminal, until show()
  void clear() {
    if (drawn_) draw("");
    drawn_ = false;
  }

 private:
  // Nanoseconds.
  static constexpr std::int64_t kRedraw = 100'000'000, kFirstLine = 10'000'000'000,
                                kLine = 60'000'000'000;
  static constexpr std::uint32_t kWidth = 24;

  static std::int64_t now() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }

  void draw(const std::string& line) {
    if (!terminal_) return;
    drawn_ = true;
    fmt::print(stderr, "\r{}\033[K", line);
    std::fflush(stderr);
  }

  bool terminal_;
  bool drawn_ = false;
  std::int64_t last_ = 0;  // ns of the steady clock
  std::string last_what_;
  std::int64_t began_ = 0;  // the run under way
};

}  // namespace turnout::cli
