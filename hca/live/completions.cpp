// SPDX-License-Identifier: BSD-3-Clause
// Completion queues: rings of whole entries, many producers under a lock, one consumer without.
#include <sched.h>

#include <cerrno>

#include "base/log.h"
#include "hca/live/engine.h"

namespace turnout::hca {

bool LiveEngine::push(std::uint32_t index, Token owner, const Cqe& entry, bool solicited,
                      Qp* taker) noexcept {
  if (index >= kMaxCqs) return false;
  CqRecord& cq = fabric_->cq(index);
  EventRecord event{};
  PipeRef pipe;
  {
    const SharedGuard guard(*fabric_, cq.lock);
    if (cq.phase.load(std::memory_order_relaxed) != ObjectPhase::live ||
        cq.owner.load(std::memory_order_relaxed) != owner) {
      return false;
    }
    const CompletionRing ring = fabric_->ring(cq);
    if (ring.start == nullptr) return false;
    fabric_->repair(cq);
    std::uint64_t tail = cq.tail;
    // A producer may have died between the entry and the index.
    while (ring.entry(tail).sequence.load(std::memory_order_relaxed) == tail + 1) ++tail;
    if (tail - cq.head_seen > ring.mask) {
      cq.head_seen = cq.head.load(std::memory_order_acquire);
      if (tail - cq.head_seen > ring.mask) {
        // IBTA 11.5.3: the entry is lost and the queue unusable.
        cq.tail = tail;
        cq.phase.store(ObjectPhase::error, std::memory_order_relaxed);
        cq.overflowed.store(1, std::memory_order_release);
        event = {cq.cookie, index, cq.generation, IBV_EVENT_CQ_ERR, kCqEvent};
        pipe = cq.async;
      }
    }
    if (event.object == 0) {
      Cqe& slot = ring.entry(tail);
      if (taker != nullptr) {
        taker->record->entry_position = tail;
        cq.pusher.store(taker->index + 1, std::memory_order_release);
      }
      slot.wr_id = entry.wr_id;
      slot.timestamp = cq.timestamps != 0 ? monotonic() : 0;
      slot.qpn = entry.qpn;
      slot.src_qp = entry.src_qp;
      slot.byte_len = entry.byte_len;
      slot.imm = entry.imm;
      slot.sq_position = entry.sq_position;
      slot.status = entry.status;
      slot.opcode = entry.opcode;
      slot.flags = entry.flags;
      slot.dropped = 0;
      slot.vendor_err = entry.vendor_err;
      slot.send = entry.send;
      slot.sequence.store(tail + 1, std::memory_order_release);
      cq.tail = tail + 1;
      if (taker != nullptr) {
        taker->record->taken.store(0, std::memory_order_release);
        cq.pusher.store(0, std::memory_order_release);
      }
      if (cq.has_channel != 0) {
        // The entry before the look at `armed`; the consumer arms before it looks for entries.
        std::atomic_thread_fence(std::memory_order_seq_cst);
        const Armed armed = cq.armed.load(std::memory_order_relaxed);
        if (armed == Armed::any ||
            (armed == Armed::solicited && (solicited || entry.status != IBV_WC_SUCCESS))) {
          cq.armed.store(Armed::no, std::memory_order_relaxed);
          event = {cq.cookie, index, cq.generation, kCompletion, kCqEvent};
          pipe = cq.channel;
        }
      }
    }
  }
  if (event.object != 0) raise(owner, pipe, event);
  return event.type != IBV_EVENT_CQ_ERR || event.object == 0;
}

bool LiveEngine::take(Cq& cq, Cqe& out) {
  for (;;) {
    Cqe& slot = cq.ring[cq.head & cq.mask];
    if (slot.sequence.load(std::memory_order_acquire) != cq.head + 1) return false;
    out.wr_id = slot.wr_id;
    out.timestamp = slot.timestamp;
    out.qpn = slot.qpn;
    out.src_qp = slot.src_qp;
    out.byte_len = slot.byte_len;
    out.imm = slot.imm;
    out.sq_position = slot.sq_position;
    out.status = slot.status;
    out.opcode = slot.opcode;
    out.flags = slot.flags;
    out.vendor_err = slot.vendor_err;
    const bool send = slot.send != 0, dropped = slot.dropped != 0;
    cq.record->head.store(++cq.head, std::memory_order_release);
    set_next(cq);
    cq.idle_polls.store(0, std::memory_order_relaxed);
    if (dropped) continue;
    if (send) {
      Qp* qp = qps_[out.qpn & (kMaxQps - 1)].load(std::memory_order_acquire);
      if (qp != nullptr && qp->number == out.qpn) {
        qp->reclaimed.store(out.sq_position, std::memory_order_release);
      }
    }
    return true;
  }
}

int LiveEngine::idle(Cq& cq) {
  // A real adapter works while its host polls. Here the peer needs a processor for that, and there
  // may be fewer of them than processes that poll: after some 20 us of it, let others run.
  constexpr std::uint32_t kPatience = 512, kBetween = 64;
  const std::uint32_t polls = cq.idle_polls.load(std::memory_order_relaxed) + 1;
  if (polls < kPatience) {
    cq.idle_polls.store(polls, std::memory_order_relaxed);
  } else {
    cq.idle_polls.store(kPatience - kBetween, std::memory_order_relaxed);
    sched_yield();
  }
  if (next_retry_.load(std::memory_order_relaxed) != UINT64_MAX) retry_due(false);
  return cq.record->overflowed.load(std::memory_order_acquire) != 0 ? -1 : 0;
}

int LiveEngine::request_notify(Cq& cq, bool solicited_only) {
  // "Any" holds until it fires; asking for solicited only does not weaken it.
  if (solicited_only) {
    Armed none = Armed::no;
    cq.record->armed.compare_exchange_strong(none, Armed::solicited, std::memory_order_seq_cst);
  } else {
    cq.record->armed.store(Armed::any, std::memory_order_seq_cst);
  }
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return 0;
}

void LiveEngine::drop_completions(Cq& cq, std::uint32_t number) noexcept {
  const std::lock_guard poll(cq.poll_lock);
  const SharedGuard guard(*fabric_, cq.record->lock);
  fabric_->repair(*cq.record);
  for (std::uint64_t position = cq.head;; ++position) {
    Cqe& slot = cq.ring[position & cq.mask];
    if (slot.sequence.load(std::memory_order_acquire) != position + 1) return;
    if (slot.qpn == number) slot.dropped = 1;
  }
}

}  // namespace turnout::hca
