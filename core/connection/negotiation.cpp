// J1-J5 of AQPS 3.3: how one direction of a pair changes between the start service (DC-sendrecv, or
// UD-sendrecv where there is no DC), a ring written over DC and a ring written over an RC queue
// pair, with what the paper leaves out: refusal and counter-offer, crossing requests, the way back,
// reuse of queue pairs.
//
// To RC the receiver of the data asks (J1) with its ring and its RC queue pair. The sender makes
// its own, connects it and accepts (J2), or refuses, or says that it writes into the ring over DC
// instead. The receiver connects (J3, ready); the sender switches and tells the last sequence
// number of the old channel (J4). Order needs no more: every message carries its sequence number
// and is delivered by it (J5). A ring over DC needs no queue pair: request, switched.
//
// The way back has the same shape: request, switched, and from RC `closed` when all that was sent
// over it has been delivered. Between the two kinds of ring the ring stays, with what lies in it
// and its credits: its entries are read in order whoever wrote them.
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
  placement_.ask_rc(*queue, *device_);
  queues_[id] = queue.get();
  peer.rc = std::move(queue);
  ++active_rc_;
  rc_peak_ = std::max<std::uint64_t>(rc_peak_, active_rc_ + rc_pool_.size());
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
  if (!peer.rc || peer.receive_kind == ChannelKind::rc_rdma ||
      peer.receive_state != ReceiveState::steady || peer.send_uses_rc ||
      peer.send_state != SendState::steady || peer.send_kind == ChannelKind::rc_rdma) {
    return;
  }
  discard_rc(peer);
}

// J1: asks the peer to send into a ring of ours, over DC or RC. A ring that is there is kept.
Status EndpointCore::request_ring(Peer& peer, ChannelKind to, ChannelKind otherwise) {
  if (peer.remote_index == wire::kUnknownIndex) {
    return {Code::again, "the peer does not know this process yet"};
  }
  std::unique_ptr<RingReceiver> fresh;
  if (!peer.ring) {
    auto ring =
        RingReceiver::create(*device_, account_, static_cast<std::uint32_t>(settings_.ring_entries),
                             static_cast<std::uint32_t>(settings_.ring_entry_size), spare());
    if (!ring) return ring.status();
    fresh = std::make_unique<RingReceiver>(std::move(ring).value());
  }
  if (to == ChannelKind::rc_rdma) {
    if (Status status = make_rc(peer); !status.ok()) return status;
    if (peer.ring && !peer.ring->checked() && !placement_.rc_in_order().value_or(true)) {
      return {Code::unsupported,
              "left on DC-RDMA: the adapter places what comes over RC in any order, and the ring "
              "there has no checksums"};
    }
  }
  if (fresh && placement_.checks()) fresh->check();
  wire::ControlMessage message;
  message.request = ++peer.request;
  if (fresh) {
    peer.ring = std::move(fresh);
    peer.ring_request = message.request;
    peer.owed_ring = 0;
  }
  peer.receive_state = ReceiveState::requested;
  peer.wanted = to;
  peer.requested_at = clock_.now();
  message.type = wire::Control::request;
  message.kind = static_cast<std::uint8_t>(to);
  message.otherwise = static_cast<std::uint8_t>(otherwise);
  message.qp_number = to == ChannelKind::rc_rdma ? peer.rc->number() : 0;
  message.ring_address = peer.ring->address();
  message.ring_rkey = peer.ring->rkey();
  message.ring_entries = peer.ring->entries();
  message.ring_checked = peer.ring->checked() ? 1 : 0;
  message.entry_log2 = static_cast<std::uint8_t>(std::bit_width(peer.ring->entry_size()) - 1);
  send_control(peer, Purpose::establishment, message);
  return {};
}

// Asks the peer to leave our ring, or to write into it over DC instead of RC.
void EndpointCore::request_return(Peer& peer, ChannelKind to) {
  peer.receive_state = ReceiveState::closing;
  peer.wanted = to;
  peer.requested_at = clock_.now();
  wire::ControlMessage message;
  message.type = wire::Control::request;
  message.kind = static_cast<std::uint8_t>(to);
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

// J4, at the sender of the data: its next message takes the other channel.
void EndpointCore::switch_sending(Peer& peer, ChannelKind to, const wire::ControlMessage& request,
                                  wire::Refusal refusal) {
  peer.send_kind = to;
  peer.sent.change(to, age());
  wire::ControlMessage answer;
  answer.type = wire::Control::switched;
  answer.kind = static_cast<std::uint8_t>(to);
  answer.refusal = refusal;
  answer.request = request.request;
  answer.last_sequence = peer.send_sequence - 1;
  send_control(peer, Purpose::establishment, answer);
}

// J2, at the sender of the data.
void EndpointCore::on_request(Peer& peer, const wire::ControlMessage& message) {
  const auto to = static_cast<ChannelKind>(message.kind);
  const bool over_dc = to == ChannelKind::dc_rdma;
  if (to == base_ || (over_dc && peer.send_kind == ChannelKind::rc_rdma)) {
    switch_sending(peer, to, message);
    return;
  }
  const std::uint32_t entry_size =
      message.entry_log2 >= 9 && message.entry_log2 <= 16 ? 1u << message.entry_log2 : 0;
  if (!over_ring(to) || message.ring_entries == 0 || message.ring_entries > kMaxRingEntries ||
      entry_size == 0 || (!over_dc && message.qp_number == 0) || (over_dc && over_datagrams())) {
    TURNOUT_LOG(connection, error,
                "{}: request of channel {} with {} entries of 2^{} bytes and queue pair {}",
                peer.address.to_string(), message.kind, message.ring_entries, message.entry_log2,
                message.qp_number);
    refuse(peer, message, wire::Refusal::device);
    return;
  }
  const bool has_ring = peer.send_kind == ChannelKind::dc_rdma;
  if (closing_ || peer.send_state != SendState::steady || peer.send_uses_rc ||
      peer.send_kind == ChannelKind::rc_rdma || (over_dc && has_ring)) {
    refuse(peer, message, wire::Refusal::busy);
    return;
  }
  if (!has_ring) {
    peer.offered_ring = RingSender{message.ring_address,
                                   message.ring_rkey,
                                   message.ring_entries,
                                   entry_size,
                                   message.ring_entries,
                                   message.request,
                                   0,
                                   message.ring_checked != 0};
  }
  if (over_dc) {
    peer.ring_sender = peer.offered_ring;
    switch_sending(peer, to, message);
    return;
  }
  wire::Refusal refusal = wire::Refusal::none;
  if (!peer.rc && active_rc_ >= settings_.max_active_rc) {
    refusal = wire::Refusal::limit;
  } else {
    Status status = make_rc(peer);
    if (status.ok()) status = connect_rc(peer, message.qp_number);
    if (status.code() == Code::over_budget) {
      refusal = wire::Refusal::budget;
    } else if (status.code() == Code::again) {
      refusal = wire::Refusal::limit;
    } else if (!status.ok()) {
      refusal = wire::Refusal::device;
      TURNOUT_LOG(connection, warn, "{}: {}", peer.address.to_string(), status.text());
    }
  }
  if (refusal != wire::Refusal::none) {
    drop_rc_if_unused(peer);
    if (!has_ring && !over_datagrams() &&
        static_cast<ChannelKind>(message.otherwise) == ChannelKind::dc_rdma) {
      ++refusals_;
      peer.ring_sender = peer.offered_ring;
      switch_sending(peer, ChannelKind::dc_rdma, message, refusal);
    } else {
      refuse(peer, message, refusal);
    }
    return;
  }
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
  if (peer.receive_state != ReceiveState::requested || message.request != peer.request ||
      peer.wanted != ChannelKind::rc_rdma) {
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
    drop_new_ring(peer);
    decided(peer, fmt::format("failed: {}", status.text()));
    drop_rc_if_unused(peer);
    return;
  }
  peer.receive_state = ReceiveState::accepted;
  answer.type = wire::Control::ready;
  send_control(peer, Purpose::establishment, answer);
}

// At the sender of the data: from here on it writes into the ring over RC.
void EndpointCore::on_ready(Peer& peer, const wire::ControlMessage& message) {
  if (peer.send_state != SendState::accepted || message.request != peer.answered_request) return;
  peer.send_state = SendState::steady;
  peer.send_uses_rc = true;
  if (peer.send_kind != ChannelKind::dc_rdma) peer.ring_sender = peer.offered_ring;
  switch_sending(peer, ChannelKind::rc_rdma, message);
}

// Another kind serves the direction peer -> us from the message after last_old on.
void EndpointCore::switch_receiving(Peer& peer, ChannelKind to) {
  const bool polled = over_ring(peer.receive_kind);
  peer.receive_state = ReceiveState::steady;
  peer.receive_kind = to;
  peer.received.change(to, age());
  if (over_ring(to) && !polled) rings_.push_back(&peer);
  if (!over_ring(to) && polled) {
    rings_.erase(std::remove(rings_.begin(), rings_.end(), &peer), rings_.end());
    peer.ring.reset();
    peer.owed_ring = 0;
  }
}

// A ring that was made for a request which came to nothing.
void EndpointCore::drop_new_ring(Peer& peer) {
  if (!over_ring(peer.receive_kind)) peer.ring.reset();
}

// J5, at the receiver of the data.
void EndpointCore::on_switched(Peer& peer, const wire::ControlMessage& message) {
  if (message.request != peer.request) return;
  const auto to = static_cast<ChannelKind>(message.kind);
  peer.last_old = message.last_sequence;
  if (peer.receive_state == ReceiveState::accepted && to == ChannelKind::rc_rdma) {
    switch_receiving(peer, to);
    done(peer);
  } else if (peer.receive_state == ReceiveState::requested && to == ChannelKind::dc_rdma &&
             !over_ring(peer.receive_kind)) {
    const bool instead = peer.wanted != to;
    switch_receiving(peer, to);
    if (instead) {
      wait_before_asking(peer, message.refusal, "; it writes the ring over DC");
      drop_rc_if_unused(peer);
    } else {
      done(peer);
    }
  } else if (peer.receive_state == ReceiveState::closing && to == peer.wanted) {
    peer.receive_state = ReceiveState::draining;
    finish_drain(peer);
  }
}

// What was left goes when everything sent over it is delivered and no read is under way on it; a
// ring that goes must not hold a message any more.
void EndpointCore::finish_drain(Peer& peer) {
  if (peer.receive_state != ReceiveState::draining || peer.lost) return;
  const bool drained = static_cast<std::int32_t>(peer.receive_sequence - peer.last_old) > 0 &&
                       peer.reads_over_rc == 0 &&
                       (over_ring(peer.wanted) || peer.ring->all_returned());
  if (!drained && !frees_before_drain_) return;
  const bool left_rc = peer.receive_kind == ChannelKind::rc_rdma;
  switch_receiving(peer, peer.wanted);
  if (left_rc) {
    wire::ControlMessage message;
    message.type = wire::Control::closed;
    message.request = peer.request;
    send_control(peer, Purpose::establishment, message);
  }
  done(peer);
  drop_rc_if_unused(peer);
}

// The peer's budget and limits change with the pattern: ask again after a few decisions, not at
// once.
void EndpointCore::wait_before_asking(Peer& peer, wire::Refusal why, std::string_view instead) {
  constexpr int kPatience = 4;
  peer.refused_until = clock_.now() + kPatience * settings_.interval;
  peer.reason = fmt::format("{} refused by peer: {}{}",
                            peer.wanted == ChannelKind::rc_rdma ? "RC" : name(peer.wanted),
                            wire::explain(why), instead);
  decided(peer, fmt::format("refused by peer: {}{}", wire::explain(why), instead));
}

void EndpointCore::on_refuse(Peer& peer, const wire::ControlMessage& message) {
  if (peer.receive_state != ReceiveState::requested || message.request != peer.request) return;
  peer.receive_state = ReceiveState::steady;
  drop_new_ring(peer);
  wait_before_asking(peer, message.refusal, "");
  drop_rc_if_unused(peer);
}

void EndpointCore::on_closed(Peer& peer) {
  if (peer.send_state == SendState::accepted) peer.send_state = SendState::steady;
  peer.send_uses_rc = false;
  drop_rc_if_unused(peer);
}

}  // namespace turnout
