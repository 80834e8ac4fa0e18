// SPDX-License-Identifier: BSD-3-Clause
#include "hca/live/qps.h"

#include <algorithm>
#include <cerrno>
#include <memory>

#include "base/log.h"
#include "hca/device/common_objects.h"
#include "hca/device/qp_state.h"
#include "hca/device/queue_pair.h"
#include "hca/live/faults.h"
#include "hca/live/fork_guard.h"
#include "hca/live/mlx5_queues.h"
#include "hca/live/qp_numbers.h"

namespace turnout::hca {

Qp* LiveQueuePairs::create(Context& context, ibv_qp_init_attr_ex& attr,
                           const mlx5dv_qp_init_attr* dc) {
  if (const int error = refuse_child(context); error != 0) return failed(error);
  const QpKind kind = kind_of(attr, dc);
  if (kind == QpKind::none) {
    TURNOUT_LOG(hca, info, "ibv_create_qp failed: type {}: not one of RC, UC, UD, DCI, DCT and XRC",
                static_cast<int>(attr.qp_type));
    return failed(EOPNOTSUPP);
  }
  ibv_qp_init_attr_ex used = used_attributes(kind, attr);
  if (const int error = check_creation(kind, used); error != 0) return failed(error);
  Qp* const qp = kind == QpKind::xrc_tgt ? xrc.create_target(context, used)
                                         : create_own(context, used, kind, dc);
  if (qp != nullptr) attr.cap = used.cap;
  return qp;
}

Qp* LiveQueuePairs::create_own(Context& context, ibv_qp_init_attr_ex& attr, QpKind kind,
                               const mlx5dv_qp_init_attr* dc) {
  ibv_qp_cap& cap = attr.cap;
  const bool own_receives = has_own_receives(kind, attr);
  auto* pd = reinterpret_cast<Pd*>(attr.pd);
  auto* srq = kind == QpKind::dci ? nullptr : reinterpret_cast<Srq*>(attr.srq);
  std::unique_ptr<Qp> qp(new Qp{});

  const std::uint32_t index = numbers.reserve_index();
  if (index == kNone) return failed(ENOMEM);
  QpRecord& r = fabric.qp(index);
  r.kind = kind;
  r.min_rnr_timer = 0;
  r.access = 0;
  r.pd = pd->number;
  r.recv_cq = attr.recv_cq != nullptr ? cq_of(attr.recv_cq).index : kNone;
  r.send_cq = attr.send_cq != nullptr ? cq_of(attr.send_cq).index : kNone;
  r.srq = srq != nullptr ? srq->index : kNone;
  r.dest_qpn = kNone;
  r.qkey = 0;
  r.dc_key = kind == QpKind::dct ? dc->dc_init_attr.dct_access_key : 0;
  r.cookie = reinterpret_cast<std::uint64_t>(qp.get());
  r.async = context.async;
  r.taken.store(0, std::memory_order_relaxed);
  r.taken_cq = kNone;
  fabric.hazard(index).store(0, std::memory_order_relaxed);
  if (own_receives && cap.max_recv_wr > 0) {
    cap.max_recv_sge = std::max(cap.max_recv_sge, 1U);
    if (const int error = receives.create_queue(r.rq, cap.max_recv_wr, cap.max_recv_sge, pd->number,
                                                qp->own_ring);
        error != 0) {
      r.owner.store(0, std::memory_order_release);
      return failed(error);
    }
  } else {
    if (!own_receives) cap.max_recv_wr = cap.max_recv_sge = 0;
    receives.destroy_queue(r.rq, qp->own_ring);
  }
  const std::uint32_t number = std::uint32_t{r.salt} << 16 | index;
  r.identity.store(QpRecord::identity_of(number, QpPhase::reset), std::memory_order_release);

  begin_qp(*qp, context, attr, kind, index, number);
  if (kind == QpKind::dci && (dc->comp_mask & MLX5DV_QP_INIT_ATTR_MASK_DCI_STREAMS) != 0) {
    qp->streams.count = 1U << dc->dc_init_attr.dci_streams.log_num_concurent;
    qp->streams.errors_allowed = 1U << dc->dc_init_attr.dci_streams.log_num_errored;
  }
  qp->record = &r;
  qp->hazard = &fabric.hazard(index);
  objects.qps[index].store(qp.get(), std::memory_order_release);
  fork_guard_add(*qp);
  return qp.release();
}

void LiveQueuePairs::clear(Qp& qp, QpPhase from) noexcept {
  // No request has reached one that was never ready to receive, or that no kind sends to.
  const bool was_target = from != QpPhase::reset && from != QpPhase::init &&
                          qp.kind != QpKind::dci && qp.kind != QpKind::xrc_ini;
  if (was_target) hazards.wait_unused(0, qp.number, &qp);
  qp.queue.clear();
  qp.stalled.store(false, std::memory_order_release);
  qp.retry = {};
  send_queues.forget(qp);
  if (faults.active()) faults.forget(qp);
}

int LiveQueuePairs::modify(Qp& qp, const ibv_qp_attr& attr, int mask) {
  if (const int error = refuse_child(qp.verbs.qp_base.context); error != 0) return error;
  if (qp.kind == QpKind::xrc_tgt) return xrc.modify_target(qp, attr, mask);
  const std::lock_guard lock(qp.sq_lock);
  qp.latest_write = {};  // the target, and whether it may be reached, can change
  QpRecord& r = *qp.record;
  std::uint64_t identity = r.identity.load(std::memory_order_acquire);
  const auto from = QpRecord::phase_of(identity);
  QpPhase to = from;
  if (const int error = checked_phase(qp, from, attr, mask, to); error != 0) return error;
  if (to == QpPhase::err) {
    if (from != QpPhase::err) {
      while (QpRecord::phase_of(identity) != QpPhase::err &&
             !r.identity.compare_exchange_weak(identity,
                                               QpRecord::identity_of(qp.number, QpPhase::err))) {
      }
      hazards.wait_unused(0, qp.number, &qp);  // nothing may succeed behind the flush
      send_queues.fail(qp, QpPhase::err);
    }
  } else if (to == QpPhase::reset) {
    r.identity.store(QpRecord::identity_of(qp.number, QpPhase::reset), std::memory_order_seq_cst);
    clear(qp, from);
    {
      const SharedGuard guard(fabric, r.rq.lock);
      r.rq.head = r.rq.tail;
    }
    if (r.rq.mlx5 != 0) mlx5_queues.restart(qp);
    completions.drop(qp);
    qp.posted = 0;
    qp.reclaimed.store(0, std::memory_order_release);
    qp.attr = {};
    qp.streams.failed = 0;
    qp.reachable = false;
    r.dest_qpn = kNone;
    r.access = 0;
    r.qkey = 0;
    if (qp.kind == QpKind::dct) qp.verbs.qp_base.qp_num = 0;
  } else {
    remember_attributes(qp.attr, attr, mask);
    if ((mask & IBV_QP_ACCESS_FLAGS) != 0) r.access = attr.qp_access_flags;
    if ((mask & IBV_QP_QKEY) != 0) r.qkey = attr.qkey;
    if ((mask & IBV_QP_MIN_RNR_TIMER) != 0) r.min_rnr_timer = attr.min_rnr_timer;
    if ((mask & IBV_QP_DEST_QPN) != 0) r.dest_qpn = attr.dest_qp_num;
    if ((mask & IBV_QP_RQ_PSN) != 0) expect_sequence(r.sequence, attr.rq_psn);
    if (from == QpPhase::rtr && to == QpPhase::rts) {
      if (++r.connections == 0) ++r.connections;  // 0 is none
      begin_connection(qp, r.connections);
    }
    if ((mask & IBV_QP_AV) != 0) {
      qp.reachable = names_this_port(attr.ah_attr, context_of(qp.verbs.qp_base.context));
    }
    // A peer may have failed it meanwhile: then that stands.
    if (!r.identity.compare_exchange_strong(identity, QpRecord::identity_of(qp.number, to)))
      return EINVAL;
    if (qp.kind == QpKind::dct && to == QpPhase::rtr) qp.verbs.qp_base.qp_num = qp.number;
    if (to == QpPhase::rts && from == QpPhase::sqd) send_queues.progress(qp, Caller::program);
    if (to == QpPhase::sqd && from == QpPhase::rts && (mask & IBV_QP_EN_SQD_ASYNC_NOTIFY) != 0 &&
        attr.en_sqd_async_notify != 0 && qp.queue.empty()) {
      events.raise_qp(r, qp.number, IBV_EVENT_SQ_DRAINED);
    }
  }
  qp.verbs.qp_base.state = to_verbs(to);
  return 0;
}

int LiveQueuePairs::query(Qp& qp, ibv_qp_attr& attr, ibv_qp_init_attr& init) {
  if (const int error = refuse_child(qp.verbs.qp_base.context); error != 0) return error;
  const std::lock_guard lock(qp.sq_lock);
  if (qp.kind == QpKind::xrc_tgt) {
    const SharedGuard guard(fabric, qp.record->rq.lock);
    attr = qp.record->attr;
  } else {
    attr = qp.attr;
  }
  const auto phase = qp.record->phase();
  attr.qp_state = attr.cur_qp_state = to_verbs(phase);
  attr.cap = qp.init.cap;
  attr.path_mig_state = IBV_MIG_MIGRATED;
  attr.sq_draining = phase == QpPhase::sqd && !qp.queue.empty();
  qp.verbs.qp_base.state = attr.qp_state;
  init = qp.init;
  return 0;
}

int LiveQueuePairs::destroy(Qp& qp) {
  ibv_qp& v = qp.verbs.qp_base;
  if (const int error = refuse_child(v.context); error != 0) return error;
  if (qp.kind == QpKind::xrc_tgt) return xrc.destroy_target(qp);
  if (qp.attached.load() != 0) return EBUSY;  // as the kernel's uverbs
  QpRecord& r = *qp.record;
  fork_guard_remove(qp);
  mlx5_queues.detach(qp);
  qp.sq_lock.lock();
  const std::uint64_t identity =
      r.identity.exchange(static_cast<std::uint64_t>(QpPhase::free), std::memory_order_seq_cst);
  clear(qp, QpRecord::phase_of(identity));
  qp.sq_lock.unlock();
  receives.destroy_queue(r.rq, qp.own_ring);
  completions.drop(qp);
  std::uint32_t read = 0;
  {
    const std::lock_guard lock(objects.mutex);
    objects.qps[qp.index].store(nullptr, std::memory_order_release);
    read = qp.events_read;
  }
  wait_acknowledged(v, v.events_completed, read);
  ++r.salt;
  r.owner.store(0, std::memory_order_release);
  end_qp(qp);
  delete &qp;
  return 0;
}

}  // namespace turnout::hca
