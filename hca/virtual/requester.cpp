// SPDX-License-Identifier: BSD-3-Clause
#include "hca/virtual/requester.h"

#include <algorithm>

#include "hca/device/rules.h"

namespace turnout::hca {

void Requester::start(VirtualQp& qp) {
  while (qp.started < qp.operations.size()) {
    Operation& operation = *qp.operations[qp.started];
    if (operation.ready > kernel.now() || qp.phase != QpPhase::rts || qp.broken) return;
    if (operation.status != IBV_WC_SUCCESS) {  // found wrong when it was posted
      qp.break_at(operation);
      ++qp.started;
      operation.place = Operation::Place::answered;
      work_queues.settle(qp);
      return;
    }
    if (!depart(qp, operation)) return;
    ++qp.started;
  }
}

Stream Requester::leave(const VirtualQp& qp, Operation& operation, Picoseconds at) {
  const SendWqe& w = operation.wqe;
  return network.travel(operation, qp, qps.find(operation.target), at,
                        is_fetch(w.opcode) ? 0 : w.length, !w.is_inline);
}

void Requester::send_again(Operation& operation) {
  operations.schedule(leave(*operation.qp, operation, kernel.now()).head, EventKind::arrive,
                      operation);
}

bool Requester::depart(VirtualQp& qp, Operation& operation) {
  Node& node = processes.node_of(qp);
  Picoseconds occupancy = sends_to_one(qp.kind) ? profile.adapter_send_rc : profile.adapter_send_ud;
  Picoseconds latency = 0;
  if (qp.kind == QpKind::dci) {
    occupancy = profile.adapter_send_dc;
    const bool idle = qp.connected != 0 && qp.unanswered == 0 && profile.dc_idle > 0 &&
                      kernel.now() - qp.answered_at >= profile.dc_idle;
    if (idle) {  // closed meanwhile
      contexts.release(qp);
      qp.connected = 0;
    }
    if (profile.dc_serial != 0 && qp.connected != operation.target) {
      if (qp.waits) return false;
      if (qp.unanswered > 0) {
        qp.waits = true;
        return false;
      }
      const Picoseconds disconnected = qp.answered_at + profile.dc_disconnect;
      if (qp.connected != 0 && kernel.now() < disconnected) {
        qp.waits = true;
        kernel.schedule(disconnected, EventKind::restart, nullptr, qp.number);
        return false;
      }
      contexts.release(qp);
      qp.connected = operation.target;
      occupancy = profile.adapter_send_dc_switch;
      latency = profile.dc_connect;
      ++kernel.statistics().dc_connects;
      trace.note(Trace::Kind::connect, qp, operation.target, 0);
    }
    ++qp.unanswered;
  }
  occupancy += contexts.cost(node, qp.number, profile.cache_first_miss, &latency);
  node.send_free = std::max(kernel.now(), node.send_free) + occupancy;
  const Picoseconds leaves = node.send_free + latency;
  Picoseconds arrival = leave(qp, operation, leaves).head;
  const std::uint64_t bytes = operation.wqe.length;
  if (kernel.chance(profile.fault_delay) && profile.fault_delay_most > 0) {
    arrival += static_cast<Picoseconds>(kernel.random() %
                                        static_cast<std::uint64_t>(profile.fault_delay_most));
    trace.note(Trace::Kind::fault, qp, operation, bytes);
  }
  trace.note(Trace::Kind::depart, qp, operation, bytes);
  operation.place = Operation::Place::flying;
  if (qp.kind == QpKind::ud) {
    depart_datagram(qp, operation, arrival);
    return true;
  }
  // Told in its turn: what was sent before it is answered as ever.
  if (kernel.chance(profile.fault_qp_error) ||
      (sends_to_one(qp.kind) && kernel.chance(profile.fault_rc_error))) {
    operation.status = IBV_WC_RETRY_EXC_ERR;
  }
  const Picoseconds timeout = static_cast<Picoseconds>(ack_wait(qp.attr.timeout)) * kNanosecond;
  for (std::uint32_t sent = 0; !operation.lost && kernel.chance(profile.fault_loss);) {
    trace.note(Trace::Kind::fault, qp, operation, bytes);
    if (timeout == 0) {  // it waits for ever
      qp.break_at(operation);
      return true;
    }
    if (sent++ == qp.attr.retry_cnt) {  // IBTA 9.7.6.1.3
      operation.lost = true;
      operation.status = IBV_WC_RETRY_EXC_ERR;
      arrival = leaves + timeout * sent;  // of the last timeout, at this end
    } else {
      ++kernel.statistics().retransmissions;
      arrival += timeout;
    }
  }
  // What follows a delayed or lost packet waits for it.
  arrival = std::max(arrival, qp.last_arrival);
  qp.last_arrival = arrival + operation.spread + (operation.spread > 0 ? 1 : 0);
  operations.schedule(arrival, EventKind::arrive, operation);
  return true;
}

// A datagram travels by itself: its sender has completed when it has left.
void Requester::depart_datagram(VirtualQp& qp, Operation& operation, Picoseconds arrival) {
  const int copies = kernel.chance(profile.fault_loss)        ? 0
                     : kernel.chance(profile.fault_duplicate) ? 2
                                                              : 1;
  for (int i = 0; i < copies; ++i) {
    Operation* const flying = operations.create();
    flying->wqe.opcode = operation.wqe.opcode;
    flying->wqe.flags = operation.wqe.flags;
    flying->wqe.imm = operation.wqe.imm;
    flying->wqe.qkey = operation.wqe.qkey;
    flying->wqe.global = operation.wqe.global;
    flying->wqe.length = operation.wqe.length;
    flying->source = qp.number;
    flying->target = operation.target;
    flying->local = operation.local;
    flying->spread = operation.spread;
    flying->datagram = true;
    flying->copy.resize(operation.wqe.length);
    data.copy_from(operation, flying->copy);
    operations.schedule(arrival, EventKind::arrive, *flying);
  }
  operations.answer(operation, kernel.now());
}

}  // namespace turnout::hca
