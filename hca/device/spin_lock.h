// SPDX-License-Identifier: BSD-3-Clause
// SpinLock: a lock between threads of one process, for sections of some ten nanoseconds.
//
// One atomic operation when free. Yields the processor otherwise, because with more threads than
// cores the holder needs it. Not recursive.
#pragma once

#include <sched.h>

#include <atomic>

namespace turnout::hca {

class SpinLock {
 public:
  void lock() noexcept {
    while (locked_.exchange(true, std::memory_order_seq_cst)) {
      for (int spin = 0; locked_.load(std::memory_order_relaxed); ++spin) {
        if (spin < 64) {
          __builtin_ia32_pause();
        } else {
          sched_yield();
        }
      }
    }
  }
  [[nodiscard]] bool try_lock() noexcept {
    return !locked_.exchange(true, std::memory_order_seq_cst);
  }
  void unlock() noexcept { locked_.store(false, std::memory_order_release); }

 private:
  std::atomic<bool> locked_{false};
};

}  // namespace turnout::hca
