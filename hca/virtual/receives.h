// SPDX-License-Identifier: BSD-3-Clause
// Receives: posting to receive queues, taking from them, flushing them in error.
//
// The queues are parts of queue pairs and SRQs. A receive that was taken is its operation's. One
// thread.
#pragma once

#include <cerrno>
#include <utility>

#include "hca/device/queue_pair.h"
#include "hca/virtual/completions.h"
#include "hca/virtual/srqs.h"

namespace turnout::hca {

class Receives : EngineParts {
 public:
  explicit Receives(const EngineParts& parts) : EngineParts(parts) {}

  // 0, or errno with *bad; a queue in error completes what is posted at once.
  [[nodiscard]] int post(Qp& base, ibv_recv_wr* wr, ibv_recv_wr** bad) {
    if (base.kind == QpKind::xrc_tgt) {  // it has no receives of its own
      *bad = wr;
      return EINVAL;
    }
    auto& qp = static_cast<VirtualQp&>(base);
    processes.charge(profile.processor_post_receive);
    if (qp.phase == QpPhase::reset || qp.srq != nullptr || qp.max_recv_wr == 0) {
      *bad = wr;
      return EINVAL;
    }
    const int error = add(qp.receives, qp.max_recv_wr, qp.max_recv_sge, wr, bad);
    if (qp.phase == QpPhase::err) flush(qp);
    return error;
  }
  [[nodiscard]] int post_shared(Srq& base, ibv_recv_wr* wr, ibv_recv_wr** bad) {
    auto& srq = static_cast<VirtualSrq&>(base);
    processes.charge(profile.processor_post_receive);
    return add(srq.receives, srq.max_wr, srq.max_sge, wr, bad);
  }
  // srq: null: the queue pair's own receives. False: there is none.
  [[nodiscard]] bool take(VirtualQp& target, VirtualSrq* srq, Operation& operation) {
    Fifo<VirtualReceive>& queue = srq != nullptr ? srq->receives : target.receives;
    if (queue.empty()) return false;
    operation.receive = std::move(queue.front());
    operation.took_receive = true;
    queue.pop_front();
    if (srq != nullptr && srq->limit != 0 && queue.size() < srq->limit) {
      srq->limit = 0;  // one event, then armed anew by the owner
      events.raise_limit(*srq);
    }
    return true;
  }
  // The message will not come: its receive serves another, or is flushed with the others.
  void put_back(Operation& operation) {
    if (!operation.took_receive) return;
    operation.took_receive = false;
    if (operation.xrc) {  // whatever became of the target
      VirtualSrq* const srq = srqs.find(operation.wqe.srqn);
      if (srq != nullptr) srq->receives.push_back(std::move(operation.receive));
      return;
    }
    VirtualQp* const target = qps.find(operation.target);
    if (target == nullptr) return;
    if (target->srq != nullptr) {
      target->srq->receives.push_back(std::move(operation.receive));
      return;
    }
    // A queue pair that was reset has forgotten its receives.
    const bool forgotten =
        target->phase == QpPhase::reset ||
        (target->kind == QpKind::rc && target->attr.dest_qp_num != operation.source);
    if (forgotten) return;
    target->receives.push_back(std::move(operation.receive));
    if (target->phase == QpPhase::err) flush(*target);
  }
  void flush(VirtualQp& qp) {
    while (!qp.receives.empty()) {
      const Completion entry = flushed_receive(qp.receives.front().wr_id, qp.number, IBV_WC_RECV);
      qp.receives.pop_front();
      completions.push(qp.recv_cq, entry, false);
    }
  }

 private:
  // Adds the receives to a queue, up to the first that does not fit.
  [[nodiscard]] static int add(Fifo<VirtualReceive>& queue, std::uint32_t max_wr,
                               std::uint32_t max_sge, ibv_recv_wr* wr, ibv_recv_wr** bad) {
    for (; wr != nullptr; wr = wr->next) {
      int error = 0;
      if (wr->num_sge < 0 || static_cast<std::uint32_t>(wr->num_sge) > max_sge) error = EINVAL;
      if (queue.size() >= max_wr) error = ENOMEM;
      if (error != 0) {
        *bad = wr;
        return error;
      }
      VirtualReceive receive;
      receive.wr_id = wr->wr_id;
      receive.count = static_cast<std::uint32_t>(wr->num_sge);
      for (int i = 0; i < wr->num_sge; ++i) {
        receive.room += wr->sg_list[i].length;
        if (i == 0) {
          receive.first = wr->sg_list[0];
        } else {
          receive.more.push_back(wr->sg_list[i]);
        }
      }
      queue.push_back(std::move(receive));
    }
    return 0;
  }
};

}  // namespace turnout::hca
