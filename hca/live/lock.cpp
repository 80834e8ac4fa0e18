// SPDX-License-Identifier: BSD-3-Clause
// Locks in shared memory that survive the death of their holder.
//
// The word is the holder's token, so a waiter can tell a slow holder from a dead one and take the
// lock over. Everything guarded this way is written so that a holder's death between any two stores
// is harmless: first the entry, then the index that makes it count.
#include <sched.h>
#include <time.h>

#include "hca/live/fabric.h"

namespace turnout::hca {

void Fabric::lock_slow(Lock& l) const noexcept {
  // Spin for about the length of a section, then let the holder run, then sleep and look whether it
  // still lives. Sections take well under a microsecond; only a preempted holder is slower.
  constexpr int kSpins = 100, kYields = 50;
  std::uint64_t next_check = 0;
  for (int round = 0;; ++round) {
    std::uint32_t holder = l.owner.load(std::memory_order_relaxed);
    if (holder == 0) {
      if (l.owner.compare_exchange_weak(holder, me_, std::memory_order_acquire)) return;
      continue;
    }
    if (round < kSpins) {
      __builtin_ia32_pause();
      continue;
    }
    if (round < kSpins + kYields) {
      sched_yield();
      continue;
    }
    const std::uint64_t now = monotonic();
    if (next_check == 0) next_check = now + 1'000'000;
    if (now >= next_check) {
      next_check = now + 5'000'000;
      if (holder != me_ && !alive(holder) &&
          l.owner.compare_exchange_strong(holder, me_, std::memory_order_acquire)) {
        return;
      }
    }
    const timespec nap{0, 50'000};
    nanosleep(&nap, nullptr);
  }
}

void repair(const Tables& tables, ReceiveQueue& queue) noexcept {
  const std::uint32_t taker = *static_cast<volatile std::uint32_t*>(&queue.taker);
  if (taker == 0) return;
  if (taker - 1 < kMaxQps) {
    QpRecord& dead = tables.qp(taker - 1);
    // It noted what it takes and died before it advanced the queue: nothing was taken.
    if (dead.taken_position == queue.head) dead.taken.store(0, std::memory_order_release);
  }
  queue.taker = 0;
}

void repair(const Tables& tables, CqRecord& cq) noexcept {
  const std::uint32_t pusher = cq.pusher.load(std::memory_order_acquire);
  if (pusher == 0) return;
  const CompletionRing all = tables.ring(cq);
  if (pusher - 1 < kMaxQps && all.start != nullptr) {
    QpRecord& dead = tables.qp(pusher - 1);
    const std::uint64_t position = dead.entry_position;
    // It published the completion and died before it said so: the receive is done.
    if (all.entry(position).sequence.load(std::memory_order_acquire) == position + 1) {
      dead.taken.store(0, std::memory_order_release);
    }
  }
  cq.pusher.store(0, std::memory_order_release);
}

void repair(const ReceiveQueue& queue, Mlx5ReceiveRecord& record) noexcept {
  const std::uint32_t fetching = record.fetching;
  if (fetching == 0) return;
  // It died beside the one store that counts, the ring's tail.
  if (*static_cast<const volatile std::uint32_t*>(&queue.tail) == fetching) {
    record.fetched = record.becomes;
  }
  record.fetching = 0;
}

}  // namespace turnout::hca
