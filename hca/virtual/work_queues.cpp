// SPDX-License-Identifier: BSD-3-Clause
#include "hca/virtual/work_queues.h"

#include <cassert>
#include <utility>

#include "hca/device/queue_pair.h"

namespace turnout::hca {

void WorkQueues::answered(Operation& operation) {
  VirtualQp& qp = *operation.qp;
  contexts.leave(operation);
  if (qp.kind == QpKind::dci && qp.unanswered > 0 && --qp.unanswered == 0) {
    qp.answered_at = kernel.now();
    if (qp.waits)
      kernel.schedule(kernel.now() + profile.dc_disconnect, EventKind::restart, nullptr, qp.number);
  }
  operation.place = Operation::Place::answered;
  settle(qp);
}

// Requests of one queue complete in their order, whichever was answered first.
void WorkQueues::settle(VirtualQp& qp) {
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

void WorkQueues::complete(Operation& operation) {
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

void WorkQueues::drop_done(VirtualQp& qp) {
  while (!qp.operations.empty() && qp.operations.front()->place == Operation::Place::done) {
    Operation* const first = qp.operations.front();
    qp.operations.pop_front();
    if (qp.started > 0) --qp.started;
    let_go(*first);
  }
}

Fifo<Operation*> WorkQueues::take_operations(VirtualQp& qp) {
  contexts.release(qp);
  qp.refused.clear();
  qp.started = 0;
  qp.connected = qp.unanswered = 0;
  qp.waits = false;
  return std::exchange(qp.operations, {});
}

void WorkQueues::let_go(Operation& operation) {
  contexts.leave(operation);
  operation.qp = nullptr;
  if (operation.events == 0) operations.free(&operation);
}

void WorkQueues::fail(VirtualQp& qp, QpPhase to) {
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

void WorkQueues::drop(VirtualQp& qp) {
  Fifo<Operation*> dropped = take_operations(qp);
  for (std::size_t i = 0; i < dropped.size(); ++i) let_go(*dropped[i]);
}

void WorkQueues::forget(VirtualQp& qp) {
  drop(qp);
  Completions::forget(qp);
  processes.node_of(qp).contexts.forget(qp.number);
  qps[qp.number] = nullptr;
  qps.release(qp.number);
  --kernel.statistics().qps_alive;
}

}  // namespace turnout::hca
