// SPDX-License-Identifier: BSD-3-Clause
// WorkQueues: the requests of a queue pair from the answer to their end: completion in order,
// errors and what they flush.
//
// Owns nothing: the queues are parts of the queue pairs. One thread.
#pragma once

#include <cassert>
#include <utility>

#include "hca/device/queue_pair.h"
#include "hca/virtual/adapter_contexts.h"
#include "hca/virtual/data_mover.h"
#include "hca/virtual/network.h"
#include "hca/virtual/operations.h"
#include "hca/virtual/receives.h"

namespace turnout::hca {

class WorkQueues : EngineParts {
 public:
  explicit WorkQueues(const EngineParts& parts) : EngineParts(parts) {}

  // The target's answer is at the sender's adapter.
  void answered(Operation& operation) {
    VirtualQp& qp = *operation.qp;
    contexts.leave(operation);
    if (qp.kind == QpKind::dci && qp.unanswered > 0 && --qp.unanswered == 0) {
      qp.answered_at = kernel.now();
      if (qp.waits)
        kernel.schedule(kernel.now() + profile.dc_disconnect, EventKind::restart, nullptr,
                        qp.number);
    }
    operation.place = Operation::Place::answered;
    settle(qp);
  }
  // Schedules the completion of what is answered, in order.
  void settle(VirtualQp& qp) {
    for (std::size_t i = 0; i < qp.operations.size(); ++i) {
      Operation& operation = *qp.operations[i];
      if (operation.place == Operation::Place::completing ||
          operation.place == Operation::Place::done) {
        continue;
      }
      if (operation.place != Operation::Place::answered) break;
      if (operation.status == IBV_WC_SUCCESS && !operation.signalled) {
        operation.place = Operation::Place::done;
        continue;
      }
      operation.place = Operation::Place::completing;
      operations.schedule(kernel.now() + profile.pcie_write, EventKind::complete, operation);
      if (operation.status != IBV_WC_SUCCESS) break;  // the others are flushed then
    }
    drop_done(qp);
  }
  void complete(Operation& operation) {
    assert(operation.place == Operation::Place::completing);
    VirtualQp& qp = *operation.qp;
    trace.note(Trace::Kind::complete, qp, operation, operation.wqe.length);
    completions.push(qp.send_cq, completion_of(operation.wqe, qp.number, operation.status), false);
    operation.place = Operation::Place::done;
    if (operation.status == IBV_WC_SUCCESS) {
      drop_done(qp);
      return;
    }
    // A datagram queue pair only stops sending (IBTA 10.3.1: SQE); the others go to error whole.
    fail(qp, qp.kind == QpKind::ud ? QpPhase::sqe : QpPhase::err);
  }
  // To `to` (sqe, err): everything not done ends with a flush entry.
  void fail(VirtualQp& qp, QpPhase to) {
    const bool fresh = qp.phase != QpPhase::err;
    if (fresh) qp.phase = to;
    qp.verbs.qp_base.state = qp.phase == QpPhase::sqe ? IBV_QPS_SQE : IBV_QPS_ERR;
    qp.broken = false;
    Fifo<Operation*> dropped = take_operations(qp);
    for (std::size_t i = 0; i < dropped.size(); ++i) {
      Operation& operation = *dropped[i];
      if (operation.place != Operation::Place::done) {
        completions.push(qp.send_cq, completion_of(operation.wqe, qp.number, IBV_WC_WR_FLUSH_ERR),
                         false);
      }
      let_go(operation);
    }
    if (to != QpPhase::err || !fresh) return;
    if (qp.srq == nullptr) {
      receives.flush(qp);
    } else if (qp.kind == QpKind::rc) {
      events.raise_qp(qp, IBV_EVENT_QP_LAST_WQE_REACHED);
    }
  }
  // The operations vanish without completions; events that still name them find nobody.
  void drop(VirtualQp& qp) {
    Fifo<Operation*> dropped = take_operations(qp);
    for (std::size_t i = 0; i < dropped.size(); ++i) let_go(*dropped[i]);
  }
  // Of a queue pair that no program can reach: as far as the adapter has it.
  void forget(VirtualQp& qp) {
    drop(qp);
    Completions::forget(qp);
    processes.node_of(qp).contexts.forget(qp.number);
    qps[qp.number] = nullptr;
    qps.release(qp.number);
    --kernel.statistics().qps_alive;
  }

 private:
  void drop_done(VirtualQp& qp) {
    while (!qp.operations.empty() && qp.operations.front()->place == Operation::Place::done) {
      Operation* const first = qp.operations.front();
      qp.operations.pop_front();
      if (qp.started > 0) --qp.started;
      let_go(*first);
    }
  }
  // All operations of the queue pair, which begins anew.
  [[nodiscard]] Fifo<Operation*> take_operations(VirtualQp& qp) {
    contexts.release(qp);
    qp.refused.clear();
    qp.started = 0;
    qp.connected = qp.unanswered = 0;
    qp.waits = false;
    return std::exchange(qp.operations, {});
  }
  // The queue pair has nothing to do with it any more; the last event that names it frees it.
  void let_go(Operation& operation) {
    contexts.leave(operation);
    operation.qp = nullptr;
    if (operation.events == 0) operations.free(&operation);
  }
};

}  // namespace turnout::hca
