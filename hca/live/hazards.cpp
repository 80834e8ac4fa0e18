// SPDX-License-Identifier: BSD-3-Clause
#include "hca/live/hazards.h"

#include <time.h>

#include <algorithm>

namespace turnout::hca {

namespace {

// Waits for a moment; true: in the first rounds, when it is too early to ask for the reason.
bool waits_shortly(int round) noexcept {
  if (round < 100) {
    __builtin_ia32_pause();
    return true;
  }
  const timespec nap{0, 20'000};
  nanosleep(&nap, nullptr);
  return false;
}

}  // namespace

bool Hazards::executes(std::uint32_t index) noexcept {
  {
    // Of our own the record may say anything: who executes holds sq_lock.
    const std::lock_guard lock(objects_.mutex);
    if (Qp* qp = objects_.qps[index].load(std::memory_order_acquire); qp != nullptr) {
      if (!qp->sq_lock.try_lock()) return true;
      qp->sq_lock.unlock();
      return false;
    }
  }
  const Token owner = fabric_.qp(index).owner.load();
  return owner != fabric_.me() && fabric_.alive(owner);
}

void Hazards::wait_unused(std::uint32_t key, std::uint32_t number, const Qp* held) noexcept {
  // Of a queue pair that executes nothing: another value is damage, and others might wait for it.
  if (held != nullptr) held->hazard->store(0, std::memory_order_relaxed);
  // The invalidation before, the look at the hazards after: see executor.cpp.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  const std::uint32_t high = std::min(fabric_.header().qp_high.load(), kMaxQps);
  for (std::uint32_t i = kFirstQp; i < high; ++i) {
    const Hazard& hazard = fabric_.hazard(i);
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

void Hazards::wait_untaken(std::uint32_t srq) noexcept {
  const std::uint32_t high = std::min(fabric_.header().qp_high.load(), kMaxQps);
  for (std::uint32_t i = kFirstQp; i < high; ++i) {
    const QpRecord& q = fabric_.qp(i);
    constexpr std::uint32_t kOfSrq = 2;
    // What the record says of the receive stands since before `taken` does.
    for (int round = 0; q.taken.load(std::memory_order_acquire) == kOfSrq && q.taken_index == srq &&
                        q.taken_owner == fabric_.me();
         ++round) {
      if (waits_shortly(round)) continue;
      // What a dead one had taken must be put back before the record has another queue.
      if (round % 64 != 0 || executes(i)) continue;
      fabric_.reap(q.owner.load());
      break;
    }
  }
}

}  // namespace turnout::hca
