// SPDX-License-Identifier: BSD-3-Clause
// QueuePairs: creation, modification, queries and destruction of queue pairs.
//
// A queue pair is its program's until destroy(). Each call takes the time that the profile says.
// Errors: null and errno, or an errno value. One thread.
#pragma once

#include <algorithm>
#include <cerrno>
#include <memory>

#include "hca/device/qp_state.h"
#include "hca/device/queue_pair.h"
#include "hca/device/rules.h"
#include "hca/virtual/requester.h"
#include "hca/virtual/xrc.h"

namespace turnout::hca {

class QueuePairs : EngineParts {
 public:
  explicit QueuePairs(const EngineParts& parts) : EngineParts(parts) {}

  // dc: null for a kind of InfiniBand's own. asked.cap becomes what was given.
  [[nodiscard]] Qp* create(Context& context, ibv_qp_init_attr_ex& asked,
                           const mlx5dv_qp_init_attr* dc) {
    const QpKind kind = kind_of(asked, dc);
    if (kind == QpKind::none || kind == QpKind::uc) return failed(EOPNOTSUPP);
    ibv_qp_init_attr_ex attr = used_attributes(kind, asked);
    if (const int error = check_creation(kind, attr); error != 0) return failed(error);
    processes.charge(profile.setup_create_qp);
    if (kernel.chance(profile.fault_refuse)) return failed(ENOMEM);
    const std::uint32_t number = qps.reserve();
    if (number == 0) return failed(ENOMEM);
    ++kernel.statistics().qps_created;
    ++kernel.statistics().qps_alive;
    ibv_qp_cap& cap = attr.cap;
    if (!has_own_receives(kind, attr)) cap.max_recv_wr = cap.max_recv_sge = 0;
    asked.cap = cap;
    if (kind == QpKind::xrc_tgt) return xrc.create_target(context, attr, number);
    auto qp = std::make_unique<VirtualQp>();
    begin_qp(*qp, context, attr, kind, number, number);
    qp->process = context.process;
    qp->pd = pd_of(attr.pd).number;
    qp->max_recv_wr = cap.max_recv_wr;
    qp->max_recv_sge = std::max(cap.max_recv_sge, 1U);
    qp->send_cq = static_cast<VirtualCq*>(reinterpret_cast<Cq*>(attr.send_cq));
    qp->recv_cq = static_cast<VirtualCq*>(reinterpret_cast<Cq*>(attr.recv_cq));
    if (kind != QpKind::dci) qp->srq = static_cast<VirtualSrq*>(reinterpret_cast<Srq*>(attr.srq));
    qp->dc_key = kind == QpKind::dct ? dc->dc_init_attr.dct_access_key : 0;
    qps[number] = qp.get();
    return qp.release();
  }
  [[nodiscard]] int modify(Qp& base, const ibv_qp_attr& attr, int mask) {
    VirtualQp* const found = real(base);
    if (found == nullptr) return EINVAL;
    VirtualQp& qp = *found;
    const QpPhase from = qp.phase;
    QpPhase to = from;
    const char* why = "";
    if (check_modification(qp.kind, from, attr, mask, to, &why) != 0) return EINVAL;
    processes.charge(profile.setup_modify_qp);
    if (to == QpPhase::err) {
      if (from != QpPhase::err) work_queues.fail(qp, QpPhase::err);
    } else if (to == QpPhase::reset) {
      work_queues.drop(qp);
      qp.receives.clear();
      Completions::forget(qp);
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
      if (to == QpPhase::rts && from == QpPhase::sqd) requester.start(qp);
    }
    base.verbs.qp_base.state = qp.verbs.qp_base.state = to_verbs(qp.phase);
    return 0;
  }
  [[nodiscard]] static int query(Qp& base, ibv_qp_attr& attr, ibv_qp_init_attr& init) {
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
  [[nodiscard]] int destroy(Qp& base) {
    events.forget(&base.events_read);
    if (base.kind == QpKind::xrc_tgt) {
      xrc.destroy_handle(static_cast<TargetHandle&>(base));
      return 0;
    }
    auto& qp = static_cast<VirtualQp&>(base);
    processes.charge(profile.setup_destroy_qp);
    work_queues.forget(qp);
    end_qp(qp);
    delete &qp;
    return 0;
  }

 private:
  // The queue pair of a handle; what is no handle is it itself. Null: it is nobody's any more.
  [[nodiscard]] static VirtualQp* real(Qp& qp) noexcept {
    return qp.kind == QpKind::xrc_tgt ? static_cast<TargetHandle&>(qp).target
                                      : static_cast<VirtualQp*>(&qp);
  }
  std::uint32_t connections_ = 0;  // made so far
};

}  // namespace turnout::hca
