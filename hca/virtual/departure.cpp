// SPDX-License-Identifier: BSD-3-Clause
// The sender's adapter: the order of a queue's requests, the send side shared by the node's
// processes, DC's connections, the link.
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

// The data's time on the node's link; when its last byte has left.
Picoseconds VirtualEngine::serialise(Node& node, Picoseconds from,
                                     std::uint64_t bytes) const noexcept {
  const auto packet = static_cast<std::uint64_t>(profile_.wire_packet);
  const std::uint64_t packets = bytes == 0 ? 1 : (bytes + packet - 1) / packet;
  const std::uint64_t all = bytes + packets * static_cast<std::uint64_t>(profile_.wire_overhead);
  node.link_free = std::max(from, node.link_free) + time_of(profile_.wire_rate, all);
  return node.link_free;
}

bool VirtualEngine::near(const VirtualQp& from, const VirtualQp* to) const noexcept {
  return to != nullptr && processes_[from.process].node == processes_[to->process].node;
}

// When data that leave at `from`'s adapter have come to `to`'s; nobody (null) is far away.
Picoseconds VirtualEngine::travel(const VirtualQp& from, const VirtualQp* to, Picoseconds leaves,
                                  std::uint64_t bytes) noexcept {
  if (near(from, to)) return leaves + profile_.wire_loopback;
  return serialise(node_of(from), leaves, bytes) + profile_.wire_hop;
}

// False: the request must wait; start() is called again.
bool VirtualEngine::depart(VirtualQp& qp, Operation& operation) {
  Node& node = node_of(qp);
  Picoseconds occupancy =
      sends_to_one(qp.kind) ? profile_.adapter_send_rc : profile_.adapter_send_ud;
  Picoseconds latency = 0;
  if (qp.kind == QpKind::dci) {
    occupancy = profile_.adapter_send_dc;
    if (profile_.dc_serial != 0 && qp.connected != operation.target) {
      if (qp.waits) return false;
      if (qp.unanswered > 0) {
        qp.waits = true;
        return false;
      }
      if (now_ < qp.connect_after) {
        qp.waits = true;
        schedule(qp.connect_after, kRestart, nullptr, qp.number);
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
  const bool fetches = operation.wqe.opcode == IBV_WR_RDMA_READ || is_atomic(operation.wqe.opcode);
  const std::uint64_t bytes = fetches ? 0 : operation.wqe.length;
  const Picoseconds leaves = node.send_free + latency;
  Picoseconds arrival = travel(qp, find_qp(operation.target), leaves, bytes);
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
  qp.last_arrival = arrival = std::max(arrival, qp.last_arrival);
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
