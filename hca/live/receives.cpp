// SPDX-License-Identifier: BSD-3-Clause
#include "hca/live/receives.h"

#include <bit>
#include <cerrno>

#include "base/log.h"
#include "hca/device/qp_state.h"
#include "hca/device/queue_pair.h"
#include "hca/live/mlx5_queues.h"

namespace turnout::hca {

int LiveReceives::create_queue(ReceiveQueue& queue, std::uint32_t max_wr, std::uint32_t max_sge,
                               std::uint32_t pd, OwnRing& own) noexcept {
  // One spare entry: what the reaper puts back finds room.
  const std::uint32_t slots = std::bit_ceil(max_wr + 1);
  const std::uint64_t bytes = slots * receive_stride(max_sge);
  const std::uint64_t ring = fabric.allocate(bytes);
  if (ring == 0) return ENOMEM;
  own = {ring, bytes};
  const SharedGuard guard(fabric, queue.lock);
  queue.ring = ring;
  queue.max_wr = max_wr;
  queue.max_sge = max_sge;
  queue.head = queue.tail = 0;
  queue.limit = 0;
  queue.pd = pd;
  queue.taker = 0;
  queue.mlx5 = 0;
  queue.slots = slots;
  return 0;
}

void LiveReceives::destroy_queue(ReceiveQueue& queue, const OwnRing& own) noexcept {
  {
    const SharedGuard guard(fabric, queue.lock);
    queue.slots = 0;
  }
  if (own.offset != 0) fabric.release(own.offset, own.bytes);
}

int LiveReceives::post(ReceiveQueue& queue, ibv_recv_wr* wr, ibv_recv_wr** bad) noexcept {
  const SharedGuard guard(fabric, queue.lock);
  const ReceiveRing ring = fabric.ring(queue);
  for (; wr != nullptr; wr = wr->next) {
    int error = 0;
    if (ring.start == nullptr || wr->num_sge < 0 ||
        static_cast<std::uint32_t>(wr->num_sge) > ring.max_sge) {
      error = EINVAL;
    } else if (queue.tail - queue.head >= queue.max_wr) {
      error = ENOMEM;
    }
    if (error != 0) {
      *bad = wr;
      return error;
    }
    ReceiveWqe* wqe = ring.entry(queue.tail);
    auto* sge = reinterpret_cast<ReceiveSge*>(wqe + 1);
    wqe->wr_id = wr->wr_id;
    wqe->num_sge = static_cast<std::uint32_t>(wr->num_sge);
    for (int i = 0; i < wr->num_sge; ++i) {
      sge[i] = {wr->sg_list[i].addr, wr->sg_list[i].length, wr->sg_list[i].lkey};
    }
    std::atomic_signal_fence(std::memory_order_release);  // the entry, then the index
    ++queue.tail;
  }
  return 0;
}

int LiveReceives::post_own(Qp& qp, ibv_recv_wr* wr, ibv_recv_wr** bad) {
  const QpPhase phase = qp.record->phase();
  if (phase == QpPhase::reset || qp.verbs.qp_base.srq != nullptr || qp.record->rq.slots == 0) {
    *bad = wr;
    return EINVAL;
  }
  const int error = post(qp.record->rq, wr, bad);
  // A queue in error completes what is posted at once; it may have become so meanwhile.
  if (qp.record->phase() == QpPhase::err) flush(*qp.record, qp.number);
  return error;
}

int LiveReceives::post_shared(Srq& srq, ibv_recv_wr* wr, ibv_recv_wr** bad) {
  return post(srq.record->rq, wr, bad);
}

Taken LiveReceives::take(Qp& qp, const RequestTarget& target, TakenReceive& out) noexcept {
  // The record of a dead owner is reused without waiting for us: what `target` says was copied from
  // it, now see that it was of the queue pair we mean.
  const std::uint32_t srq = target.srq;
  const auto same = [&] {
    return target.record->identity.load(std::memory_order_acquire) >> 8 == target.number;
  };
  out.cq = target.cq;
  out.owner = target.owner;
  std::atomic_thread_fence(std::memory_order_acquire);
  if (!same()) return Taken::gone;
  if (srq != kNone && srq >= kMaxSrqs) return Taken::damaged;
  ReceiveQueue& queue = srq == kNone ? target.record->rq : fabric.srq(srq).rq;
  EventRecord event{};
  PipeRef pipe;
  {
    const SharedGuard guard(fabric, queue.lock);
    repair(fabric, queue);
    if (!same() || (srq != kNone && fabric.srq(srq).owner.load() != out.owner)) return Taken::gone;
    // An XRC SRQ goes when it likes: the next attempt is refused.
    if (target.srq_name != 0 && fabric.srq(srq).name.load() != target.srq_name) return Taken::gone;
    if (queue.slots == 0) return Taken::empty;  // none, or being destroyed
    const ReceiveRing ring = fabric.ring(queue);
    if (ring.start == nullptr) return Taken::damaged;
    if (queue.mlx5 != 0 && (queue.head == queue.tail || queue.limit != 0)) [[unlikely]] {
      Mlx5ReceiveRecord& record =
          srq == kNone ? fabric.mlx5_qp(target.number & (kMaxQps - 1)) : fabric.mlx5_srq(srq);
      if (!mlx5_queues.fetch_beyond(queue.limit, queue, record, out.owner)) return Taken::damaged;
    }
    if (queue.head == queue.tail) return Taken::empty;
    const ReceiveWqe* wqe = ring.entry(queue.head);
    out.wr_id = wqe->wr_id;
    const std::uint32_t num_sge = *static_cast<const volatile std::uint32_t*>(&wqe->num_sge);
    out.num_sge = num_sge;
    out.pd = queue.pd;
    out.room = 0;
    if (num_sge > ring.max_sge) return Taken::damaged;
    const auto* sge = reinterpret_cast<const ReceiveSge*>(wqe + 1);
    QpRecord& mine = *qp.record;
    for (std::uint32_t i = 0; i < num_sge; ++i) {
      out.sge[i] = sge[i];
      out.room += out.sge[i].length;
      mine.taken_sge[i] = out.sge[i];
    }
    queue.taker = qp.index + 1;
    mine.taken_wr_id = out.wr_id;
    mine.taken_sges = out.num_sge;
    mine.taken_position = queue.head;
    mine.taken_owner.store(out.owner, std::memory_order_relaxed);
    mine.taken_index.store(srq == kNone ? target.number & (kMaxQps - 1) : srq,
                           std::memory_order_relaxed);
    mine.taken_cq = out.cq;
    // repair() relies on the order of these four; the processor keeps it, so must the compiler.
    mine.taken.store(srq == kNone ? 1 : 2, std::memory_order_release);
    std::atomic_signal_fence(std::memory_order_seq_cst);
    ++queue.head;
    std::atomic_signal_fence(std::memory_order_seq_cst);
    queue.taker = 0;
    if (queue.limit != 0 && queue.tail - queue.head < queue.limit) {
      queue.limit = 0;  // one event, then armed anew by the owner
      if (srq != kNone) {
        const SrqRecord& s = fabric.srq(srq);
        event = {s.cookie, srq, s.generation, IBV_EVENT_SRQ_LIMIT_REACHED, kSrqEvent};
        pipe = s.async;
      }
    }
  }
  if (event.object != 0) events.raise(out.owner, pipe, event);
  return Taken::yes;
}

void LiveReceives::flush(QpRecord& record, std::uint32_t number) noexcept {
  // Of an mlx5's program, which goes by their order: a peer that died with the receive before these
  // gives it back first.
  if (record.rq.mlx5 != 0) (void)fabric.reap_dead();
  flush_what_is_there(record, number);
}

void LiveReceives::flush_what_is_there(QpRecord& record, std::uint32_t number) noexcept {
  // The queue's lock is kept so that two flushers do not mix their order.
  const Token owner = record.owner.load(std::memory_order_relaxed);
  const SharedGuard guard(fabric, record.rq.lock);
  repair(fabric, record.rq);
  const ReceiveRing ring = fabric.ring(record.rq);
  if (ring.start == nullptr) return;
  // No more than there can be, whatever head and tail say.
  for (std::uint32_t n = 0; n <= ring.mask; ++n) {
    if (record.rq.head == record.rq.tail && record.rq.mlx5 != 0) {
      Mlx5ReceiveRecord& posted = fabric.mlx5_qp(number & (kMaxQps - 1));
      if (!mlx5_queues.fetch(record.rq, posted, owner)) return;
    }
    if (record.rq.head == record.rq.tail) return;
    const Completion done = flushed_receive(ring.entry(record.rq.head)->wr_id, number, IBV_WC_RECV);
    ++record.rq.head;
    if (!completions.push(record.recv_cq, owner, done, false, nullptr)) return;
  }
}

void LiveReceives::fail_target(QpRecord& target, std::uint32_t number,
                               ibv_event_type event) noexcept {
  std::uint64_t identity = target.identity.load(std::memory_order_acquire);
  const std::uint64_t failed = QpRecord::identity_of(number, QpPhase::err);
  do {
    if (identity >> 8 != number || !can_receive(QpRecord::phase_of(identity))) return;
  } while (!target.identity.compare_exchange_weak(identity, failed, std::memory_order_acq_rel));
  if (target.kind == QpKind::xrc_tgt) {
    events.raise_target(number, event);
    return;
  }
  events.raise_qp(target, number, event);
  if (target.srq != kNone) {
    events.raise_qp(target, number, IBV_EVENT_QP_LAST_WQE_REACHED);
  } else {
    flush(target, number);
  }
  fabric.wake(target.owner.load(std::memory_order_relaxed));  // to flush its send queue
}

}  // namespace turnout::hca
