// SPDX-License-Identifier: BSD-3-Clause
// Unexpected messages: their storage, matching with later receives, peek and claim, and what
// happens when the budget is used up.
//
// A message is copied aside while TURNOUT_UNEXPECTED_MEMORY allows, and its credit returned. Beyond
// that it retains its receive buffer or ring entry, and its credit, so the sender is throttled. If
// a receive for that peer is posted, the matching message may be behind the retained ones, so
// messages are copied beyond the limit, up to the budget. If even a record does not fit, the stream
// of that peer stalls until one is free; its messages wait in their buffers.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/log.h"
#include "core/endpoint/endpoint_core.h"

namespace turnout {
namespace {
// Time, in units of TURNOUT_KEEPALIVE, after which a warning is logged for a stalled peer that a
// receive waits for; then the time after which its operations fail, so that the job does not hang.
constexpr int kTellAfter = 10;
constexpr int kGiveUpAfter = 30;
}  // namespace

// Whether the memory that this message, the next of its stream, needs is available.
bool EndpointCore::has_room_for(Peer& peer, const wire::Header& header) {
  if (closing_) [[unlikely]]
    return true;  // it is dropped
  if (wire::is_request(header.type)) [[unlikely]]
    return may_answer(peer);
  if (messages_.ready()) [[likely]]
    return true;
  if (header.type != wire::Type::eager && header.type != wire::Type::rts) return true;
  const bool tagged = (header.flags & wire::kTagged) != 0;
  const bool awaited = matcher_.find_posted(peer.id, tagged, header.tag) != nullptr;
  return awaited && (header.type == wire::Type::eager || transfers_.ready());
}

// Otherwise stalls the stream.
bool EndpointCore::may_deliver(Peer& peer, const wire::Header& header) {
  if (has_room_for(peer, header)) [[likely]]
    return true;
  peer.stalled = true;
  peer.atomic_stalled = wire::is_request(header.type);
  if (!peer.stall_listed) {
    peer.stall_listed = true;
    stalled_.push_back(&peer);
  }
  return false;
}

// Retries stalled messages; those in rings are retried by poll_rings().
bool EndpointCore::pump_stalled() {
  bool moved = false;
  for (std::size_t n = pending_wireups_.size(); n > 0; --n) {
    const PendingWireup pending = pending_wireups_.front();
    pending_wireups_.erase(pending_wireups_.begin());
    on_data(pending.buffer, pending.length);
  }
  for (std::size_t i = 0; i < stalled_.size();) {
    Peer& peer = *stalled_[i];
    if (!peer.lost && !peer.reorder_buffer.empty()) {
      const std::uint32_t before = peer.receive_sequence;
      drain_reorder_buffer(peer);
      moved |= before != peer.receive_sequence;
      if (peer.receive_state == ReceiveState::draining) finish_drain(peer);
    }
    if (peer.lost || !peer.stalled) {
      peer.stall_listed = false;
      stalled_[i] = stalled_.back();
      stalled_.pop_back();
    } else {
      ++i;
    }
  }
  return moved;
}

// Creates the record; may_deliver() has checked that there is room.
UnexpectedMessage& EndpointCore::store(Peer& peer, const wire::Header& header,
                                       const Arrival& arrival) {
  UnexpectedMessage& message = *messages_.take();
  message.peer = peer.id;
  message.tagged = (header.flags & wire::kTagged) != 0;
  message.tag = header.tag;
  message.header = header;
  message.total = wire::message_bytes(header, arrival.payload);
  message.payload = arrival.payload;
  message.storage = arrival.storage;
  message.buffer = arrival.buffer;
  message.position = arrival.position;
  if (arrival.storage == UnexpectedMessage::Storage::heap) {  // copied while out of order
    message.heap = std::move(*arrival.heap);
    unexpected_bytes_ += header.length + sizeof(UnexpectedMessage);
    return_credit(peer);
    return message;
  }
  ++peer.retained;
  if (arrival.storage == UnexpectedMessage::Storage::buffer) {
    ++receives_kept_;
    SrqFlowControl::retain(peer.grant);
  }
  // Exceeding the limit is better than retaining the receives that others need. Retained messages
  // must not block fragments of a large message, answers, or a disconnect either.
  const bool scarce =
      (arrival.storage == UnexpectedMessage::Storage::buffer && receives_scarce()) ||
      peer.incoming_large > 0 || owes_answers(peer) || peer.eviction.disconnecting;
  const std::uint64_t bytes = header.length + sizeof(UnexpectedMessage);
  if (unexpected_bytes_ + bytes <= settings_.unexpected_memory || scarce) {
    (void)set_aside(message);  // if the budget refuses, the message is retained
  }
  if (message.storage == UnexpectedMessage::Storage::buffer && flow_.retained(peer.grant)) {
    send_credits(peer);
  }
  return message;
}

void EndpointCore::keep_unexpected(Peer& peer, const wire::Header& header, const Arrival& arrival) {
  ++unexpected_count_;
  UnexpectedMessage& message = store(peer, header, arrival);
  profile_.unexpected.count(message.total);
  matcher_.add_unexpected(&message);
}

// Null: the budget has no room.
std::unique_ptr<std::byte[]> EndpointCore::copy_aside(const std::byte* from, std::size_t length) {
  if (!account_.reserve(MemoryKind::unexpected, length)) return nullptr;
  auto copy = std::make_unique_for_overwrite<std::byte[]>(length);
  std::memcpy(copy.get(), from, length);
  charge(Work::copy, length);
  return copy;
}

// Copies the message aside and returns its credit.
bool EndpointCore::set_aside(UnexpectedMessage& message) {
  Peer& peer = *peers_[message.peer];
  const std::size_t length = message.header.length;
  const UnexpectedMessage::Storage from = message.storage;
  if (length > 0) {
    message.heap = copy_aside(message.payload, length);
    if (!message.heap) return false;
  }
  message.payload = message.heap.get();
  message.storage =
      length > 0 ? UnexpectedMessage::Storage::heap : UnexpectedMessage::Storage::none;
  unexpected_bytes_ += length + sizeof(UnexpectedMessage);
  --peer.retained;
  if (from == UnexpectedMessage::Storage::buffer) {
    --receives_kept_;
    SrqFlowControl::release(peer.grant);
  }
  release_arrival(peer, from, message.buffer, message.position);
  return true;
}

// Copies retained messages of the peer aside, as far as the budget allows. Large messages may wait
// for a transfer that ends only when the fragments of others have arrived.
bool EndpointCore::relieve(Peer& peer) {
  bool moved = false;
  for (const auto* const list :
       {&matcher_.unexpected(true), &matcher_.unexpected(false), &claimed_, &waiting_}) {
    for (UnexpectedMessage* m = list->first(); m != nullptr; m = m->next) {
      if (peer.retained == 0) return moved;
      const bool in_place = m->storage != UnexpectedMessage::Storage::heap &&
                            m->storage != UnexpectedMessage::Storage::none;
      if (m->peer != peer.id || !in_place) continue;
      if (!set_aside(*m)) return moved;
      moved = true;
    }
  }
  return moved;
}

// Once a keep-alive round.
void EndpointCore::look_after_retained(Peer& peer, bool wildcards, Nanoseconds now) {
  const bool moving = peer.seen_at_round != peer.receive_sequence;
  peer.seen_at_round = peer.receive_sequence;
  // Messages of others may occupy every receive that its next one needs.
  const bool starved = receives_kept_ >= receive_pool_.count();
  if (moving || (peer.retained == 0 && !peer.stalled && !starved)) {
    peer.stuck_since = 0;
    return;
  }
  // An atomic request without room for its answer counts, although no receive waits for it.
  const bool refused = peer.stalled && peer.atomic_stalled;
  const bool waited = wildcards || peer.directed_receives > 0 || peer.incoming_large > 0 ||
                      owes_answers(peer) || refused;
  const bool scarce = receives_scarce();
  if ((!waited && !scarce) || relieve(peer)) {
    peer.stuck_since = 0;
    return;
  }
  if (!waited) return;
  if (peer.stuck_since == 0) {
    peer.stuck_since = now;
    peer.stuck_reported = false;
  }
  const Nanoseconds stuck = now - peer.stuck_since;
  if (stuck < kTellAfter * settings_.keepalive ||
      (peer.stuck_reported && stuck < kGiveUpAfter * settings_.keepalive)) {
    return;
  }
  Status why{Code::over_budget,
             fmt::format("receiving failed: {}: a receive or an atomic operation is blocked "
                         "because unexpected messages fill TURNOUT_MEMORY_BUDGET={}; raise it, or "
                         "post receives in the order of the sends",
                         peer.address.to_string(), account_.budget())};
  if (stuck >= kGiveUpAfter * settings_.keepalive) {
    lose_peer(peer, why);
  } else {
    peer.stuck_reported = true;
    TURNOUT_LOG(protocol, warn, "{}", why.text());
  }
}

// The message is in no list any more.
void EndpointCore::release_unexpected(UnexpectedMessage& message) {
  Peer& peer = *peers_[message.peer];
  switch (message.storage) {
    case UnexpectedMessage::Storage::heap:
      account_.release(MemoryKind::unexpected, message.header.length);
      [[fallthrough]];
    case UnexpectedMessage::Storage::none:
      unexpected_bytes_ -= message.header.length + sizeof(UnexpectedMessage);
      break;
    case UnexpectedMessage::Storage::buffer:
      --receives_kept_;
      SrqFlowControl::release(peer.grant);
      [[fallthrough]];
    case UnexpectedMessage::Storage::private_receive:
    case UnexpectedMessage::Storage::ring:
      --peer.retained;
      release_arrival(peer, message.storage, message.buffer, message.position);
      break;
  }
  messages_.give_back(&message);
  if (peer.receive_state == ReceiveState::draining) finish_drain(peer);
}

// Discarded by the program: for its sender it is received.
void EndpointCore::drop_unexpected(UnexpectedMessage& message) {
  Peer& peer = *peers_[message.peer];
  if (message.header.type == wire::Type::rts) {
    wire::Rts rts;
    if (wire::parse_rts(message.payload, message.header.length, &rts).ok()) {
      send_fin(peer, rts.operation, Status{});
    }
  } else if ((message.header.flags & wire::kAcknowledge) != 0) {
    acknowledge(peer, message.payload);
  }
  release_unexpected(message);
}

// A new receive matches an earlier message; the message is in no list any more.
void EndpointCore::take_unexpected(RecvOperation& receive, UnexpectedMessage& message) {
  if (message.header.type == wire::Type::rts) {
    message.receive = &receive;
    message.place = place_in(receive, message.total);
    if (const DataPath path = path_of_transfer(*peers_[message.peer]); path != DataPath::wait) {
      start_waiting(message, path);
    } else {
      waiting_.push_back(&message);
    }
    return;
  }
  receive_eager(receive, *peers_[message.peer], message.header, message.payload);
  release_unexpected(message);
}

// A transfer is free, or the peer is lost. The message is in no list any more.
void EndpointCore::start_waiting(UnexpectedMessage& message, DataPath path) {
  Peer& peer = *peers_[message.peer];
  wire::Rts rts;
  // Parsed again: the peer can still write to the ring.
  if (Status status = wire::parse_rts(message.payload, message.header.length, &rts);
      !status.ok() || rts.total != message.total) {
    lose_peer(peer,
              status.ok() ? Status{Code::invalid, "RTS: modified after it was sent"} : status);
  }
  start_get(*message.receive, peer, message.header, rts, message.place, path);
  release_unexpected(message);
}

bool EndpointCore::pump_waiting() {
  bool moved = false;
  for (UnexpectedMessage* message = waiting_.first(); message != nullptr;) {
    UnexpectedMessage* const next = message->next;
    Peer& peer = *peers_[message->peer];
    const DataPath path = path_of_transfer(peer);
    if (peer.lost || path != DataPath::wait) {
      waiting_.remove(message);
      start_waiting(*message, path);
      moved = true;
    }
    message = next;
  }
  return moved;
}

// The status for an operation without a free record: the caller retries while others end.
Status EndpointCore::refusal() {
  const Nanoseconds now = clock_.now();
  if (refused_since_ == 0) refused_since_ = now;
  if (now - refused_since_ < kGiveUpAfter * settings_.keepalive) {
    return {Code::again, "no memory for the operation within the budget"};
  }
  return {Code::over_budget,
          fmt::format("TURNOUT_MEMORY_BUDGET={} has no room for another operation, and none has "
                      "completed for {} s; raise it",
                      account_.budget(), (now - refused_since_) / 1'000'000'000)};
}

Status EndpointCore::peek(const PeekRequest& request) {
  const PostedMatch match{request.peer, request.tag, 0, request.tagged};
  PostedMatch wanted = match;
  wanted.ignore = request.ignore;
  UnexpectedMessage* message = matcher_.find_unexpected(wanted);
  if (message == nullptr) {
    progress();
    message = matcher_.find_unexpected(wanted);
  }
  Completion completion;
  completion.context = request.report.context;
  completion.tag = request.tag;
  completion.flags = kRecv | (request.tagged ? kTagged : kMessage);
  if (message == nullptr) {
    Peer* const peer = request.peer == kAnyPeer ? nullptr : find_peer(request.peer);
    if (peer != nullptr && peer->lost) {
      fail(request.report, completion, peer->loss);
    } else {
      fail(request.report, completion, Status{Code::no_message, "no matching message has arrived"});
    }
    return {};
  }
  completion = completion_of(message->header, message->peer, message->total);
  completion.context = request.report.context;
  if (request.discard || request.claim) matcher_.remove_unexpected(message);
  if (request.claim) {
    completion.flags |= kClaimed;
    message->claim = request.report.context;
    claimed_.push_back(message);
  } else if (request.discard) {
    drop_unexpected(*message);
  }
  finish(request.report, completion);
  return {};
}

Status EndpointCore::recv_claimed(const RecvRequest& request) {
  for (UnexpectedMessage* m = claimed_.first(); m != nullptr; m = m->next) {
    if (m->claim != request.report.context) continue;
    RecvOperation* const receive = take_for_caller(receives_);
    if (receive == nullptr) return refusal();
    if (!receive->iov.set(request.buffer)) {
      receives_.give_back(receive);
      return {Code::invalid,
              fmt::format("recv: {} IOV entries, at most {}", request.buffer.size(), kMaxIov)};
    }
    receive->match = {kAnyPeer, m->tag, 0, m->tagged};
    receive->report = request.report;
    claimed_.remove(m);
    take_unexpected(*receive, *m);
    return {};
  }
  return {Code::invalid, "no claimed message has this context"};
}

Status EndpointCore::discard_claimed(const Report& report) {
  for (UnexpectedMessage* m = claimed_.first(); m != nullptr; m = m->next) {
    if (m->claim != report.context) continue;
    claimed_.remove(m);
    Completion completion = completion_of(m->header, m->peer, 0);
    completion.context = report.context;
    drop_unexpected(*m);
    finish(report, completion);
    return {};
  }
  return {Code::invalid, "no claimed message has this context"};
}

}  // namespace turnout
