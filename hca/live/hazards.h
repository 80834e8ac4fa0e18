// SPDX-License-Identifier: BSD-3-Clause
// Hazards: waits until no initiator uses what the caller has invalidated.
//
// Before an initiator relies on a region or a queue pair it names it in its hazard word; the owner
// first invalidates, then waits here. Either the initiator sees the invalidation, or the owner sees
// the initiator: between the two accesses of each lies a barrier. Initiators are many and owners
// seldom wait, so the owner makes the barrier of both, by membarrier(2). Any thread; may sleep.
#pragma once

#include <time.h>

#include <algorithm>

#include "hca/live/parts.h"

namespace turnout::hca {

class Hazards : LiveParts {
 public:
  explicit Hazards(const LiveParts& parts) : LiveParts(parts) {}

  // Before a request of the queue pair, whose sq_lock is held, looks at what it names. Until the
  // caller stores 0.
  static void name(const Fabric& fabric, Qp& qp, std::uint32_t number, std::uint32_t key) noexcept {
    if (fabric.header().full_barriers.load(std::memory_order_relaxed) != 0) [[unlikely]] {
      qp.hazard->exchange(hazard_of(number, key), std::memory_order_seq_cst);
    } else {
      qp.hazard->store(hazard_of(number, key), std::memory_order_relaxed);
      std::atomic_signal_fence(std::memory_order_seq_cst);  // the owner's barrier is in between
    }
  }

  // Waits until no initiator touches this region or queue pair. 0: not asked about. held: the queue
  // pair of ours whose sq_lock the caller has, if any.
  void wait_unused(std::uint32_t key, std::uint32_t number, const Qp* held = nullptr) noexcept {
    // Of a queue pair that executes nothing: another value is damage, and others might wait for it.
    if (held != nullptr) held->hazard->store(0, std::memory_order_relaxed);
    fabric.barrier();
    const std::uint32_t high = std::min(fabric.header().qp_high.load(), kMaxQps);
    for (std::uint32_t i = kFirstQp; i < high; ++i) {
      const Hazard& hazard = fabric.hazard(i);
      for (int round = 0;; ++round) {
        const std::uint64_t h = hazard.load(std::memory_order_seq_cst);
        const bool busy = (key != 0 && static_cast<std::uint32_t>(h) == key) ||
                          (number != 0 && static_cast<std::uint32_t>(h >> 32) == number);
        if (!busy) break;
        if (waits_shortly(round)) continue;
        if (round % 64 == 0 && !executes(i)) break;
      }
    }
  }
  // Waits until no initiator has a receive of this SRQ of ours. Nobody can take another.
  void wait_untaken(std::uint32_t srq) noexcept {
    const std::uint32_t high = std::min(fabric.header().qp_high.load(), kMaxQps);
    for (std::uint32_t i = kFirstQp; i < high; ++i) {
      const QpRecord& q = fabric.qp(i);
      constexpr std::uint32_t kOfSrq = 2;
      // What the record says of the receive stands since before `taken` does.
      for (int round = 0; q.taken.load(std::memory_order_acquire) == kOfSrq &&
                          q.taken_index == srq && q.taken_owner == fabric.me();
           ++round) {
        if (waits_shortly(round)) continue;
        // What a dead one had taken must be put back before the record has another queue.
        if (round % 64 != 0 || executes(i)) continue;
        fabric.reap(q.owner.load());
        break;
      }
    }
  }

 private:
  // Waits for a moment; true: in the first rounds, when it is too early to ask for the reason.
  [[nodiscard]] static bool waits_shortly(int round) noexcept {
    if (round < 100) {
      __builtin_ia32_pause();
      return true;
    }
    const timespec nap{0, 20'000};
    nanosleep(&nap, nullptr);
    return false;
  }
  // May somebody execute a request of the queue pair with this index now?
  [[nodiscard]] bool executes(std::uint32_t index) noexcept {
    {
      // Of our own the record may say anything: who executes holds sq_lock.
      const std::lock_guard lock(objects.mutex);
      if (Qp* qp = objects.qps[index].load(std::memory_order_acquire); qp != nullptr) {
        if (!qp->sq_lock.try_lock()) return true;
        qp->sq_lock.unlock();
        return false;
      }
    }
    const Token owner = fabric.qp(index).owner.load();
    return owner != fabric.me() && fabric.alive(owner);
  }
};

}  // namespace turnout::hca
