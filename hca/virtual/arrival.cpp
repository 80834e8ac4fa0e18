// SPDX-License-Identifier: BSD-3-Clause
// The target's adapter: its port, finding the queue pair, its receive, its memory; moving the data.
//
// A request that is refused for now (no receive: RNR; no DC context: NACK)
// comes again later, and what arrives behind it waits: order is kept. A target
// that is not there answers nothing, and the sender gives up when its retries
// are over.
#include <algorithm>
#include <cstring>

#include "hca/device/qp_state.h"
#include "hca/device/queue_pair.h"
#include "hca/device/rules.h"
#include "hca/virtual/engine.h"

namespace turnout::hca {

VirtualQp* VirtualEngine::target_of(const Operation& operation) noexcept {
  VirtualQp* const target = find_qp(operation.target);
  if (target == nullptr || !can_receive(target->phase)) return nullptr;
  // An XRC target outlives the process that created it.
  if (target->kind != QpKind::xrc_tgt && !processes_[target->process].alive) return nullptr;
  if (operation.datagram) return target->kind == QpKind::ud ? target : nullptr;
  if (operation.qp == nullptr) return nullptr;
  if (operation.qp->kind == QpKind::dci) return target->kind == QpKind::dct ? target : nullptr;
  const QpKind kind = operation.xrc ? QpKind::xrc_tgt : QpKind::rc;
  const bool right = target->kind == kind && target->attr.dest_qp_num == operation.source;
  return right && in_sequence(*operation.qp, target->sequence) ? target : nullptr;
}

void VirtualEngine::arrive(Operation& operation) {
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
    operation.answer_at = now_;
    answer(operation);
    return;
  }
  if (operation.status != IBV_WC_SUCCESS) {  // a fault on its way
    refuse(operation, operation.status);
    return;
  }
  VirtualQp* const target = target_of(operation);
  if (target == nullptr) {
    if (operation.datagram) {
      free_operation(&operation);
    } else {
      no_answer(operation);
    }
    return;
  }
  Node& node = node_of(*target);
  if (!operation.received) {
    const bool fetches =
        operation.wqe.opcode == IBV_WR_RDMA_READ || is_atomic(operation.wqe.opcode);
    const Stream in = receive(node, operation, fetches ? 0 : operation.wqe.length);
    if (in.tail > now_) {
      ++operation.events;
      schedule(in.tail, kArrive, &operation);
      return;
    }
  }
  Picoseconds occupancy = profile_.adapter_receive_rc;
  std::uint64_t context = target->number;
  if (operation.datagram) {
    occupancy = profile_.adapter_receive_ud;
  } else if (qp->kind == QpKind::dci) {
    if (target->dc_key != operation.wqe.dc_key) {
      refuse(operation, IBV_WC_REM_ACCESS_ERR);
      return;
    }
    occupancy = profile_.adapter_receive_dc;
    if (profile_.cache_by_initiator != 0) context = kResponder | qp->number;
    if (!admit(node, *qp, operation)) return;
  }
  const std::uint8_t opcode = operation.wqe.opcode;
  const bool receives = is_send(opcode) || has_imm(opcode);
  if (operation.datagram && target->attr.qkey != operation.wqe.qkey) {  // IBTA 10.2.5: dropped
    free_operation(&operation);
    return;
  }
  // What names no SRQ of the target's domain is refused where it would land: in its turn.
  VirtualSrq* const srq = operation.xrc ? srq_of(operation, *target) : target->srq;
  const bool invalid = operation.xrc && srq == nullptr;
  if (receives && !invalid && !take_receive(*target, srq, operation)) {
    if (operation.datagram) {
      free_operation(&operation);
    } else {
      receiver_not_ready(*qp, *target, operation);
    }
    return;
  }
  if (qp != nullptr && !qp->refused.empty()) {  // it is the first of those, and through
    qp->refused.pop_front();
    qp->nack_wait = 0;
    // One after the other: what arrives at this very time keeps its place
    // behind them.
    if (!qp->refused.empty()) {
      ++qp->refused.front()->events;
      schedule(now_, kArrive, qp->refused.front());
    }
  }
  Picoseconds latency = 0;
  occupancy += context_cost(node, context, profile_.cache_first_miss_receive, &latency);
  node.receive_free = std::max(now_, node.receive_free) + occupancy;
  Picoseconds done = node.receive_free + latency;
  if (receives && srq != nullptr) done += profile_.adapter_shared_receive;
  note_arrival(*target, operation);
  const bool reads = opcode == IBV_WR_RDMA_READ || is_atomic(opcode);
  Picoseconds landing = done + profile_.pcie_read;  // what is read there passes when it is read
  if (!reads) {
    const PacketTimes data = on_pcie(operation.wqe.length);
    const Stream written = node.memory_writes.pass({done - operation.spread, done}, data);
    done = written.tail - data.last;  // the adapter has taken it
    landing = written.tail + profile_.pcie_write;
  }
  if (qp != nullptr) {  // what one queue pair sent takes effect in its order
    if (landing < qp->last_landing) {
      done += qp->last_landing - landing;
      landing = qp->last_landing;
    }
    qp->last_landing = landing;
  }
  if (is_write(opcode) && operation.wqe.length > 1 && chance(profile_.fault_reorder)) {
    // The tail lands now, the head as if it had taken the way once more. What
    // follows lands behind both: a receive completed by it must find the whole
    // write.
    operation.tail_first = true;
    ++operation.events;
    schedule(landing, kLand, &operation);
    const Picoseconds later = hop(operation);
    landing = qp->last_landing = landing + later;
    done += later;
    note(Trace::Kind::fault, *qp, operation, operation.wqe.length);
  }
  operation.answer_at = done + profile_.adapter_acknowledge + hop(operation);
  ++operation.events;
  schedule(landing, kLand, &operation);
}

Stream VirtualEngine::receive(Node& node, Operation& operation, std::uint64_t bytes) noexcept {
  operation.received = true;
  Stream in{now_, now_ + operation.spread};
  if (!operation.local) in = node.link_in.cut_through(in, on_wire(bytes));
  operation.spread = in.tail - in.head;
  return in;
}

// A context for the initiator at the target's adapter; false: refused for now.
bool VirtualEngine::admit(Node& node, VirtualQp& qp, Operation& operation) {
  auto found = node.responders.find(qp.number);
  if (found == node.responders.end()) {
    const auto limit = static_cast<std::size_t>(profile_.dc_responder_contexts);
    bool room = limit == 0 || node.responders.size() < limit;
    if (!room) {  // one whose initiator waits for nothing is given up
      for (auto idle = node.responders.begin(); idle != node.responders.end(); ++idle) {
        if (idle->second != 0) continue;
        node.contexts.forget(kResponder | idle->first);
        node.responders.erase(idle);
        room = true;
        break;
      }
    }
    if (!room || chance(profile_.fault_nack)) {
      ++statistics_.dc_nacks;
      note(Trace::Kind::nack, qp, operation.target, 0);
      qp.nack_wait = qp.nack_wait == 0 ? profile_.dc_nack_wait : qp.nack_wait * 2;
      if (profile_.dc_nack_wait_most > 0) {
        qp.nack_wait = std::min(qp.nack_wait, profile_.dc_nack_wait_most);
      }
      again(qp, operation, 2 * hop(operation) + qp.nack_wait, kArrive);
      return false;
    }
    found = node.responders.emplace(qp.number, 0).first;
    // Made here by the connect, not fetched.
    if (profile_.cache_by_initiator != 0) (void)node.contexts.use(kResponder | qp.number);
  }
  ++found->second;
  operation.at_responder = true;
  return true;
}

void VirtualEngine::leave_responder(Operation& operation) {
  if (!operation.at_responder) return;
  operation.at_responder = false;
  const VirtualQp* const target = find_qp(operation.target);
  if (target == nullptr) return;
  Node& node = node_of(*target);
  const auto found = node.responders.find(operation.source);
  if (found != node.responders.end() && found->second > 0) --found->second;
}

// The request comes again, or is sent again (RNR), after the wait; what follows waits behind it.
void VirtualEngine::again(VirtualQp& qp, Operation& operation, Picoseconds wait, Kind as) {
  if (qp.refused.empty()) qp.refused.push_back(&operation);
  ++operation.events;
  schedule(now_ + wait, as, &operation);
}

void VirtualEngine::receiver_not_ready(VirtualQp& qp, const VirtualQp& target,
                                       Operation& operation) {
  ++statistics_.rnr_waits;
  context_of(qp.verbs.qp_base.context).rnr_retries.fetch_add(1, std::memory_order_relaxed);
  ++processes_[receiver_of(operation, target)].rnr_waits;
  note(Trace::Kind::rnr, qp, operation, 0);
  leave_responder(operation);
  constexpr std::uint32_t kForEver = 7;
  if (qp.attr.rnr_retry != kForEver && operation.attempts++ >= qp.attr.rnr_retry) {
    refuse(operation, IBV_WC_RNR_RETRY_EXC_ERR);
    return;
  }
  const auto wait = static_cast<Picoseconds>(rnr_wait(target.attr.min_rnr_timer)) * kNanosecond;
  again(qp, operation, hop(operation) + wait, kResend);
}

// The target says no: nothing behind this request is executed.
void VirtualEngine::refuse(Operation& operation, ibv_wc_status status) {
  operation.qp->break_at(operation);
  operation.status = status;
  operation.answer_at = now_ + profile_.adapter_acknowledge + hop(operation);
  answer(operation);
}

// Nobody is there: the sender's adapter tries until its retries are over
// (IBTA 9.7.6.1.3).
void VirtualEngine::no_answer(Operation& operation) {
  VirtualQp& qp = *operation.qp;
  qp.break_at(operation);
  if (qp.attr.timeout == 0) return;  // for ever
  statistics_.retransmissions += qp.attr.retry_cnt;
  operation.status = IBV_WC_RETRY_EXC_ERR;
  operation.answer_at = now_ + static_cast<Picoseconds>(ack_wait(qp.attr.timeout)) * kNanosecond *
                                   (qp.attr.retry_cnt + 1);
  answer(operation);
}

Picoseconds VirtualEngine::hop(const Operation& operation) const noexcept {
  const VirtualQp* const from = find_qp(operation.source);
  return from != nullptr && near(*from, find_qp(operation.target)) ? profile_.wire_loopback
                                                                   : profile_.wire_hop;
}

bool VirtualEngine::take_receive(VirtualQp& target, VirtualSrq* srq, Operation& operation) {
  Fifo<VirtualReceive>& queue = srq != nullptr ? srq->receives : target.receives;
  if (queue.empty()) return false;
  operation.receive = std::move(queue.front());
  operation.took_receive = true;
  queue.pop_front();
  if (srq != nullptr && srq->limit != 0 && queue.size() < srq->limit) {
    srq->limit = 0;  // one event, then armed anew by the owner
    raise_limit(*srq);
  }
  return true;
}

// The message will not come: its receive serves another, or is flushed with the
// others.
void VirtualEngine::return_receive(Operation& operation) {
  if (!operation.took_receive) return;
  operation.took_receive = false;
  if (operation.xrc) {  // whatever became of the target
    VirtualSrq* const srq = find_srq(operation.wqe.srqn);
    if (srq != nullptr) srq->receives.push_back(std::move(operation.receive));
    return;
  }
  VirtualQp* const target = find_qp(operation.target);
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
  if (target->phase == QpPhase::err) flush_receives(*target);
}

// Where the sender's data lie, into spans_. Checked when the request was
// posted.
void VirtualEngine::gather(const Operation& operation) {
  spans_.clear();
  if (operation.datagram) {
    spans_.push_back({const_cast<std::uint8_t*>(operation.copy.data()), operation.copy.size()});
  } else if (operation.wqe.is_inline) {
    spans_.push_back({const_cast<std::uint8_t*>(operation.wqe.data), operation.wqe.length});
  } else {
    for (std::uint32_t i = 0; i < operation.wqe.num_sge; ++i) {
      const ibv_sge& sge = operation.wqe.sge[i];
      const Region* const region = find_region(sge.lkey, sge.addr, sge.length, 0);
      if (sge.length == 0) continue;
      // A region deregistered meanwhile leaves its memory to its owner: its part is left out.
      static std::uint8_t nothing[1];
      if (region == nullptr) {
        spans_.push_back({nothing, 0});
      } else {
        spans_.push_back(
            {reinterpret_cast<std::uint8_t*>(region->address + (sge.addr - region->iova)),
             sge.length});
      }
    }
  }
}

void VirtualEngine::copy_to_receive(Operation& operation, CompletionEntry& entry) {
  const VirtualReceive& receive = operation.receive;
  std::uint8_t grh[kGrhBytes] = {};
  gather(operation);
  if (operation.datagram) spans_.insert(spans_.begin(), Span{grh, sizeof grh});
  std::uint64_t total = 0;
  for (const Span& span : spans_) total += span.length;
  entry.byte_len = static_cast<std::uint32_t>(total);
  if (total > receive.room) {
    entry.status = IBV_WC_LOC_LEN_ERR;
    operation.status = IBV_WC_REM_INV_REQ_ERR;
    return;
  }
  std::size_t at = 0;
  std::uint64_t used = 0;  // of spans_[at]
  for (std::uint32_t i = 0; i < receive.count && total > 0; ++i) {
    const ibv_sge& sge = i == 0 ? receive.first : receive.more[i - 1];
    const std::uint64_t room = std::min<std::uint64_t>(sge.length, total);
    if (room == 0) continue;
    const Region* const region = find_region(sge.lkey, sge.addr, room, IBV_ACCESS_LOCAL_WRITE);
    if (region == nullptr) {
      entry.status = IBV_WC_LOC_PROT_ERR;
      operation.status = IBV_WC_REM_OP_ERR;
      return;
    }
    auto* to = reinterpret_cast<std::uint8_t*>(region->address + (sge.addr - region->iova));
    std::uint64_t left = room;
    while (left > 0) {
      const std::uint64_t n = std::min(left, spans_[at].length - used);
      std::memcpy(to, spans_[at].data + used, n);
      to += n;
      left -= n;
      used += n;
      if (used == spans_[at].length) {
        ++at;
        used = 0;
      }
    }
    total -= room;
  }
}

void VirtualEngine::land(Operation& operation) {
  // Flushed when the sender knows; or answered already, when its tail was not
  // placed.
  if (operation.qp != nullptr && operation.qp->behind_failure(operation)) {
    return_receive(operation);
    return;
  }
  if (operation.status != IBV_WC_SUCCESS) return;
  VirtualQp* const target = target_of(operation);
  if (target == nullptr) {  // it died with the data on the adapter
    return_receive(operation);
    if (operation.datagram) {
      free_operation(&operation);
    } else {
      no_answer(operation);
    }
    return;
  }
  const VirtualSrq* const xrc = operation.xrc ? srq_of(operation, *target) : nullptr;
  if (operation.xrc && xrc == nullptr) {  // IBTA A14: an invalid request, as a wrong opcode is
    return_receive(operation);
    refuse(operation, IBV_WC_REM_INV_REQ_ERR);
    fail_target(*target, IBV_EVENT_QP_REQ_ERR);
    return;
  }
  const std::uint8_t opcode = operation.wqe.opcode;
  CompletionEntry entry;
  entry.wr_id = operation.receive.wr_id;
  entry.qpn = target->number;
  entry.src_qp = operation.source;
  entry.imm = operation.wqe.imm;
  entry.flags = has_imm(opcode) ? static_cast<std::uint8_t>(IBV_WC_WITH_IMM) : std::uint8_t{0};
  if (is_send(opcode)) {
    entry.opcode = IBV_WC_RECV;
    copy_to_receive(operation, entry);
  } else if (!land_rdma(*target, xrc, operation)) {
    return;  // a read: its data are on the way back; a tail: the head is to come
  } else {
    entry.opcode = static_cast<std::uint8_t>(IBV_WC_RECV_RDMA_WITH_IMM);
    entry.byte_len = operation.wqe.length;
    if (operation.status != IBV_WC_SUCCESS) entry.status = IBV_WC_WR_FLUSH_ERR;
  }
  if (operation.took_receive) {
    operation.took_receive = false;
    push(xrc != nullptr ? static_cast<VirtualCq*>(xrc->cq) : target->recv_cq, entry,
         (operation.wqe.flags & IBV_SEND_SOLICITED) != 0);
  } else {
    wake(xrc != nullptr ? xrc->process : target->process);
  }
  if (operation.datagram) {
    free_operation(&operation);
    return;
  }
  if (operation.status != IBV_WC_SUCCESS) {
    operation.qp->break_at(operation);
    // A responder of RC or XRC fails with the request (IBTA 9.9.3); a DCT
    // serves others and survives.
    if (target->kind != QpKind::dct) {
      fail_target(*target, operation.status == IBV_WC_REM_INV_REQ_ERR ? IBV_EVENT_QP_REQ_ERR
                                                                      : IBV_EVENT_QP_ACCESS_ERR);
    }
  }
  // Of a write that nobody asks after no answer is needed here: RC's and XRC's
  // only free a queue entry.
  if (sends_to_one(operation.qp->kind) && !operation.signalled &&
      operation.status == IBV_WC_SUCCESS) {
    operation.place = Operation::Place::answered;
    settle(*operation.qp);
    return;
  }
  answer(operation);
}

// Memory that the request names by its remote key. False: more is to come
// before the answer.
bool VirtualEngine::land_rdma(VirtualQp& target, const VirtualSrq* xrc, Operation& operation) {
  const SendWqe& w = operation.wqe;
  const std::uint32_t pd = xrc != nullptr ? xrc->pd : target.pd;
  const ProcessIndex process = xrc != nullptr ? xrc->process : target.process;
  const bool reads = w.opcode == IBV_WR_RDMA_READ;
  const unsigned right = reads                 ? unsigned{IBV_ACCESS_REMOTE_READ}
                         : is_atomic(w.opcode) ? unsigned{IBV_ACCESS_REMOTE_ATOMIC}
                                               : unsigned{IBV_ACCESS_REMOTE_WRITE};
  const Region* region = nullptr;
  if (w.length > 0) region = find_region(w.rkey, w.remote, w.length, right);
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
  if (reads || is_atomic(w.opcode)) {
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
      wake(process);
    }
    const Stream back = travel(operation, target, operation.qp, now_, w.length, true);
    ++operation.events;
    schedule(back.head, kReturn, &operation);
    return false;
  }
  const std::uint32_t half = w.length / 2;
  if (!operation.tail_first) {
    place(operation, at, 0, w.length);
  } else if (operation.tail_placed) {
    place(operation, at, 0, half);
  } else {
    operation.tail_placed = true;
    place(operation, at, half, w.length);
    wake(process);
    return false;
  }
  return true;
}

// Of the sender's data the bytes [from, to), to where they belong in the
// target's memory.
void VirtualEngine::place(const Operation& operation, std::uint8_t* target, std::uint64_t from,
                          std::uint64_t to) {
  gather(operation);
  std::uint64_t offset = 0;
  for (const Span& span : spans_) {
    const std::uint64_t begin = std::max(offset, from);
    const std::uint64_t end = std::min(offset + span.length, to);
    if (begin < end) std::memcpy(target + begin, span.data + (begin - offset), end - begin);
    offset += span.length;
  }
}

// The data of a read, at the sender's adapter.
void VirtualEngine::give_back(Operation& operation) {
  if (!operation.received) {
    // Into memory together with the completion, which tells of it.
    Node& node = node_of(*operation.qp);
    const Stream in = receive(node, operation, operation.wqe.length);
    const Picoseconds there = node.memory_writes.pass(in, on_pcie(operation.wqe.length)).tail;
    if (there > now_) {
      ++operation.events;
      schedule(there, kReturn, &operation);
      return;
    }
  }
  std::uint64_t offset = 0;
  gather(operation);
  for (const Span& span : spans_) {
    if (span.length > 0) std::memcpy(span.data, operation.copy.data() + offset, span.length);
    offset += span.length;
  }
  if (offset != operation.copy.size()) operation.status = IBV_WC_LOC_PROT_ERR;
  operation.answer_at = now_;
  answer(operation);
}

void VirtualEngine::answer(Operation& operation) {
  ++operation.events;
  schedule(operation.answer_at, kAnswer, &operation);
}

void VirtualEngine::fail_target(VirtualQp& target, ibv_event_type event) {
  if (target.phase != QpPhase::err) {
    raise_qp(target, event);
    fail(target, QpPhase::err);
  } else {
    flush_receives(target);
  }
}

}  // namespace turnout::hca
