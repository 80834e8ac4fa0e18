// J1-J5 of AQPS 3.3: how one direction of a pair changes between DC-sendrecv and an RC ring, with
// what the paper leaves out: refusal, crossing requests, the way back, reuse of queue pairs.
//
// The receiver of the data asks (J1) with its ring and its RC queue pair. The sender makes its own,
// connects it and accepts (J2), or refuses. The receiver connects (J3, ready); the sender switches
// and tells the last sequence number of the old channel (J4). Order needs no more: every message
// carries its sequence number and is delivered by it (J5). The way back has the same shape:
// request, switched, and `closed` when the ring is drained.
//
// One RC queue pair serves both directions of a pair. Crossing requests need no winner: each names
// its sender's queue pair and answers the other's as well. Establishment messages of a pair travel
// in order, so when `closed` has been seen for both directions both ends know it and RESET their
// queue pairs; a later request names a new one, and an end that still holds the old connection
// connects anew.
#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "base/log.h"
#include "core/endpoint_core.h"

namespace turnout {
namespace {
constexpr std::uint32_t kRcDepth = 128;  // ring entries, reads in flight and unsignalled records
}

// Within the budget, if need be at the cost of idle queue pairs.
bool EndpointCore::reserve_rc() {
  while (!account_.reserve(MemoryKind::queue_pairs, rc_bytes_, spare())) {
    if (rc_pool_.empty()) return false;
    destroy_rc(std::move(rc_pool_.back()));
    rc_pool_.pop_back();
  }
  return true;
}

void EndpointCore::destroy_rc(std::unique_ptr<RcQueue> queue) {
  queues_[queue->id()] = nullptr;
  queue_epochs_[queue->id()] = static_cast<std::uint8_t>(queue->epoch() + 1);
  free_queue_ids_.push_back(queue->id());
  queue.reset();
  account_.release(MemoryKind::queue_pairs, rc_bytes_);
}

Status EndpointCore::make_rc(Peer& peer) {
  if (peer.rc) return {};
  if (!rc_pool_.empty()) {
    peer.rc = std::move(rc_pool_.back());
    rc_pool_.pop_back();
    ++active_rc_;
    return {};
  }
  // "It stops creating RC-QPs after creating 128 of them" [AQPS 4.2]: those that a peer is slow to
  // let go of count too.
  if (active_rc_ >= std::max(settings_.rc_pool, settings_.max_active_rc)) {
    return {Code::again, "every queue pair of TURNOUT_RC_POOL is in use"};
  }
  if (!reserve_rc()) return {Code::over_budget, "no memory within the budget for a queue pair"};
  std::uint32_t id;
  if (free_queue_ids_.empty()) {
    id = static_cast<std::uint32_t>(queues_.size());
    queues_.push_back(nullptr);
  } else {
    id = free_queue_ids_.back();
    free_queue_ids_.pop_back();
  }
  queue_epochs_.resize(queues_.size());
  auto queue = std::make_unique<RcQueue>(id, kRcDepth, unsignalled_data_, queue_epochs_[id]);
  if (Status status = queue->create(*device_, send_cq_.get(), data_srq_.get(), kRcDepth, tuning_);
      !status.ok()) {
    account_.release(MemoryKind::queue_pairs, rc_bytes_);
    free_queue_ids_.push_back(id);
    return status;
  }
  queues_[id] = queue.get();
  peer.rc = std::move(queue);
  ++active_rc_;
  return {};
}

Status EndpointCore::connect_rc(Peer& peer, std::uint32_t qp_number) {
  if (peer.rc->connected_to() == qp_number) return {};
  // Of an earlier connection: all of it has arrived, or the peer would not have let go of its end.
  for (const SendRecord& record : peer.rc->take_all()) retire(record);
  return peer.rc->connect(qp_number, peer.address.lid, peer.address.gid);
}

// Takes the queue pair from the peer; back to the pool if it can be RESET and there is room.
void EndpointCore::discard_rc(Peer& peer) {
  std::unique_ptr<RcQueue> queue = std::move(peer.rc);
  --active_rc_;
  for (const SendRecord& record : queue->take_all()) {
    if (record.kind == SendRecord::Kind::transfer) {
      on_transfer_done(*record.transfer, peer.loss);
    } else {
      retire(record);
    }
  }
  const bool keep = rc_pool_.size() < settings_.rc_pool && queue->reset().ok();
  if (keep) {
    rc_pool_.push_back(std::move(queue));
    return;
  }
  destroy_rc(std::move(queue));
}

void EndpointCore::drop_rc_if_unused(Peer& peer) {
  if (!peer.rc || peer.ring || peer.receive_state != ReceiveState::steady || peer.send_uses_rc ||
      peer.send_state != SendState::steady || peer.send_kind == ChannelKind::rc_rdma) {
    return;
  }
  discard_rc(peer);
}

// J1: asks the peer to send into a ring of ours.
Status EndpointCore::request_ring(Peer& peer) {
  if (peer.remote_index == wire::kUnknownIndex) {
    return {Code::again, "the peer does not know this process yet"};
  }
  auto ring =
      RingReceiver::create(*device_, account_, static_cast<std::uint32_t>(settings_.ring_entries),
                           static_cast<std::uint32_t>(settings_.ring_entry_size), spare());
  if (!ring) return ring.status();
  if (Status status = make_rc(peer); !status.ok()) return status;
  peer.ring = std::make_unique<RingReceiver>(std::move(ring).value());
  peer.owed_ring = 0;
  peer.receive_state = ReceiveState::requested;
  peer.requested_at = clock_.now();
  wire::ControlMessage message;
  message.type = wire::Control::request;
  message.kind = static_cast<std::uint8_t>(ChannelKind::rc_rdma);
  message.request = peer.ring_request = ++peer.request;
  message.qp_number = peer.rc->number();
  message.ring_address = peer.ring->address();
  message.ring_rkey = peer.ring->rkey();
  message.ring_entries = peer.ring->entries();
  message.entry_log2 = static_cast<std::uint8_t>(std::bit_width(peer.ring->entry_size()) - 1);
  send_control(peer, Purpose::establishment, message);
  return {};
}

// Asks the peer to leave our ring.
void EndpointCore::request_return(Peer& peer) {
  peer.receive_state = ReceiveState::closing;
  peer.requested_at = clock_.now();
  wire::ControlMessage message;
  message.type = wire::Control::request;
  message.kind = static_cast<std::uint8_t>(ChannelKind::dc_sendrecv);
  message.request = ++peer.request;
  send_control(peer, Purpose::establishment, message);
}

void EndpointCore::refuse(Peer& peer, const wire::ControlMessage& request, wire::Refusal why) {
  wire::ControlMessage message;
  message.type = wire::Control::refuse;
  message.refusal = why;
  message.request = request.request;
  ++refusals_;
  send_control(peer, Purpose::establishment, message);
}

// J2, at the sender of the data.
void EndpointCore::on_request(Peer& peer, const wire::ControlMessage& message) {
  if (message.kind == static_cast<std::uint8_t>(ChannelKind::dc_sendrecv)) {
    if (peer.send_kind == ChannelKind::rc_rdma) {
      peer.send_kind = ChannelKind::dc_sendrecv;
      peer.sent.change(ChannelKind::dc_sendrecv, age());
    }
    wire::ControlMessage answer;
    answer.type = wire::Control::switched;
    answer.kind = static_cast<std::uint8_t>(ChannelKind::dc_sendrecv);
    answer.request = message.request;
    answer.last_sequence = peer.send_sequence - 1;
    send_control(peer, Purpose::establishment, answer);
    return;
  }
  if (message.kind != static_cast<std::uint8_t>(ChannelKind::rc_rdma)) {
    refuse(peer, message, wire::Refusal::device);
    return;
  }
  const std::uint32_t entry_size =
      message.entry_log2 >= 9 && message.entry_log2 <= 16 ? 1u << message.entry_log2 : 0;
  if (message.ring_entries == 0 || message.ring_entries > kMaxRingEntries || entry_size == 0 ||
      message.qp_number == 0) {
    TURNOUT_LOG(connection, error, "{}: request with {} entries of 2^{} bytes and queue pair {}",
                peer.address.to_string(), message.ring_entries, message.entry_log2,
                message.qp_number);
    refuse(peer, message, wire::Refusal::device);
    return;
  }
  if (closing_ || peer.send_state != SendState::steady || peer.send_uses_rc ||
      peer.send_kind != ChannelKind::dc_sendrecv) {
    refuse(peer, message, wire::Refusal::busy);
    return;
  }
  if (!peer.rc && active_rc_ >= settings_.max_active_rc) {
    refuse(peer, message, wire::Refusal::limit);
    return;
  }
  Status status = make_rc(peer);
  if (status.ok()) status = connect_rc(peer, message.qp_number);
  if (!status.ok()) {
    refuse(peer, message,
           status.code() == Code::over_budget ? wire::Refusal::budget : wire::Refusal::device);
    if (status.code() != Code::over_budget) {
      TURNOUT_LOG(connection, warn, "{}: {}", peer.address.to_string(), status.text());
    }
    drop_rc_if_unused(peer);
    return;
  }
  peer.offered_ring = RingSender{message.ring_address, message.ring_rkey,    message.ring_entries,
                                 entry_size,           message.ring_entries, 0};
  peer.answered_request = message.request;
  peer.send_state = SendState::accepted;
  wire::ControlMessage answer;
  answer.type = wire::Control::accept;
  answer.request = message.request;
  answer.qp_number = peer.rc->number();
  send_control(peer, Purpose::establishment, answer);
}

// J3, at the receiver of the data.
void EndpointCore::on_accept(Peer& peer, const wire::ControlMessage& message) {
  if (peer.receive_state != ReceiveState::requested || message.request != peer.request) {
    TURNOUT_LOG(connection, warn, "{}: accepts request {}, which is not open",
                peer.address.to_string(), message.request);
    return;
  }
  wire::ControlMessage answer;
  answer.request = message.request;
  if (Status status = connect_rc(peer, message.qp_number); !status.ok()) {
    answer.type = wire::Control::closed;
    send_control(peer, Purpose::establishment, answer);
    peer.receive_state = ReceiveState::steady;
    peer.ring.reset();
    decided(peer, fmt::format("failed: {}", status.text()));
    drop_rc_if_unused(peer);
    return;
  }
  peer.receive_state = ReceiveState::accepted;
  answer.type = wire::Control::ready;
  send_control(peer, Purpose::establishment, answer);
}

// J4, at the sender of the data: from here on it writes into the ring.
void EndpointCore::on_ready(Peer& peer, const wire::ControlMessage& message) {
  if (peer.send_state != SendState::accepted || message.request != peer.answered_request) return;
  peer.send_state = SendState::steady;
  peer.send_uses_rc = true;
  peer.ring_sender = peer.offered_ring;
  peer.send_kind = ChannelKind::rc_rdma;
  peer.sent.change(ChannelKind::rc_rdma, age());
  wire::ControlMessage answer;
  answer.type = wire::Control::switched;
  answer.kind = static_cast<std::uint8_t>(ChannelKind::rc_rdma);
  answer.request = message.request;
  answer.last_sequence = peer.send_sequence - 1;
  send_control(peer, Purpose::establishment, answer);
}

// J5, at the receiver of the data.
void EndpointCore::on_switched(Peer& peer, const wire::ControlMessage& message) {
  if (message.request != peer.request) return;
  peer.last_old = message.last_sequence;
  if (peer.receive_state == ReceiveState::accepted &&
      message.kind == static_cast<std::uint8_t>(ChannelKind::rc_rdma)) {
    peer.receive_state = ReceiveState::steady;
    peer.receive_kind = ChannelKind::rc_rdma;
    peer.received.change(ChannelKind::rc_rdma, age());
    rings_.push_back(&peer);
    decided(peer, fmt::format("done in {} us", (clock_.now() - peer.requested_at) / 1000));
  } else if (peer.receive_state == ReceiveState::closing &&
             message.kind == static_cast<std::uint8_t>(ChannelKind::dc_sendrecv)) {
    peer.receive_state = ReceiveState::draining;
    finish_drain(peer);
  }
}

// The ring goes when everything sent into it is delivered and no message or read still needs it.
void EndpointCore::finish_drain(Peer& peer) {
  if (peer.receive_state != ReceiveState::draining || peer.lost) return;
  const bool drained = static_cast<std::int32_t>(peer.receive_sequence - peer.last_old) > 0 &&
                       peer.ring->all_returned() && peer.reads_over_rc == 0;
  if (!drained && !frees_before_drain_) return;
  peer.receive_state = ReceiveState::steady;
  peer.receive_kind = ChannelKind::dc_sendrecv;
  peer.received.change(ChannelKind::dc_sendrecv, age());
  rings_.erase(std::remove(rings_.begin(), rings_.end(), &peer), rings_.end());
  peer.ring.reset();
  peer.owed_ring = 0;
  wire::ControlMessage message;
  message.type = wire::Control::closed;
  message.request = peer.request;
  send_control(peer, Purpose::establishment, message);
  decided(peer, fmt::format("done in {} us", (clock_.now() - peer.requested_at) / 1000));
  drop_rc_if_unused(peer);
}

void EndpointCore::on_refuse(Peer& peer, const wire::ControlMessage& message) {
  if (peer.receive_state != ReceiveState::requested || message.request != peer.request) return;
  peer.receive_state = ReceiveState::steady;
  peer.ring.reset();
  // Its budget and limits change with the pattern: ask again after a few decisions, not at once.
  constexpr int kPatience = 4;
  peer.refused_until = clock_.now() + kPatience * settings_.interval;
  peer.reason = fmt::format("RC refused by peer: {}", wire::explain(message.refusal));
  decided(peer, fmt::format("refused by peer: {}", wire::explain(message.refusal)));
  drop_rc_if_unused(peer);
}

void EndpointCore::on_closed(Peer& peer) {
  if (peer.send_state == SendState::accepted) peer.send_state = SendState::steady;
  peer.send_uses_rc = false;
  drop_rc_if_unused(peer);
}

}  // namespace turnout
