// SPDX-License-Identifier: BSD-3-Clause
// Large messages and one-sided operations if the default transport has no RDMA (UD).
//
// The receiver of a large message requests an RC queue pair, as the selection would (J1-J5), and
// reads over it. If none is available, because of the policy, a budget or a limit, or if a slot may
// take long, it sends a fragment request. The sender then sends the message in fragments, which are
// messages of the stream under its credits and are copied into the receive buffer. One-sided
// operations use the queue pair too, and otherwise travel as messages (atomic_segments.cpp). A key
// that the target refuses breaks the connection, which is then recovered
// (channels/connection_recovery.cpp).
#include "core/operations/fragment_engine.h"
#include "base/log.h"

namespace turnout {

// At the receiver.
void FragmentEngine::request_fragments(Transfer& transfer, const wire::Rts& rts) {
  Peer& peer = *transfer.peer;
  if (transfer.total == 0) return rdma_.end_transfer(transfer);
  add_incoming(transfer, rts.total);
  if (peer.rx.retained > 0) (void)events_.relieve(peer);  // the fragments need the credits
  control_.send_control(peer, Purpose::credit,
                        {.type = wire::Control::fragment_request,
                         .ring_address = transfer.incoming.id,
                         .operation = rts.operation});
}

void FragmentEngine::expect_fragments(Transfer& transfer, std::uint64_t expected,
                                      std::uint64_t arrived) {
  Peer& peer = *transfer.peer;
  assert(arrived < expected && !awaits_fragment(peer));
  transfer.posted = arrived;
  add_incoming(transfer, expected);
  peer.state.make().rx.fragmented = transfer.incoming.id;
}

void FragmentEngine::add_incoming(Transfer& transfer, std::uint64_t expected) {
  transfer.incoming.expected = expected;
  transfer.incoming.id = incoming_.add(&transfer);
  ++transfer.peer->rx.incoming_large;
}

// The queue pair of the read failed, or the buffer could not be registered.
void FragmentEngine::fall_back_to_fragments(Transfer& transfer) {
  if (transfer.listed) rdma_.active_transfers().remove(&transfer);
  transfer.listed = false;
  MemoryRegistration::release_regions(transfer);
  wire::Rts rts;
  rts.total = transfer.total + transfer.incoming.overflow;
  rts.operation = transfer.incoming.fin;
  request_fragments(transfer, rts);
}

// At the sender.
void FragmentEngine::on_fragment_request(Peer& peer, const wire::ControlMessage& message) {
  if (context_.closing) return;
  SendOperation* const operation = backlog_.find_awaiting(peer, message.operation);
  if (operation == nullptr || !operation->rendezvous || operation->fragment_transfer != 0 ||
      operation->grant.transfer != 0 || message.ring_address == 0) {
    TURNOUT_LOG(protocol, warn,
                "ignored an unexpected fragment request: {}: operation {:#x} is not waiting",
                peer.address.to_string(), message.operation);
    return;
  }
  operation->fragment_transfer = message.ring_address;
  operation->fragment_offset = 0;
  backlog_.fragmented().push_back(operation);
  context_.pending.add(Pending::fragments);
}

bool FragmentEngine::pump_fragments() {
  bool moved = false;
  for (SendOperation* operation = backlog_.fragmented().first(); operation != nullptr;) {
    SendOperation* const next = operation->next;
    Peer& peer = *operation->peer;
    while (operation->fragment_offset < operation->iov.total) {
      const std::size_t n =
          std::min(sender_.max_payload(peer), operation->iov.total - operation->fragment_offset);
      const IoVec part = operation->iov.slice(operation->fragment_offset, n);
      StreamMessage message{.type = wire::Type::fragment,
                            .tag = operation->fragment_transfer,
                            .data = operation->fragment_offset,
                            .iov = &part,
                            .length = n};
      if (!sender_.post_stream(peer, message)) break;
      if (peer.lost) return true;  // its operations have ended, including this one
      operation->fragment_offset += n;
      moved = true;
    }
    if (operation->fragment_offset == operation->iov.total) {  // now it waits for its FIN
      operation->fragment_transfer = 0;
      backlog_.fragmented().remove(operation);
    }
    operation = next;
  }
  return moved;
}

Transfer* FragmentEngine::find_incoming(const Peer& peer, std::uint64_t number,
                                        Transfer::Kind kind) const noexcept {
  Transfer* const transfer = incoming_.find(number);
  const bool its = transfer != nullptr && transfer->peer == &peer && transfer->kind == kind;
  return its ? transfer : nullptr;
}

// At the receiver; fragments arrive in stream order.
void FragmentEngine::on_fragment(Peer& peer, const wire::Header& header, const std::byte* payload) {
  const bool eager = header.tag == 0;
  if (eager && peer.state->rx.partial != nullptr) return keep_fragment(peer, header, payload);
  Transfer* const transfer =
      find_incoming(peer, eager ? peer.state->rx.fragmented : header.tag, Transfer::Kind::read);
  if (transfer == nullptr) {
    TURNOUT_LOG(protocol, debug,
                "{}: dropped a fragment for transfer {:#x}, which no longer exists",
                peer.address.to_string(), header.tag);
    return;
  }
  if (!is_next(peer, header, transfer->posted, transfer->incoming.expected)) return;
  if (transfer->posted < transfer->total) {
    const std::size_t n = std::min<std::size_t>(header.length, transfer->total - transfer->posted);
    transfer->incoming.receive->iov.copy_in(transfer->incoming.offset + transfer->posted, payload,
                                            n);
    context_.charge(Work::copy, n);
  }
  transfer->posted += header.length;
  if (transfer->posted < transfer->incoming.expected) return;
  incoming_.remove(transfer->incoming.id);
  --peer.rx.incoming_large;
  rdma_.end_transfer(*transfer);
}

// Otherwise the peer is lost.
bool FragmentEngine::is_next(Peer& peer, const wire::Header& header, std::uint64_t arrived,
                             std::uint64_t expected) {
  if (header.data == arrived && header.length <= expected - arrived) return true;
  events_.protocol_error(
      peer, fmt::format("fragment of {} bytes at offset {}, with {} of {} bytes received",
                        header.length, header.data, arrived, expected));
  return false;
}

// Of an eager message that no receive takes yet. may_deliver() has made room.
void FragmentEngine::keep_fragment(Peer& peer, const wire::Header& header,
                                   const std::byte* payload) {
  UnexpectedMessage& message = *peer.state->rx.partial;
  if (!message.has_room) return;  // the endpoint closes
  if (!is_next(peer, header, message.arrived, message.total)) return;
  std::memcpy(message.heap.get() + message.arrived, payload, header.length);
  context_.charge(Work::copy, header.length);
  message.arrived += header.length;
  if (!message.partial()) peer.state.ref().rx.partial = nullptr;
}

// Of a lost peer; null: the endpoint closes, and user buffers must not be accessed any more.
void FragmentEngine::end_incoming(const Peer* peer) {
  for (std::size_t i = 0; i < incoming_.size(); ++i) {
    Transfer* const transfer = incoming_.at(i);
    if (transfer == nullptr || (peer != nullptr && transfer->peer != peer)) continue;
    if (transfer->kind == Transfer::Kind::rtr_recv) continue;  // ends with its receive
    incoming_.remove(transfer->incoming.id);
    --transfer->peer->rx.incoming_large;
    transfer->status =
        peer != nullptr ? peer->state->loss : Status{Code::canceled, "the endpoint is closing"};
    rdma_.end_transfer(*transfer);
  }
}

}  // namespace turnout
