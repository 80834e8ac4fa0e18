// SPDX-License-Identifier: BSD-3-Clause
// Back at the sender: answers, completions, errors and what they flush.
#include "hca/device/rules.h"
#include "hca/virtual/engine.h"

namespace turnout::hca {

CompletionEntry VirtualEngine::entry_of(const Operation& operation, ibv_wc_status status) {
  CompletionEntry entry;
  const SendWqe& w = operation.wqe;
  entry.wr_id = w.wr_id;
  entry.qpn = operation.source;
  entry.byte_len = w.opcode == IBV_WR_RDMA_READ || is_atomic(w.opcode) ? w.length : 0;
  entry.opcode = static_cast<std::uint8_t>(completion_opcode(w.opcode));
  entry.status = static_cast<std::uint8_t>(status);
  entry.sq_position = w.position;
  entry.send = true;
  return entry;
}

// The target's answer is at the sender's adapter.
void VirtualEngine::answered(Operation& operation) {
  VirtualQp& qp = *operation.qp;
  leave_responder(operation);
  if (qp.kind == QpKind::dci && qp.unanswered > 0 && --qp.unanswered == 0) {
    qp.answered_at = now_;
    if (qp.waits) schedule(now_ + profile_.dc_disconnect, kRestart, nullptr, qp.number);
  }
  operation.place = Operation::Place::answered;
  settle(qp);
}

// Requests of one queue complete in their order, whichever was answered first.
void VirtualEngine::settle(VirtualQp& qp) {
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
    ++operation.events;
    schedule(now_ + profile_.pcie_write, kComplete, &operation);
    if (operation.status != IBV_WC_SUCCESS) break;  // the others are flushed then
  }
  drop_done(qp);
}

void VirtualEngine::complete(Operation& operation) {
  VirtualQp& qp = *operation.qp;
  note(Trace::Kind::complete, qp, operation, operation.wqe.length);
  if (operation.status == IBV_WC_SUCCESS) {
    push(qp.send_cq, entry_of(operation, IBV_WC_SUCCESS), false);
    operation.place = Operation::Place::done;
    drop_done(qp);
    return;
  }
  push(qp.send_cq, entry_of(operation, operation.status), false);
  operation.place = Operation::Place::done;
  // A datagram queue pair only stops sending (IBTA 10.3.1: SQE); the others go to error whole.
  fail(qp, qp.kind == QpKind::ud ? QpPhase::sqe : QpPhase::err);
}

void VirtualEngine::drop_done(VirtualQp& qp) {
  while (!qp.operations.empty() && qp.operations.front()->place == Operation::Place::done) {
    Operation* const first = qp.operations.front();
    qp.operations.pop_front();
    if (qp.started > 0) --qp.started;
    first->qp = nullptr;
    if (first->events == 0) free_operation(first);
  }
}

// Everything not done ends with a flush entry, in order.
void VirtualEngine::fail(VirtualQp& qp, QpPhase to) {
  const bool fresh = qp.phase != QpPhase::err;
  if (fresh) qp.phase = to;
  qp.verbs.qp_base.state = qp.phase == QpPhase::sqe ? IBV_QPS_SQE : IBV_QPS_ERR;
  Fifo<Operation*> operations = std::move(qp.operations);
  qp.operations = Fifo<Operation*>();
  release_responder(qp);
  qp.refused.clear();
  qp.started = 0;
  qp.connected = qp.unanswered = 0;
  qp.waits = false;
  qp.broken = false;
  for (std::size_t i = 0; i < operations.size(); ++i) {
    Operation* const operation = operations[i];
    if (operation->place != Operation::Place::done) {
      push(qp.send_cq, entry_of(*operation, IBV_WC_WR_FLUSH_ERR), false);
    }
    leave_responder(*operation);
    operation->qp = nullptr;
    if (operation->events == 0) free_operation(operation);
  }
  if (to != QpPhase::err || !fresh) return;
  if (qp.srq == nullptr) {
    flush_receives(qp);
  } else if (qp.kind == QpKind::rc) {
    raise_qp(qp, IBV_EVENT_QP_LAST_WQE_REACHED);
  }
}

void VirtualEngine::flush_receives(VirtualQp& qp) {
  while (!qp.receives.empty()) {
    CompletionEntry entry;
    entry.wr_id = qp.receives.front().wr_id;
    entry.qpn = qp.number;
    entry.status = IBV_WC_WR_FLUSH_ERR;
    entry.opcode = IBV_WC_RECV;
    qp.receives.pop_front();
    push(qp.recv_cq, entry, false);
  }
}

void VirtualEngine::raise_qp(VirtualQp& qp, ibv_event_type type) {
  const auto tell = [&](Qp& whom) {
    ibv_async_event event{};
    event.event_type = type;
    event.element.qp = &whom.verbs.qp_base;
    raise(context_of(whom.verbs.qp_base.context), event, &whom.events_read);
  };
  if (qp.kind != QpKind::xrc_tgt) {
    tell(qp);
    return;
  }
  for (TargetHandle* handle : static_cast<VirtualTarget&>(qp).handles) tell(*handle);
}

}  // namespace turnout::hca
