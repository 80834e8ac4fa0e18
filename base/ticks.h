// SPDX-License-Identifier: BSD-3-Clause
// Ticks: reads the processor's counter of time, to compare durations of some microseconds. It runs
// at one rate, near the processor's frequency, and costs some 20 cycles. Any thread; values of two
// processors may differ by a few ticks. Source: Intel SDM vol. 3, 18.17 (invariant TSC).
#pragma once

#include <chrono>
#include <cstdint>

namespace turnout {

struct Ticks {
  [[nodiscard]] std::uint64_t operator()() const noexcept {
#if defined(__x86_64__)
    return __builtin_ia32_rdtsc();
#else
    return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch() /
                                      std::chrono::nanoseconds(1));
#endif
  }
};

}  // namespace turnout
