// SPDX-License-Identifier: BSD-3-Clause
#include "hca/live/completions.h"

#include <fcntl.h>

#include <bit>
#include <cerrno>
#include <cstring>
#include <memory>

#include "hca/device/common_objects.h"
#include "hca/live/fork_guard.h"
#include "hca/live/idle_polls.h"
#include "hca/live/mlx5_queues.h"

namespace turnout::hca {

Cq* LiveCompletions::create(Context& context, const ibv_cq_init_attr_ex& attr) {
  if (const int error = refuse_child(context); error != 0) return failed(error);
  if (const int error = check_creation(attr); error != 0) return failed(error);
  const std::uint32_t slots = std::bit_ceil(attr.cqe);
  const std::uint64_t ring = fabric.allocate(slots * sizeof(Cqe));
  if (ring == 0) return failed(ENOMEM);
  auto cq = std::make_unique<Cq>();
  auto* channel = reinterpret_cast<Channel*>(attr.channel);
  std::uint32_t index = kNone;
  {
    const TableGuard guard(fabric);
    index =
        fabric.find_free(&Tables::cq, kMaxCqs, fabric.header().cq_high, slot_of(fabric.me()) * 16);
    if (index != kNone) {
      CqRecord& r = fabric.cq(index);
      const SharedGuard lock(fabric, r.lock);
      r.owner.store(fabric.me(), std::memory_order_release);
      ++r.generation;
      r.slots = slots;
      r.ring = ring;
      r.tail = r.head_seen = 0;
      r.head.store(0, std::memory_order_relaxed);
      r.pusher.store(0, std::memory_order_relaxed);
      r.has_channel = channel != nullptr;
      r.timestamps = (attr.wc_flags & (IBV_WC_EX_WITH_COMPLETION_TIMESTAMP |
                                       IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK)) != 0;
      r.cookie = reinterpret_cast<std::uint64_t>(cq.get());
      r.armed.store(Armed::no, std::memory_order_relaxed);
      r.overflowed.store(0, std::memory_order_relaxed);
      r.mlx5 = 0;
      r.channel = channel != nullptr ? channel->pipe : PipeRef{};
      r.async = context.async;
      r.phase.store(ObjectPhase::live, std::memory_order_release);
    }
  }
  if (index == kNone) {
    fabric.release(ring, slots * sizeof(Cqe));
    return failed(ENOMEM);
  }
  cq->index = index;
  cq->record = &fabric.cq(index);
  cq->own_ring = {ring, slots * sizeof(Cqe)};
  cq->ring = static_cast<Cqe*>(fabric.heap(ring, slots * sizeof(Cqe)));
  cq->mask = slots - 1;
  set_next(*cq);
  cq->single_threaded = (attr.comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS) != 0 &&
                        (attr.flags & IBV_CREATE_CQ_ATTR_SINGLE_THREADED) != 0;
  begin_cq(*cq, context, attr, slots);
  cq->verbs.handle = index;
  if (channel != nullptr) {
    // One record for each armed CQ may wait. Enlarged only when needed: a user's pipes are limited.
    const auto bytes = static_cast<int>(channel->users * sizeof(EventRecord));
    if (fcntl(channel->write, F_GETPIPE_SZ) < bytes) fcntl(channel->write, F_SETPIPE_SZ, 2 * bytes);
  }
  const std::lock_guard lock(objects.mutex);
  objects.cqs[index] = cq.get();
  return cq.release();
}

int LiveCompletions::resize(Cq& cq, int entries) {
  if (const int error = refuse_child(cq.verbs.context); error != 0) return error;
  if (entries <= 0 || static_cast<std::uint32_t>(entries) > kMaxCqe) return EINVAL;
  const std::uint64_t slots = std::bit_ceil(static_cast<std::uint32_t>(entries));
  const std::uint64_t ring = fabric.allocate(slots * sizeof(Cqe));
  if (ring == 0) return ENOMEM;
  auto* fresh = static_cast<Cqe*>(fabric.heap(ring, slots * sizeof(Cqe)));
  OwnRing old{};
  {
    const std::lock_guard poll(cq.poll_lock);
    CqRecord& r = *cq.record;
    const SharedGuard guard(fabric, r.lock);
    repair(fabric, r);
    std::uint64_t tail = r.tail;
    while (cq.ring[tail & cq.mask].sequence.load(std::memory_order_relaxed) == tail + 1) ++tail;
    r.tail = tail;
    if (tail - cq.head > slots) {
      old = {ring, slots * sizeof(Cqe)};  // does not fit: give the new one back
    } else {
      for (std::uint64_t p = cq.head; p < tail; ++p) {
        std::memcpy(static_cast<void*>(&fresh[p & (slots - 1)]), &cq.ring[p & cq.mask],
                    sizeof(Cqe));
      }
      old = cq.own_ring;
      cq.own_ring = {ring, slots * sizeof(Cqe)};
      r.ring = ring;
      r.slots = static_cast<std::uint32_t>(slots);
      cq.ring = fresh;
      cq.mask = slots - 1;
      set_next(cq);
      cq.verbs.cqe = static_cast<int>(slots);
    }
  }
  fabric.release(old.offset, old.bytes);
  return old.offset == ring ? EINVAL : 0;
}

int LiveCompletions::destroy(Cq& cq) {
  if (const int error = refuse_child(cq.verbs.context); error != 0) return error;
  if (cq.users.load() != 0) return EBUSY;
  std::uint32_t comp_read = 0, async_read = 0;
  {
    const std::lock_guard lock(objects.mutex);
    objects.cqs.erase(cq.index);  // from here on its events are not handed out any more
    comp_read = cq.comp_events_read;
    async_read = cq.async_events_read;
  }
  wait_acknowledged(cq.verbs, cq.verbs.comp_events_completed, comp_read);
  wait_acknowledged(cq.verbs, cq.verbs.async_events_completed, async_read);
  CqRecord& r = *cq.record;
  {
    const SharedGuard guard(fabric, r.lock);
    r.phase.store(ObjectPhase::free, std::memory_order_release);
    r.slots = 0;
  }
  fabric.release(cq.own_ring.offset, cq.own_ring.bytes);
  r.owner.store(0, std::memory_order_release);
  end_cq(cq);
  delete &cq;
  return 0;
}

bool LiveCompletions::push(std::uint32_t index, Token owner, const Completion& entry,
                           bool solicited, Qp* taker) noexcept {
  if (index >= kMaxCqs) return false;
  CqRecord& cq = fabric.cq(index);
  EventRecord event{};
  PipeRef pipe;
  {
    const SharedGuard guard(fabric, cq.lock);
    if (cq.phase.load(std::memory_order_relaxed) != ObjectPhase::live ||
        cq.owner.load(std::memory_order_relaxed) != owner) {
      return false;
    }
    const CompletionRing ring = fabric.ring(cq);
    if (ring.start == nullptr) return false;
    repair(fabric, cq);
    std::uint64_t tail = cq.tail;
    // A producer may have died between the entry and the index.
    while (ring.entry(tail).sequence.load(std::memory_order_relaxed) == tail + 1) ++tail;
    bool full = false;
    if (cq.mlx5 != 0) [[unlikely]] {
      full = mlx5_queues.is_full(index, cq, tail);
    } else if (tail - cq.head_seen > ring.mask) {
      cq.head_seen = cq.head.load(std::memory_order_acquire);
      full = tail - cq.head_seen > ring.mask;
    }
    if (full) {
      // IBTA 11.5.3: the entry is lost and the queue unusable.
      cq.tail = tail;
      cq.phase.store(ObjectPhase::error, std::memory_order_relaxed);
      cq.overflowed.store(1, std::memory_order_release);
      event = {cq.cookie, index, cq.generation, IBV_EVENT_CQ_ERR, kCqEvent};
      pipe = cq.async;
    }
    if (event.object == 0) {
      Cqe& slot = ring.entry(tail);
      if (taker != nullptr) {
        taker->record->entry_position = tail;
        cq.pusher.store(taker->index + 1, std::memory_order_release);
      }
      static_cast<Completion&>(slot) = entry;
      slot.solicited = solicited ? 1 : 0;
      if (cq.timestamps != 0) slot.timestamp = monotonic();
      slot.sequence.store(tail + 1, std::memory_order_release);
      cq.tail = tail + 1;
      if (taker != nullptr) {
        taker->record->taken.store(0, std::memory_order_release);
        cq.pusher.store(0, std::memory_order_release);
      }
      if (cq.mlx5 != 0) [[unlikely]]
        mlx5_queues.move_entries(index, cq);
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
  if (event.object != 0) events.raise(owner, pipe, event);
  return event.type != IBV_EVENT_CQ_ERR || event.object == 0;
}

bool LiveCompletions::take(Cq& cq, Completion& out) {
  for (;;) {
    const Cqe& slot = cq.ring[cq.head & cq.mask];
    if (slot.sequence.load(std::memory_order_acquire) != cq.head + 1) return false;
    out = slot;
    cq.record->head.store(++cq.head, std::memory_order_release);
    set_next(cq);
    idle_polls.found_work();
    if (out.dropped != 0) continue;
    if (out.send != 0) {
      Qp* qp = objects.qps[out.qpn & (kMaxQps - 1)].load(std::memory_order_acquire);
      if (qp != nullptr && qp->number == out.qpn) {
        qp->reclaimed.store(out.sq_position, std::memory_order_release);
      }
    }
    return true;
  }
}

int LiveCompletions::request_notify(Cq& cq, bool solicited_only) {
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

void LiveCompletions::drop(const Qp& qp) noexcept {
  for (ibv_cq* const queue : {qp.init.send_cq, qp.init.recv_cq}) {
    if (queue == nullptr) continue;
    Cq& cq = cq_of(queue);
    const std::lock_guard poll(cq.poll_lock);
    const SharedGuard guard(fabric, cq.record->lock);
    repair(fabric, *cq.record);
    if (cq.record->mlx5 != 0) {
      // Its library cleans the program's memory, behind this: nothing may come there later.
      mlx5_queues.move_entries(cq.index, *cq.record);
      continue;
    }
    for (std::uint64_t position = cq.head;; ++position) {
      Cqe& slot = cq.ring[position & cq.mask];
      if (slot.sequence.load(std::memory_order_acquire) != position + 1) break;
      if (slot.qpn == qp.number) slot.dropped = 1;
    }
  }
}

}  // namespace turnout::hca
