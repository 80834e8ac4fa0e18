// SPDX-License-Identifier: BSD-3-Clause
// Clock: how time reaches the messaging core (design.md, seam 4). The core never reads a clock,
// sleeps or spins by itself.
//
// Live it reads CLOCK_MONOTONIC; in virtual time it is the simulator's. It outlives the endpoint
// that was given it; called only from the thread that drives the endpoint.
#pragma once

#include <cstdint>
#include <ctime>

namespace turnout {

using Nanoseconds = std::int64_t;

class Clock {
 public:
  virtual ~Clock() = default;
  [[nodiscard]] virtual Nanoseconds now() noexcept = 0;
};

// CLOCK_MONOTONIC of this machine; any thread.
[[nodiscard]] inline Clock& live_clock() noexcept {
  static struct : Clock {
    Nanoseconds now() noexcept override {
      timespec t{};
      clock_gettime(CLOCK_MONOTONIC, &t);
      return Nanoseconds{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
    }
  } clock;
  return clock;
}

}  // namespace turnout
