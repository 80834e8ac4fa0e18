// SPDX-License-Identifier: BSD-3-Clause
// Large messages and one-sided operations if the default transport has no RDMA (UD).
//
// The receiver of a large message requests an RC queue pair, as the selection would (J1-J5), and
// reads over it. If none is available, because of the policy, a budget or a limit, or if a slot may
// take long, it sends a fragment request. The sender then sends the message in fragments, which are
// messages of the stream under its credits and are copied into the receive buffer. One-sided
// operations use the queue pair too, and otherwise travel as messages (segments.cpp). A key that
// the target refuses breaks the connection, which is then recovered (connection/recovery.cpp).
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/log.h"
#include "core/endpoint/endpoint_core.h"

namespace turnout {

EndpointCore::DataPath EndpointCore::data_path(Peer& peer) {
  if (peer.recovery && !peer.lost) return DataPath::wait;
  if (!over_datagrams()) return DataPath::dc;
  if (peer.lost) return DataPath::wait;  // the caller handles it
  // The queue pair can be used until `closed` is sent, also during a switch back; but no new
  // transfer starts on a connection that is being evicted.
  if (peer.rc && peer.receive_kind == ChannelKind::rc_rdma && !peer.eviction.disconnecting)
    return DataPath::rc;
  // Operations of ACTS wait for their connection, see Processor::waits_for_connections().
  const DataPath without_slot = waits_for_connections_ ? DataPath::wait : DataPath::fragments;
  if (peer.eviction.disconnecting || peer.eviction.waits_for_slot) return without_slot;
  // The connection failed, and messages in the ring may wait for this one to be received.
  if (peer.receive_state == ReceiveState::draining) return DataPath::fragments;
  // The peer may queue a request for a slot.
  const DataPath meanwhile = eviction_.active() ? without_slot : DataPath::wait;
  if (peer.receive_state != ReceiveState::steady) return meanwhile;
  if (peer.self || closing_ || never_connects_) return DataPath::fragments;
  // A simulation may exclude a connection with this peer.
  if (eviction_.active() && !over_rc(first_channel(peer))) return DataPath::fragments;
  if (peer.refused_until != 0 && clock_.now() < peer.refused_until) return DataPath::fragments;
  if (!eviction_.active() && !peer.has_rc() && active_rc_ >= settings_.max_active_rc) {
    return DataPath::fragments;
  }
  if (peer.remote_index == wire::kUnknownIndex) {
    send_wireup(peer);
    return DataPath::wait;
  }
  if (eviction_.active() && !may_have_slot(peer, true)) {
    (void)request_slot(peer);
    return without_slot;
  }
  change_channel(peer, ChannelKind::rc_rdma, default_channel_,
                 "large messages and one-sided operations", 0);
  return peer.receive_state == ReceiveState::steady ? DataPath::fragments : meanwhile;
}

// At the receiver.
void EndpointCore::request_fragments(Transfer& transfer, const wire::Rts& rts) {
  Peer& peer = *transfer.peer;
  if (transfer.total == 0) {
    end_transfer(transfer);
    return;
  }
  transfer.expected = rts.total;
  transfer.incoming_id = incoming_.add(&transfer);
  ++peer.incoming_large;
  if (peer.retained > 0) (void)relieve(peer);  // the fragments need the credits
  wire::ControlMessage message;
  message.type = wire::Control::fragment_request;
  message.operation = rts.operation;
  message.ring_address = transfer.incoming_id;
  send_control(peer, Purpose::credit, message);
}

// The queue pair of the read failed.
void EndpointCore::fall_back_to_fragments(Transfer& transfer) {
  if (transfer.listed) active_transfers_.remove(&transfer);
  transfer.listed = false;
  release_regions(transfer);
  wire::Rts rts;
  rts.total = transfer.total + transfer.overflow;
  rts.operation = transfer.fin;
  request_fragments(transfer, rts);
}

// At the sender.
void EndpointCore::on_fragment_request(Peer& peer, const wire::ControlMessage& message) {
  if (closing_) return;
  SendOperation* const operation = find_awaiting(peer, message.operation);
  if (operation == nullptr || !operation->rendezvous || operation->fragment_transfer != 0 ||
      operation->grant.transfer != 0 || message.ring_address == 0) {
    TURNOUT_LOG(protocol, warn,
                "ignored an unexpected fragment request: {}: operation {:#x} is not waiting",
                peer.address.to_string(), message.operation);
    return;
  }
  operation->fragment_transfer = message.ring_address;
  operation->fragment_offset = 0;
  fragmented_.push_back(operation);
}

bool EndpointCore::pump_fragments() {
  bool moved = false;
  for (SendOperation* operation = fragmented_.first(); operation != nullptr;) {
    SendOperation* const next = operation->next;
    Peer& peer = *operation->peer;
    while (operation->fragment_offset < operation->iov.total) {
      const std::size_t n =
          std::min(max_payload(peer), operation->iov.total - operation->fragment_offset);
      const IoVec part = operation->iov.slice(operation->fragment_offset, n);
      StreamMessage message;
      message.type = wire::Type::fragment;
      message.tag = operation->fragment_transfer;
      message.data = operation->fragment_offset;
      message.iov = &part;
      message.length = n;
      if (!post_stream(peer, message)) break;
      if (peer.lost) return true;  // its operations have ended, including this one
      operation->fragment_offset += n;
      moved = true;
    }
    if (operation->fragment_offset == operation->iov.total) {  // now it waits for its FIN
      operation->fragment_transfer = 0;
      fragmented_.remove(operation);
    }
    operation = next;
  }
  return moved;
}

Transfer* EndpointCore::find_incoming(const Peer& peer, std::uint64_t number,
                                      Transfer::Kind kind) const noexcept {
  Transfer* const transfer = incoming_.find(number);
  const bool its = transfer != nullptr && transfer->peer == &peer && transfer->kind == kind;
  return its ? transfer : nullptr;
}

// At the receiver; fragments arrive in stream order.
void EndpointCore::on_fragment(Peer& peer, const wire::Header& header, const std::byte* payload) {
  Transfer* const transfer = find_incoming(peer, header.tag, Transfer::Kind::read);
  if (transfer == nullptr) {
    TURNOUT_LOG(protocol, debug,
                "{}: dropped a fragment for transfer {:#x}, which no longer exists",
                peer.address.to_string(), header.tag);
    return;
  }
  if (header.data != transfer->posted || header.length > transfer->expected - transfer->posted) {
    lose_peer(
        peer,
        Status{Code::invalid,
               fmt::format("{}: fragment of {} bytes at offset {}, with {} of {} bytes received",
                           peer.address.to_string(), header.length, header.data, transfer->posted,
                           transfer->expected)});
    return;
  }
  if (transfer->posted < transfer->total) {
    const std::size_t n = std::min<std::size_t>(header.length, transfer->total - transfer->posted);
    transfer->receive->iov.copy_in(transfer->offset + transfer->posted, payload, n);
    charge(Work::copy, n);
  }
  transfer->posted += header.length;
  if (transfer->posted < transfer->expected) return;
  incoming_.remove(transfer->incoming_id);
  --peer.incoming_large;
  end_transfer(*transfer);
}

// Of a lost peer; null: the endpoint closes, and user buffers must not be accessed any more.
void EndpointCore::end_incoming(const Peer* peer) {
  for (std::size_t i = 0; i < incoming_.size(); ++i) {
    Transfer* const transfer = incoming_.at(i);
    if (transfer == nullptr || (peer != nullptr && transfer->peer != peer)) continue;
    if (transfer->kind == Transfer::Kind::rtr_recv) continue;  // ends with its receive
    incoming_.remove(transfer->incoming_id);
    --transfer->peer->incoming_large;
    transfer->status =
        peer != nullptr ? peer->loss : Status{Code::canceled, "the endpoint is closing"};
    end_transfer(*transfer);
  }
}

Status EndpointCore::rma_to_self(const RmaRequest& request, const IoVec& iov) {
  if (!domain_->allows(request.key, request.remote_address, request.length,
                       request.write ? kAccessRemoteWrite : kAccessRemoteRead)) {
    return {Code::permission,
            fmt::format("rma: {} bytes at {:#x} are outside the region of key {:#x}",
                        request.length, request.remote_address, request.key)};
  }
  auto* const remote = reinterpret_cast<std::byte*>(request.remote_address);
  if (request.write) {
    iov.copy_out(remote);
  } else {
    iov.copy_in(0, remote, request.length);
  }
  charge(Work::copy, request.length);
  if (request.write && request.has_remote_data) {
    Completion remote_write;
    remote_write.context = remote_write_report_.context;
    remote_write.length = request.length;
    remote_write.data = request.remote_data;
    remote_write.flags = kRemoteWrite | kRemoteData;
    remote_write.source = request.peer;
    finish(remote_write_report_, remote_write);
  }
  Completion completion;
  completion.context = request.report.context;
  completion.length = request.length;
  completion.flags = request.write ? kRmaWrite : kRmaRead;
  finish(request.report, completion);
  return {};
}

}  // namespace turnout
