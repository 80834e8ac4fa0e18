// SPDX-License-Identifier: BSD-3-Clause
// IdleBackoff: when a program that polls a queue in vain should let others have the processor.
//
// fi_cq_read never waits, and some programs call it in a loop and do not yield. Where their peer
// needs the same processor to answer, each message would take the rest of a time slice, some
// milliseconds. So after kLooks calls in a row that found nothing, which is longer than an answer
// takes over any adapter, one in kLater gives the processor away; to a process that has one for
// itself that is a system call of some 100 ns. Under the lock of the domain.
#pragma once

namespace turnout::provider {

class IdleBackoff {
 public:
  static constexpr unsigned kLooks = 256;
  static constexpr unsigned kLater = 64;
  static_assert(kLater <= kLooks);

  // Of each look, whether it found something. True: call sched_yield, without the lock.
  [[nodiscard]] bool looked(bool found) noexcept {
    vain_ = found ? 0 : vain_ + 1;
    if (vain_ < kLooks) return false;
    vain_ = kLooks - kLater;
    return true;
  }

 private:
  unsigned vain_ = 0;
};

}  // namespace turnout::provider
