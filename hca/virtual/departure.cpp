// SPDX-License-Identifier: BSD-3-Clause
// The sender's adapter: the order of a queue's requests; send side, PCI Express and link, which the
// node's processes share; DC's connections.
//
// A DCI serves one target at a time: before it turns to another it waits for the last answer of the
// present one and disconnects; the first operation to the new one connects (cost-model.md, DC
// switching between destinations).
#include <algorithm>

#include "hca/device/rules.h"
#include "hca/virtual/engine.h"

namespace turnout::hca {

// Lets go what may go, in order.
void VirtualEngine::start(VirtualQp& qp) {
  while (qp.started < qp.operations.size()) {
    Operation& operation = *qp.operations[qp.started];
    if (operation.ready > now_ || qp.phase != QpPhase::rts || qp.broken) return;
    if (operation.status != IBV_WC_SUCCESS) {  // found wrong when it was posted
      qp.break_at(operation);
      ++qp.started;
      operation.place = Operation::Place::answered;
      settle(qp);
      return;
    }
    if (!depart(qp, operation)) return;
    ++qp.started;
  }
}

Picoseconds VirtualEngine::context_cost(Node& node, std::uint64_t context, Picoseconds first_miss,
                                        Picoseconds* latency) {
  switch (node.contexts.use(context)) {
    case ContextCache::Found::first:
      return 0;
    case ContextCache::Found::second:
      ++statistics_.first_misses;
      return first_miss;
    case ContextCache::Found::memory:
      break;
  }
  ++statistics_.second_misses;
  const auto fetcher = std::min_element(node.fetches.begin(), node.fetches.end());
  *fetcher = std::max(*fetcher, now_) + profile_.cache_second_miss;
  *latency += *fetcher - now_;
  return first_miss;
}

PacketTimes VirtualEngine::on_wire(std::uint64_t bytes) const noexcept {
  const auto packet = static_cast<std::uint64_t>(profile_.wire_packet);
  const auto header = static_cast<std::uint64_t>(profile_.wire_overhead);
  const std::uint64_t packets = bytes <= packet ? 1 : (bytes + packet - 1) / packet;
  const Picoseconds all = time_of(profile_.wire_rate, bytes + packets * header);
  if (packets == 1) return {all, all, all};
  return {time_of(profile_.wire_rate, packet + header),
          time_of(profile_.wire_rate, bytes - (packets - 1) * packet + header), all};
}

PacketTimes VirtualEngine::on_pcie(std::uint64_t bytes) const noexcept {
  const auto packet = static_cast<std::uint64_t>(profile_.wire_packet);
  const Picoseconds all = time_of(profile_.pcie_rate, bytes);
  if (bytes <= packet) return {all, all, all};
  return {time_of(profile_.pcie_rate, packet),
          time_of(profile_.pcie_rate, (bytes - 1) % packet + 1), all};
}

bool VirtualEngine::near(const VirtualQp& from, const VirtualQp* to) const noexcept {
  return to != nullptr && processes_[from.process].node == processes_[to->process].node;
}

Stream VirtualEngine::travel(Operation& operation, const VirtualQp& from, const VirtualQp* to,
                             Picoseconds leaves, std::uint64_t bytes, bool from_memory) {
  Node& node = node_of(from);
  Stream stream{leaves, leaves};
  if (from_memory && bytes > 0) stream = node.memory_reads.pass(stream, on_pcie(bytes));
  operation.local = near(from, to);
  operation.received = false;
  if (operation.local) {
    stream.shift(profile_.wire_loopback);
  } else {
    stream = node.link_out.pass(stream, on_wire(bytes));
    stream.shift(profile_.wire_hop);
  }
  operation.spread = stream.tail - stream.head;
  return stream;
}

// A request with its data.
Stream VirtualEngine::leave(const VirtualQp& qp, Operation& operation, Picoseconds at) {
  const SendWqe& w = operation.wqe;
  const bool fetches = w.opcode == IBV_WR_RDMA_READ || is_atomic(w.opcode);
  return travel(operation, qp, find_qp(operation.target), at, fetches ? 0 : w.length, !w.is_inline);
}

// The target had no receive for it: it is sent once more.
void VirtualEngine::send_again(Operation& operation) {
  ++operation.events;
  schedule(leave(*operation.qp, operation, now_).head, kArrive, &operation);
}

// False: the request must wait; start() is called again.
bool VirtualEngine::depart(VirtualQp& qp, Operation& operation) {
  Node& node = node_of(qp);
  Picoseconds occupancy =
      sends_to_one(qp.kind) ? profile_.adapter_send_rc : profile_.adapter_send_ud;
  Picoseconds latency = 0;
  if (qp.kind == QpKind::dci) {
    occupancy = profile_.adapter_send_dc;
    const bool idle = qp.connected != 0 && qp.unanswered == 0 && profile_.dc_idle > 0 &&
                      now_ - qp.answered_at >= profile_.dc_idle;
    if (idle) {  // closed meanwhile
      release_responder(qp);
      qp.connected = 0;
    }
    if (profile_.dc_serial != 0 && qp.connected != operation.target) {
      if (qp.waits) return false;
      if (qp.unanswered > 0) {
        qp.waits = true;
        return false;
      }
      const Picoseconds disconnected = qp.answered_at + profile_.dc_disconnect;
      if (qp.connected != 0 && now_ < disconnected) {
        qp.waits = true;
        schedule(disconnected, kRestart, nullptr, qp.number);
        return false;
      }
      release_responder(qp);
      qp.connected = operation.target;
      occupancy = profile_.adapter_send_dc_switch;
      latency = profile_.dc_connect;
      ++statistics_.dc_connects;
      note(Trace::Kind::connect, qp, operation.target, 0);
    }
    ++qp.unanswered;
  }
  occupancy += context_cost(node, qp.number, profile_.cache_first_miss, &latency);
  node.send_free = std::max(now_, node.send_free) + occupancy;
  const Picoseconds leaves = node.send_free + latency;
  Picoseconds arrival = leave(qp, operation, leaves).head;
  const std::uint64_t bytes = operation.wqe.length;
  if (chance(profile_.fault_delay) && profile_.fault_delay_most > 0) {
    arrival +=
        static_cast<Picoseconds>(random() % static_cast<std::uint64_t>(profile_.fault_delay_most));
    note(Trace::Kind::fault, qp, operation, bytes);
  }
  note(Trace::Kind::depart, qp, operation, bytes);
  operation.place = Operation::Place::flying;
  if (qp.kind == QpKind::ud) {
    depart_datagram(qp, operation, arrival);
    return true;
  }
  // Told in its turn: what was sent before it is answered as ever.
  if (chance(profile_.fault_qp_error) ||
      (sends_to_one(qp.kind) && chance(profile_.fault_rc_error))) {
    operation.status = IBV_WC_RETRY_EXC_ERR;
  }
  const Picoseconds timeout = static_cast<Picoseconds>(ack_wait(qp.attr.timeout)) * kNanosecond;
  for (std::uint32_t sent = 0; !operation.lost && chance(profile_.fault_loss);) {
    note(Trace::Kind::fault, qp, operation, bytes);
    if (timeout == 0) {  // it waits for ever
      qp.break_at(operation);
      return true;
    }
    if (sent++ == qp.attr.retry_cnt) {  // IBTA 9.7.6.1.3
      operation.lost = true;
      operation.status = IBV_WC_RETRY_EXC_ERR;
      arrival = leaves + timeout * sent;  // of the last timeout, at this end
    } else {
      ++statistics_.retransmissions;
      arrival += timeout;
    }
  }
  // What follows a delayed or lost packet waits for it.
  arrival = std::max(arrival, qp.last_arrival);
  qp.last_arrival = arrival + operation.spread + (operation.spread > 0 ? 1 : 0);
  ++operation.events;
  schedule(arrival, kArrive, &operation);
  return true;
}

// A datagram travels by itself: its sender has completed when it has left.
void VirtualEngine::depart_datagram(VirtualQp& qp, Operation& operation, Picoseconds arrival) {
  const int copies = chance(profile_.fault_loss) ? 0 : chance(profile_.fault_duplicate) ? 2 : 1;
  for (int i = 0; i < copies; ++i) {
    Operation* const flying = new_operation();
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
    gather(operation);
    std::size_t at = 0;
    for (const Span& span : spans_) {
      std::copy_n(span.data, span.length, flying->copy.data() + at);
      at += span.length;
    }
    ++flying->events;
    schedule(arrival, kArrive, flying);
  }
  operation.answer_at = now_;
  answer(operation);
}

// The former target's adapter need not keep a context for this initiator any more.
void VirtualEngine::release_responder(VirtualQp& qp) {
  if (qp.connected == 0) return;
  if (const VirtualQp* target = find_qp(qp.connected); target != nullptr) {
    Node& node = node_of(*target);
    node.responders.erase(qp.number);
    node.contexts.forget(kResponder | qp.number);
  }
}

}  // namespace turnout::hca
