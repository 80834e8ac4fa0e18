// SPDX-License-Identifier: BSD-3-Clause
// IdleBackoff: how long a read of a queue or counter looks, and when others should have the
// processor.
//
// fi_cq_read never waits, and programs call it in a loop. Those that do not yield would make a peer
// that needs the same processor wait for the rest of a time slice, some milliseconds. So after
// kReads reads in a row that found nothing, which is longer than an answer takes over any adapter,
// one in kLater gives the processor away; to a process that has one for itself that is a system
// call of some 100 ns. Others yield after each read, as MPICH does, and see no message meanwhile.
// So a read that finds nothing looks again for up to twice as long as the program was away.
//
// One per domain, under its lock.
#pragma once

#include <cstdint>

#include "base/ticks.h"

namespace turnout::provider {

template <class Time = Ticks>
class IdleBackoff {
 public:
  static constexpr unsigned kReads = 256;
  static constexpr unsigned kLater = 64;
  static_assert(kLater <= kReads);
  // Ticks, some 1 us. Who was away for longer than a yield to nobody takes had work, or another
  // process had the processor and may need it again.
  static constexpr std::uint64_t kYield = 2500;

  // `look` says whether it found something; `wanted`, whether another thread waits for the lock.
  // True: call sched_yield, without the lock.
  template <class Look, class Wanted>
  [[nodiscard]] bool read(Look&& look, Wanted&& wanted) {
    std::uint64_t until = 0;
    do {
      if (look()) [[likely]] {
        vain_ = 0;
        return false;
      }
      const std::uint64_t now = Time{}();
      const std::uint64_t away = now - returned_;
      returned_ = now;
      if (until == 0) {  // of this read, the first look; after a success the program had work
        if (++vain_ < 2 || away > kYield) break;
        until = now + 2 * away;
      }
    } while (returned_ < until && !wanted());
    if (vain_ < kReads) return false;
    vain_ = kReads - kLater;
    return true;
  }

 private:
  unsigned vain_ = 0;           // reads in a row
  std::uint64_t returned_ = 0;  // when the latest of them did, in ticks
};

}  // namespace turnout::provider
