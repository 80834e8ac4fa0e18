// SPDX-License-Identifier: BSD-3-Clause
#include "hca/virtual/responder.h"

#include <algorithm>
#include <cstring>

#include "hca/device/qp_state.h"
#include "hca/device/queue_pair.h"
#include "hca/device/rules.h"

namespace turnout::hca {

VirtualQp* Responder::target_of(const Operation& operation) noexcept {
  VirtualQp* const target = qps.find(operation.target);
  if (target == nullptr || !can_receive(target->phase)) return nullptr;
  // An XRC target outlives the process that created it.
  if (target->kind != QpKind::xrc_tgt && !processes[target->process].alive) return nullptr;
  if (operation.datagram) return target->kind == QpKind::ud ? target : nullptr;
  if (operation.qp == nullptr) return nullptr;
  if (operation.qp->kind == QpKind::dci) return target->kind == QpKind::dct ? target : nullptr;
  const QpKind kind = operation.xrc ? QpKind::xrc_tgt : QpKind::rc;
  const bool right = target->kind == kind && target->attr.dest_qp_num == operation.source;
  return right && in_sequence(*operation.qp, target->sequence) ? target : nullptr;
}

void Responder::arrive(Operation& operation) {
  VirtualQp* const qp = operation.qp;
  // Flushed with the others when the sender knows.
  if (qp != nullptr && qp->behind_failure(operation)) return;
  if (qp != nullptr && !qp->refused.empty() && qp->refused.front() != &operation) {
    operation.received = false;  // it is sent once more, behind the one refused
    qp->refused.push_back(&operation);
    return;
  }
  if (operation.lost) {  // nothing has arrived: its sender gives up
    qp->break_at(operation);
    operations.answer(operation, kernel.now());
    return;
  }
  if (operation.status != IBV_WC_SUCCESS) {  // a fault on its way
    refuse(operation, operation.status);
    return;
  }
  VirtualQp* const target = target_of(operation);
  if (target == nullptr) return no_answer(operation);
  Node& node = processes.node_of(*target);
  if (!operation.received) {
    const std::uint64_t bytes = is_fetch(operation.wqe.opcode) ? 0 : operation.wqe.length;
    const Stream in = network.receive(node, operation, bytes);
    if (in.tail > kernel.now()) {
      operations.schedule(in.tail, EventKind::arrive, operation);
      return;
    }
  }
  Picoseconds occupancy = profile.adapter_receive_rc;
  std::uint64_t context = target->number;
  if (operation.datagram) {
    occupancy = profile.adapter_receive_ud;
  } else if (qp->kind == QpKind::dci) {
    if (target->dc_key != operation.wqe.dc_key) {
      refuse(operation, IBV_WC_REM_ACCESS_ERR);
      return;
    }
    occupancy = profile.adapter_receive_dc;
    if (profile.cache_by_initiator != 0) context = AdapterContexts::kResponder | qp->number;
    if (!contexts.admit(node, *qp, operation)) {
      again(*qp, operation, 2 * network.hop(operation) + qp->nack_wait, EventKind::arrive);
      return;
    }
  }
  const std::uint8_t opcode = operation.wqe.opcode;
  const bool takes = is_send(opcode) || has_imm(opcode);
  if (operation.datagram && target->attr.qkey != operation.wqe.qkey) {  // IBTA 10.2.5: dropped
    operations.free(&operation);
    return;
  }
  // What names no SRQ of the target's domain is refused where it would land: in its turn.
  VirtualSrq* const srq = operation.xrc ? srqs.serving(operation, *target) : target->srq;
  const bool invalid = operation.xrc && srq == nullptr;
  if (takes && !invalid && !receives.take(*target, srq, operation)) {
    if (operation.datagram) {
      operations.free(&operation);
    } else {
      receiver_not_ready(*qp, *target, operation);
    }
    return;
  }
  if (qp != nullptr && !qp->refused.empty()) {  // it is the first of those, and through
    qp->refused.pop_front();
    qp->nack_wait = 0;
    // One after the other: what arrives at this very time keeps its place behind them.
    if (!qp->refused.empty()) {
      operations.schedule(kernel.now(), EventKind::arrive, *qp->refused.front());
    }
  }
  Picoseconds latency = 0;
  occupancy += contexts.cost(node, context, profile.cache_first_miss_receive, &latency);
  node.receive_free = std::max(kernel.now(), node.receive_free) + occupancy;
  Picoseconds done = node.receive_free + latency;
  if (takes && srq != nullptr) done += profile.adapter_shared_receive;
  trace.note_arrival(*target, operation);
  Picoseconds landing = done + profile.pcie_read;  // what is read there passes when it is read
  if (!is_fetch(opcode)) {
    const PacketTimes work = network.on_pcie(operation.wqe.length);
    const Stream written = node.memory_writes.pass({done - operation.spread, done}, work);
    done = written.tail - work.last;  // the adapter has taken it
    landing = written.tail + profile.pcie_write;
  }
  if (qp != nullptr) {  // what one queue pair sent takes effect in its order
    if (landing < qp->last_landing) {
      done += qp->last_landing - landing;
      landing = qp->last_landing;
    }
    qp->last_landing = landing;
  }
  if (is_write(opcode) && operation.wqe.length > 1 && kernel.chance(profile.fault_reorder)) {
    // The tail lands now, the head as if it had taken the way once more. What follows lands behind
    // both: a receive completed by it must find the whole write.
    operation.tail_first = true;
    operations.schedule(landing, EventKind::land, operation);
    const Picoseconds later = network.hop(operation);
    landing = qp->last_landing = landing + later;
    done += later;
    trace.note(Trace::Kind::fault, *qp, operation, operation.wqe.length);
  }
  operation.answer_at = done + profile.adapter_acknowledge + network.hop(operation);
  operations.schedule(landing, EventKind::land, operation);
}

void Responder::again(VirtualQp& qp, Operation& operation, Picoseconds wait, EventKind as) {
  if (qp.refused.empty()) qp.refused.push_back(&operation);
  operations.schedule(kernel.now() + wait, as, operation);
}

void Responder::receiver_not_ready(VirtualQp& qp, const VirtualQp& target, Operation& operation) {
  ++kernel.statistics().rnr_waits;
  context_of(qp.verbs.qp_base.context).rnr_retries.fetch_add(1, std::memory_order_relaxed);
  ++processes[srqs.receiver_of(operation, target)].rnr_waits;
  trace.note(Trace::Kind::rnr, qp, operation, 0);
  contexts.leave(operation);
  constexpr std::uint32_t kForEver = 7;
  if (qp.attr.rnr_retry != kForEver && operation.attempts++ >= qp.attr.rnr_retry) {
    refuse(operation, IBV_WC_RNR_RETRY_EXC_ERR);
    return;
  }
  const auto wait = static_cast<Picoseconds>(rnr_wait(target.attr.min_rnr_timer)) * kNanosecond;
  again(qp, operation, network.hop(operation) + wait, EventKind::resend);
}

void Responder::refuse(Operation& operation, ibv_wc_status status) {
  operation.qp->break_at(operation);
  operation.status = status;
  operations.answer(operation, kernel.now() + profile.adapter_acknowledge + network.hop(operation));
}

// Nobody is there: the sender's adapter tries until its retries are over (IBTA 9.7.6.1.3).
void Responder::no_answer(Operation& operation) {
  if (operation.datagram) return operations.free(&operation);  // it is lost
  VirtualQp& qp = *operation.qp;
  qp.break_at(operation);
  if (qp.attr.timeout == 0) return;  // for ever
  kernel.statistics().retransmissions += qp.attr.retry_cnt;
  operation.status = IBV_WC_RETRY_EXC_ERR;
  const auto wait = static_cast<Picoseconds>(ack_wait(qp.attr.timeout)) * kNanosecond;
  operations.answer(operation, kernel.now() + wait * (qp.attr.retry_cnt + 1));
}

void Responder::land(Operation& operation) {
  // Flushed when the sender knows; or answered already, when its tail was not placed.
  if (operation.qp != nullptr && operation.qp->behind_failure(operation)) {
    receives.put_back(operation);
    return;
  }
  if (operation.status != IBV_WC_SUCCESS) return;
  VirtualQp* const target = target_of(operation);
  if (target == nullptr) {  // it died with the data on the adapter
    receives.put_back(operation);
    return no_answer(operation);
  }
  const VirtualSrq* const xrc = operation.xrc ? srqs.serving(operation, *target) : nullptr;
  if (operation.xrc && xrc == nullptr) {  // IBTA A14: an invalid request, as a wrong opcode is
    receives.put_back(operation);
    refuse(operation, IBV_WC_REM_INV_REQ_ERR);
    fail_target(*target, IBV_EVENT_QP_REQ_ERR);
    return;
  }
  const std::uint8_t opcode = operation.wqe.opcode;
  Completion entry{};
  entry.wr_id = operation.receive.wr_id;
  entry.qpn = target->number;
  entry.src_qp = operation.source;
  entry.imm = operation.wqe.imm;
  entry.flags = has_imm(opcode) ? static_cast<std::uint8_t>(IBV_WC_WITH_IMM) : std::uint8_t{0};
  if (is_send(opcode)) {
    entry.opcode = IBV_WC_RECV;
    data.to_receive(operation, entry);
  } else if (!land_rdma(*target, xrc, operation)) {
    return;  // a read: its data are on the way back; a tail: the head is to come
  } else {
    entry.opcode = static_cast<std::uint8_t>(IBV_WC_RECV_RDMA_WITH_IMM);
    entry.byte_len = operation.wqe.length;
    if (operation.status != IBV_WC_SUCCESS) entry.status = IBV_WC_WR_FLUSH_ERR;
  }
  if (operation.took_receive) {
    operation.took_receive = false;
    completions.push(xrc != nullptr ? static_cast<VirtualCq*>(xrc->cq) : target->recv_cq, entry,
                     (operation.wqe.flags & IBV_SEND_SOLICITED) != 0);
  } else {
    processes.wake(xrc != nullptr ? xrc->process : target->process);
  }
  if (operation.datagram) {
    operations.free(&operation);
    return;
  }
  if (operation.status != IBV_WC_SUCCESS) {
    operation.qp->break_at(operation);
    // One of RC or XRC fails with the request (IBTA 9.9.3); a DCT serves others and survives.
    if (target->kind != QpKind::dct) {
      fail_target(*target, operation.status == IBV_WC_REM_INV_REQ_ERR ? IBV_EVENT_QP_REQ_ERR
                                                                      : IBV_EVENT_QP_ACCESS_ERR);
    }
  }
  // Of a write that nobody asks after no answer is needed here: RC's and XRC's only free an entry.
  if (sends_to_one(operation.qp->kind) && !operation.signalled &&
      operation.status == IBV_WC_SUCCESS) {
    operation.place = Operation::Place::answered;
    work_queues.settle(*operation.qp);
    return;
  }
  operations.answer(operation, operation.answer_at);
}

bool Responder::land_rdma(VirtualQp& target, const VirtualSrq* xrc, Operation& operation) {
  const SendWqe& w = operation.wqe;
  const std::uint32_t pd = xrc != nullptr ? xrc->pd : target.pd;
  const ProcessIndex process = xrc != nullptr ? xrc->process : target.process;
  const bool reads = w.opcode == IBV_WR_RDMA_READ;
  const unsigned right = reads                 ? unsigned{IBV_ACCESS_REMOTE_READ}
                         : is_atomic(w.opcode) ? unsigned{IBV_ACCESS_REMOTE_ATOMIC}
                                               : unsigned{IBV_ACCESS_REMOTE_WRITE};
  const Region* region = nullptr;
  if (w.length > 0) region = regions.find(w.rkey, w.remote, w.length, right);
  if ((target.attr.qp_access_flags & right) == 0) {  // IBTA 9.9.3: not set up for it
    operation.status = IBV_WC_REM_INV_REQ_ERR;
    return true;
  }
  if (w.length > 0 && (region == nullptr || region->pd != pd)) {
    operation.status = IBV_WC_REM_ACCESS_ERR;
    return true;
  }
  if (is_atomic(w.opcode) && (w.length != 8 || (w.remote & 7) != 0)) {
    operation.status = IBV_WC_REM_INV_REQ_ERR;
    return true;
  }
  auto* const at =
      region == nullptr
          ? nullptr
          : reinterpret_cast<std::uint8_t*>(region->address + (w.remote - region->iova));
  if (is_fetch(w.opcode)) {
    operation.copy.resize(w.length);
    if (w.length > 0) std::memcpy(operation.copy.data(), at, w.length);
    if (is_atomic(w.opcode)) {
      std::uint64_t value = 0;
      std::memcpy(&value, at, sizeof value);
      if (w.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
        value += w.compare_add;
      } else if (value == w.compare_add) {
        value = w.swap;
      }
      std::memcpy(at, &value, sizeof value);
      processes.wake(process);
    }
    const Stream back =
        network.travel(operation, target, operation.qp, kernel.now(), w.length, true);
    operations.schedule(back.head, EventKind::send_back, operation);
    return false;
  }
  const std::uint32_t half = w.length / 2;
  if (!operation.tail_first) {
    data.place(operation, at, 0, w.length);
  } else if (operation.tail_placed) {
    data.place(operation, at, 0, half);
  } else {
    operation.tail_placed = true;
    data.place(operation, at, half, w.length);
    processes.wake(process);
    return false;
  }
  return true;
}

void Responder::give_back(Operation& operation) {
  if (!operation.received) {
    // Into memory together with the completion, which tells of it.
    Node& node = processes.node_of(*operation.qp);
    const Stream in = network.receive(node, operation, operation.wqe.length);
    const Picoseconds there =
        node.memory_writes.pass(in, network.on_pcie(operation.wqe.length)).tail;
    if (there > kernel.now()) {
      operations.schedule(there, EventKind::send_back, operation);
      return;
    }
  }
  if (!data.copy_back(operation)) operation.status = IBV_WC_LOC_PROT_ERR;
  operations.answer(operation, kernel.now());
}

void Responder::fail_target(VirtualQp& target, ibv_event_type event) {
  if (target.phase != QpPhase::err) {
    events.raise_qp(target, event);
    work_queues.fail(target, QpPhase::err);
  } else {
    receives.flush(target);
  }
}

}  // namespace turnout::hca
