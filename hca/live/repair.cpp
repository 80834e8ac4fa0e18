// SPDX-License-Identifier: BSD-3-Clause
#include "hca/live/repair.h"

namespace turnout::hca {

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

}  // namespace turnout::hca
