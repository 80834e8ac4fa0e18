// SPDX-License-Identifier: BSD-3-Clause
// Queue pairs: creation, modification, destruction, posting.
#include <pthread.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "hca/device/failed.h"
#include "hca/device/qp_state.h"
#include "hca/device/queue_pair.h"
#include "hca/device/rules.h"
#include "hca/virtual/engine.h"

namespace turnout::hca {
namespace {

// Copies what a request uses of its largest size.
void copy_request(SendWqe& to, const SendWqe& from) {
  constexpr std::size_t head = offsetof(SendWqe, sge);
  const std::size_t tail = from.is_inline ? from.length : from.num_sge * sizeof(ibv_sge);
  std::memcpy(static_cast<void*>(&to), static_cast<const void*>(&from), head + tail);
}

}  // namespace

VirtualQp* VirtualEngine::find_qp(std::uint32_t number) const noexcept {
  return number < qps_.size() ? qps_[number] : nullptr;
}

VirtualQp* VirtualEngine::real(Qp& qp) noexcept {
  return qp.kind == QpKind::xrc_tgt ? static_cast<TargetHandle&>(qp).target
                                    : static_cast<VirtualQp*>(&qp);
}

std::uint32_t VirtualEngine::new_qp_number() {
  constexpr std::size_t kRested = 1024;  // a number comes back as late as can be
  if (free_qps_.size() > kRested) {
    const std::uint32_t number = free_qps_.front();
    free_qps_.pop_front();
    return number;
  }
  if (qps_.size() > 0xffffff) return 0;
  qps_.push_back(nullptr);
  return static_cast<std::uint32_t>(qps_.size() - 1);
}

Qp* VirtualEngine::create_qp(Context& context, ibv_qp_init_attr_ex& asked,
                             const mlx5dv_qp_init_attr* dc) {
  const QpKind kind = kind_of(asked, dc);
  if (kind == QpKind::none || kind == QpKind::uc) return failed<Qp>(EOPNOTSUPP);
  ibv_qp_init_attr_ex attr = used_attributes(kind, asked);
  if (const int error = check_creation(kind, attr); error != 0) return failed<Qp>(error);
  charge(profile_.setup_create_qp);
  if (chance(profile_.fault_refuse)) return failed<Qp>(ENOMEM);
  const std::uint32_t number = new_qp_number();
  if (number == 0) return failed<Qp>(ENOMEM);
  ++statistics_.qps_created;
  ++statistics_.qps_alive;
  ibv_qp_cap& cap = attr.cap;
  if (!has_own_receives(kind, attr)) cap.max_recv_wr = cap.max_recv_sge = 0;
  asked.cap = cap;
  if (kind == QpKind::xrc_tgt) return create_target(context, attr, number);
  auto qp = std::make_unique<VirtualQp>();
  begin_qp(*qp, context, attr, kind, number, number);
  qp->process = context.process;
  qp->pd = reinterpret_cast<Pd*>(attr.pd)->number;
  qp->max_recv_wr = cap.max_recv_wr;
  qp->max_recv_sge = std::max(cap.max_recv_sge, 1U);
  qp->send_cq = static_cast<VirtualCq*>(reinterpret_cast<Cq*>(attr.send_cq));
  qp->recv_cq = static_cast<VirtualCq*>(reinterpret_cast<Cq*>(attr.recv_cq));
  if (kind != QpKind::dci) qp->srq = static_cast<VirtualSrq*>(reinterpret_cast<Srq*>(attr.srq));
  qp->dc_key = kind == QpKind::dct ? dc->dc_init_attr.dct_access_key : 0;
  qps_[number] = qp.get();
  return qp.release();
}

int VirtualEngine::modify_qp(Qp& base, const ibv_qp_attr& attr, int mask) {
  VirtualQp* const found = real(base);
  if (found == nullptr) return EINVAL;
  VirtualQp& qp = *found;
  const QpPhase from = qp.phase;
  QpPhase to = from;
  const char* why = "";
  if (check_modification(qp.kind, from, attr, mask, to, &why) != 0) return EINVAL;
  charge(profile_.setup_modify_qp);
  if (to == QpPhase::err) {
    if (from != QpPhase::err) fail(qp, QpPhase::err);
  } else if (to == QpPhase::reset) {
    drop_operations(qp);
    qp.receives.clear();
    forget_completions(qp.send_cq, qp.number);
    if (qp.recv_cq != qp.send_cq) forget_completions(qp.recv_cq, qp.number);
    qp.phase = QpPhase::reset;
    qp.posted = 0;
    qp.reclaimed.store(0, std::memory_order_relaxed);
    qp.attr = {};
    qp.broken = false;
    if (qp.kind == QpKind::dct) qp.verbs.qp_base.qp_num = 0;
  } else {
    remember_attributes(qp.attr, attr, mask);
    if ((mask & IBV_QP_RQ_PSN) != 0) expect_sequence(qp.sequence, attr.rq_psn);
    if (from == QpPhase::rtr && to == QpPhase::rts) begin_connection(qp, ++connections_);
    qp.phase = to;
    if (qp.kind == QpKind::dct && to == QpPhase::rtr) qp.verbs.qp_base.qp_num = qp.number;
    if (to == QpPhase::rts && from == QpPhase::sqd) start(qp);
  }
  base.verbs.qp_base.state = qp.verbs.qp_base.state = to_verbs(qp.phase);
  return 0;
}

int VirtualEngine::query_qp(Qp& base, ibv_qp_attr& attr, ibv_qp_init_attr& init) {
  const VirtualQp* const found = real(base);
  if (found == nullptr) return EINVAL;
  const VirtualQp& qp = *found;
  attr = qp.attr;
  attr.qp_state = attr.cur_qp_state = to_verbs(qp.phase);
  attr.cap = base.init.cap;
  attr.path_mig_state = IBV_MIG_MIGRATED;
  attr.sq_draining = qp.phase == QpPhase::sqd && !qp.operations.empty();
  init = base.init;
  return 0;
}

// The operations vanish without completions; events that still name them find nobody.
void VirtualEngine::drop_operations(VirtualQp& qp) {
  release_responder(qp);
  for (std::size_t i = 0; i < qp.operations.size(); ++i) {
    Operation* const operation = qp.operations[i];
    leave_responder(*operation);
    operation->qp = nullptr;
    if (operation->events == 0) free_operation(operation);
  }
  qp.operations.clear();
  qp.refused.clear();
  qp.started = 0;
  qp.connected = qp.unanswered = 0;
  qp.waits = false;
}

void VirtualEngine::forget_completions(VirtualCq* cq, std::uint32_t number) {
  if (cq == nullptr) return;
  for (std::size_t i = 0; i < cq->entries.size(); ++i) {
    if (cq->entries[i].qpn == number) cq->entries[i].dropped = true;
  }
}

void VirtualEngine::forget_qp(VirtualQp& qp) {
  drop_operations(qp);
  forget_completions(qp.send_cq, qp.number);
  if (qp.recv_cq != qp.send_cq) forget_completions(qp.recv_cq, qp.number);
  node_of(qp).contexts.forget(qp.number);
  qps_[qp.number] = nullptr;
  free_qps_.push_back(qp.number);
  --statistics_.qps_alive;
}

int VirtualEngine::destroy_qp(Qp& base) {
  for (std::size_t i = 0; i < async_.size(); ++i) {
    if (async_[i].read == &base.events_read) async_[i].context = nullptr;
  }
  if (base.kind == QpKind::xrc_tgt) {
    destroy_handle(static_cast<TargetHandle&>(base));
    return 0;
  }
  auto& qp = static_cast<VirtualQp&>(base);
  charge(profile_.setup_destroy_qp);
  forget_qp(qp);
  end_qp(qp);
  delete &qp;
  return 0;
}

int VirtualEngine::check(const Qp& base, const SendWqe& w) {
  if (base.kind == QpKind::xrc_tgt) return EINVAL;  // it never sends
  // No windows under the virtual clock.
  if (is_local(w.opcode) || w.opcode == IBV_WR_SEND_WITH_INV) return EOPNOTSUPP;
  const auto& qp = static_cast<const VirtualQp&>(base);
  return check_request(qp, qp.phase, w);
}

int VirtualEngine::send(Qp& base, SendWqe& wqe) {
  if (const int error = check(base, wqe); error != 0) return error;
  auto& qp = static_cast<VirtualQp&>(base);
  wqe.position = ++qp.posted;
  charge(profile_.processor_post + profile_.processor_doorbell +
         (qp.kind == QpKind::dci  ? profile_.processor_post_dc
          : qp.kind == QpKind::ud ? profile_.processor_post_ud
                                  : 0));
  Operation* const operation = new_operation();
  copy_request(operation->wqe, wqe);
  SendWqe& w = operation->wqe;
  operation->qp = &qp;
  operation->source = qp.number;
  operation->target = sends_to_one(qp.kind) ? qp.attr.dest_qp_num : w.dest_qpn;
  operation->xrc = qp.kind == QpKind::xrc_ini;
  operation->signalled = qp.signal_all || (w.flags & IBV_SEND_SIGNALED) != 0;
  const bool fetches = w.opcode == IBV_WR_RDMA_READ || is_atomic(w.opcode);
  std::uint64_t length = w.length;
  if (!w.is_inline) {
    length = 0;
    for (std::uint32_t i = 0; i < w.num_sge; ++i) {
      length += w.sge[i].length;
      if (w.sge[i].length > 0 &&
          find_region(w.sge[i].lkey, w.sge[i].addr, w.sge[i].length,
                      fetches ? unsigned{IBV_ACCESS_LOCAL_WRITE} : 0U) == nullptr) {
        operation->status = IBV_WC_LOC_PROT_ERR;
      }
    }
    w.length = static_cast<std::uint32_t>(length);
  }
  if (length > (qp.kind == QpKind::ud ? kMtu : kMaxMessage)) operation->status = IBV_WC_LOC_LEN_ERR;
  ++statistics_.operations;
  statistics_.bytes += length;
  qp.operations.push_back(operation);
  if (qp.phase == QpPhase::err || qp.phase == QpPhase::sqe) {
    fail(qp, qp.phase);
    return 0;
  }
  Picoseconds ready = process_time() + profile_.pcie_doorbell;
  if (!w.is_inline && !fetches && length > 0) ready += profile_.pcie_read;
  // The adapter takes the requests of a queue in their order.
  qp.last_ready = operation->ready = std::max(ready, qp.last_ready);
  note(Trace::Kind::post, qp, *operation, length);
  ++operation->events;
  schedule(operation->ready, kReady, operation);
  return 0;
}

}  // namespace turnout::hca
