// SPDX-License-Identifier: BSD-3-Clause
#include "core/time/clock.h"

#include <ctime>

namespace turnout {
namespace {
class LiveClock final : public Clock {
 public:
  Nanoseconds now() noexcept override {
    timespec t{};
    clock_gettime(CLOCK_MONOTONIC, &t);
    return Nanoseconds{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
  }
};
}  // namespace

Clock& live_clock() noexcept {
  static LiveClock clock;
  return clock;
}

}  // namespace turnout
