// SPDX-License-Identifier: BSD-3-Clause
// Receives messages: stream order of each source, matching, posted receives.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "base/log.h"
#include "core/endpoint/endpoint_core.h"

namespace turnout {
namespace {
// How far out of order a message may arrive: more than all credits of both channels together.
constexpr std::uint32_t kMaxAhead = 1u << 16;
}  // namespace

Completion EndpointCore::completion_of(const wire::Header& header, PeerId peer,
                                       std::size_t length) const {
  Completion completion;
  completion.length = length;
  completion.tag = header.tag;
  completion.data = header.data;
  completion.flags = kRecv | ((header.flags & wire::kTagged) != 0 ? kTagged : kMessage) |
                     ((header.flags & wire::kRemoteData) != 0 ? kRemoteData : 0u);
  completion.source = peer;
  return completion;
}

// False: the sender cannot be rejected now; the message is to be handled again later.
bool EndpointCore::on_wireup_request(const wire::WireupRequest& wireup, PeerId* id) {
  *id = kAnyPeer;
  auto address = Address::decode(&wireup.address, sizeof(Address));
  Status status = address.status();
  Peer* peer = nullptr;
  if (address) peer = make_peer(address.value(), &status);
  if (peer == nullptr) {
    if (address && !reject(wireup)) return false;
    TURNOUT_LOG(protocol, error, "wire-up failed: a request from a new peer was rejected: {}",
                status.text());
    return true;
  }
  *id = peer->id;
  peer->remote_index = wireup.index;
  // Its next messages need no wire-up request once it knows its index here.
  if (peer->link && std::exchange(peer->link->replied_to_wireup, true))
    return true;  // already sent
  wire::ControlMessage reply;
  reply.type = wire::Control::wireup_reply;
  reply.own_index = peer->id;
  send_control(*peer, Purpose::credit, reply);
  return true;
}

void EndpointCore::on_data(std::uint32_t buffer, std::uint32_t length) {
  wire::Parsed parsed;
  if (Status status = wire::parse_data(
          received(buffer), std::min(length, receive_pool_.size() - receive_offset_), &parsed);
      !status.ok()) {
    TURNOUT_LOG(protocol, error, "receiving a message failed: {}; it was dropped", status.text());
    to_post_.push_back(buffer);
    return;
  }
  if (parsed.header.type == wire::Type::control) {
    TURNOUT_LOG(
        protocol, error,
        "receiving a message failed: control message in the shared receive queue; it was dropped");
    to_post_.push_back(buffer);
    return;
  }
  PeerId id = parsed.header.index;
  if (parsed.wireup != nullptr && !on_wireup_request(*parsed.wireup, &id)) {
    pending_wireups_.push_back({buffer, length});
    return;
  }
  Peer* const peer = find_peer(id);
  if (peer == nullptr || peer->lost) {
    if (id != kAnyPeer) TURNOUT_LOG(protocol, debug, "dropped a message of peer {}", id);
    to_post_.push_back(buffer);
    return;
  }
  peer->heard_since_tick = true;
  if (peer->link && !data_came(*peer, parsed.header, buffer)) return;
  take_message(*peer, parsed, buffer, length);
}

void EndpointCore::take_message(Peer& peer, const wire::Parsed& parsed, std::uint32_t buffer,
                                std::uint32_t length) {
  const std::uint32_t ahead = parsed.header.sequence - peer.receive_sequence;
  if (ahead == 0 && may_deliver(peer, parsed.header)) {
    deliver(peer, parsed.header, Arrival{storage_of(buffer), parsed.payload, buffer, 0, nullptr});
    if (!peer.reorder_buffer.empty()) drain_reorder_buffer(peer);
    if (peer.receive_state == ReceiveState::draining) finish_drain(peer);
  } else if (ahead < kMaxAhead) {
    keep_out_of_order(peer, {parsed.header.sequence, buffer, length, nullptr});
  } else {  // already delivered: a reposted work request
    free_receive(buffer);
  }
}

// The missing message must find a receive, and more credits may be granted than receives exist.
void EndpointCore::keep_out_of_order(Peer& peer, OutOfOrderMessage message) {
  if (!receive_pool_.is_private(message.buffer)) {
    if (receives_scarce()) message.copy = copy_aside(received(message.buffer), message.length);
    if (message.copy) {
      to_post_.push_back(message.buffer);
    } else {
      ++receives_kept_;
    }
  }
  peer.reorder_buffer.push_back(std::move(message));
}

// The caller delivers or frees it.
OutOfOrderMessage EndpointCore::take_out_of_order(Peer& peer, std::size_t at) {
  OutOfOrderMessage message = std::move(peer.reorder_buffer[at]);
  peer.reorder_buffer.erase(peer.reorder_buffer.begin() + static_cast<std::ptrdiff_t>(at));
  if (!message.copy && !receive_pool_.is_private(message.buffer)) --receives_kept_;
  return message;
}

void EndpointCore::free_out_of_order(const OutOfOrderMessage& message) {
  if (message.copy) {
    account_.release(MemoryKind::unexpected, message.length);
  } else {
    free_receive(message.buffer);
  }
}

void EndpointCore::drain_reorder_buffer(Peer& peer) {
  for (std::size_t i = 0; i < peer.reorder_buffer.size();) {
    const auto ahead =
        static_cast<std::int32_t>(peer.reorder_buffer[i].sequence - peer.receive_sequence);
    if (ahead < 0) {  // duplicate: a reposted work request
      free_out_of_order(take_out_of_order(peer, i));
      continue;
    }
    if (ahead > 0) {
      ++i;
      continue;
    }
    wire::Parsed parsed;
    const Status status =
        wire::parse_data(bytes_of(peer.reorder_buffer[i]), peer.reorder_buffer[i].length, &parsed);
    if (status.ok() && !may_deliver(peer, parsed.header)) return;
    OutOfOrderMessage message = take_out_of_order(peer, i);
    if (!status.ok()) {  // was parsed on arrival
      free_out_of_order(message);
      continue;
    }
    if (message.copy) {
      deliver(peer, parsed.header,
              Arrival{UnexpectedMessage::Storage::heap, parsed.payload, 0, 0, &message.copy});
      // Stored messages are accounted by their payload length.
      const std::size_t kept = message.copy ? 0 : parsed.header.length;
      account_.release(MemoryKind::unexpected, message.length - kept);
    } else {
      deliver(peer, parsed.header,
              Arrival{storage_of(message.buffer), parsed.payload, message.buffer, 0, nullptr});
    }
    if (peer.lost) return;
    i = 0;
  }
}

bool EndpointCore::poll_rings(std::vector<Peer*>& rings) {
  return go_on_with_each(rings, [this](Peer& peer) { return poll_ring(peer); });
}

// A round for ReceiveCost. A ring's messages include the cost of the rings polled before it.
bool EndpointCore::poll_measured() {
  Nanoseconds begun = clock_.now();
  std::uint64_t before = delivered_;
  const std::size_t controls = to_post_control_.size();
  bool moved = poll_receive_queue();
  // Control messages in between would be counted as ring messages.
  if (delivered_ > before && to_post_control_.size() == controls) {
    receive_cost_.open(clock_.now() - begun, delivered_ - before);
  }
  begun = clock_.now();
  moved |= go_on_with_each(rings_.speaking(), [&](Peer& peer) {
    const ChannelKind kind = peer.receive_kind;
    before = delivered_;
    const bool got = poll_ring(peer);
    if (delivered_ > before) {
      const Nanoseconds now = clock_.now();
      receive_cost_.add(kind, now - begun, delivered_ - before, delivered_);
      begun = now;
    }
    return got;
  });
  return moved;
}

bool EndpointCore::poll_ring(Peer& peer) {
  bool moved = false;
  charge(Work::poll_ring, 1);
  wire::Header header;
  // Reads all messages of a ring, but at most one pass through it, for fairness.
  for (std::uint32_t n = peer.ring->entries(); n > 0; --n) {
    if (!peer.ring->poll(&header) || header.sequence != peer.receive_sequence) break;
    if (peer.ring->checked()) [[unlikely]]
      charge(Work::copy,
             2 * (header.length + sizeof header));  // checksummed, and overwritten when free
    if (Status status = wire::check_header(header); !status.ok() || !peer.ring->fits(header) ||
                                                    (header.flags & wire::kWireup) != 0 ||
                                                    header.type == wire::Type::control) {
      lose_peer(peer,
                Status{Code::invalid,
                       fmt::format("{}: damaged message in its ring: {}", peer.address.to_string(),
                                   status.ok() ? "length or type out of range" : status.text())});
      return true;
    }
    if (!may_deliver(peer, header)) break;
    const std::byte* const payload = peer.ring->payload(header);
    const std::uint64_t position = peer.ring->advance();
    peer.heard_since_tick = true;
    deliver(peer, header, Arrival{UnexpectedMessage::Storage::ring, payload, 0, position, nullptr});
    moved = true;
    if (peer.lost) return true;
    if (!peer.reorder_buffer.empty()) drain_reorder_buffer(peer);
  }
  if (moved) {
    rings_.spoke(peer);
    if (peer.receive_state == ReceiveState::draining) finish_drain(peer);
  }
  return moved;
}

void EndpointCore::credits_given(Peer& peer, const wire::Header& header) {
  if (header.credits > 0) {
    peer.credits = std::min(peer.credits + header.credits, wire::kMostCredits);
  }
  if ((header.flags & wire::kPrivateCredits) != 0) [[unlikely]] {
    if (header.ring == static_cast<std::uint8_t>(peer.private_sender.request)) {
      on_private_credits(peer, peer.private_sender.request, header.ring_credits);
    }
    return;
  }
  // Late credits of an earlier ring are ignored.
  if (header.ring_credits > 0 && over_ring(peer.send_kind) &&
      header.ring == static_cast<std::uint8_t>(peer.ring_sender.request)) {
    peer.ring_sender.credits =
        std::min(peer.ring_sender.credits + header.ring_credits, peer.ring_sender.entries);
  }
}

void EndpointCore::give_ring_credits(Peer& peer, std::uint32_t count) {
  peer.unreported_ring += count;
  if (peer.ring && peer.unreported_ring >= peer.ring->entries() / 2) send_credits(peer);
}

// Frees the storage of a message and returns its credit.
void EndpointCore::release_arrival(Peer& peer, UnexpectedMessage::Storage storage,
                                   std::uint32_t buffer, std::uint64_t position) {
  switch (storage) {
    case UnexpectedMessage::Storage::buffer:
      to_post_.push_back(buffer);
      return_credit(peer);
      break;
    case UnexpectedMessage::Storage::private_receive:
      return_private_receive(buffer);
      break;
    case UnexpectedMessage::Storage::ring:
      if (peer.ring) give_ring_credits(peer, peer.ring->free(position));
      break;
    case UnexpectedMessage::Storage::heap:
      return_credit(peer);
      break;
    case UnexpectedMessage::Storage::none:
      break;
  }
}

void EndpointCore::deliver(Peer& peer, const wire::Header& header, const Arrival& arrival) {
  // Writes that were posted before this message was sent are complete.
  if (peer.rtrs_sent > 0) [[unlikely]]
    (void)poll_last_bytes(&peer);
  ++peer.receive_sequence;
  peer.stalled = false;
  eviction_.touch(peer.eviction, over_rc(peer.receive_kind));
  credits_given(peer, header);
  if ((header.flags & (wire::kLastCredit | wire::kUncredited)) != 0) [[unlikely]] {
    if ((header.flags & wire::kUncredited) != 0 &&
        (arrival.storage == UnexpectedMessage::Storage::buffer ||
         arrival.storage == UnexpectedMessage::Storage::heap)) {
      flow_.count_uncredited(peer.grant);
    }
    if ((header.flags & wire::kLastCredit) != 0) flow_.used_last_credit(peer.grant);
  }
  if (!wire::is_message(header.type)) {
    if (header.type == wire::Type::fragment) on_fragment(peer, header, arrival.payload);
    if (header.type == wire::Type::put_completion) on_put_completion(peer, header, arrival.payload);
    if (header.type == wire::Type::rtr_cancelled) on_rtr_cancelled(peer, header.tag);
    if (wire::is_request(header.type)) on_request(peer, header, arrival.payload);
    if (header.type == wire::Type::answer) on_answer(peer, header, arrival.payload);
    release_arrival(peer, arrival.storage, arrival.buffer, arrival.position);
    return;
  }
  std::optional<wire::Rts> rts;
  if (header.type == wire::Type::rts) {
    const Status status = wire::parse_rts(arrival.payload, header.length, &rts.emplace());
    if (!status.ok() || put_completed(peer, *rts)) {
      release_arrival(peer, arrival.storage, arrival.buffer, arrival.position);
      if (!status.ok()) lose_peer(peer, status);
      return;
    }
  }
  ++delivered_;
  ++peer.window;
  peer.received.count(wire::message_bytes(header, arrival.payload));
  peer.last_data = header.data;
  peer.last_had_data = (header.flags & wire::kRemoteData) != 0;
  charge(Work::match, 1);
  switch (header.type) {
    case wire::Type::eager: {
      const bool tagged = (header.flags & wire::kTagged) != 0;
      RecvOperation* const receive = matcher_.find_posted(peer.id, tagged, header.tag);
      if (receive == nullptr && !closing_) {
        keep_unexpected(peer, header, arrival);
        break;
      }
      if (receive == nullptr) {  // it will never be received; its sender must not wait
        release_arrival(peer, arrival.storage, arrival.buffer, arrival.position);
        break;
      }
      receive_eager(*receive, peer, header, arrival.payload);
      release_arrival(peer, arrival.storage, arrival.buffer, arrival.position);
      break;
    }
    case wire::Type::rts:
      deliver_large(peer, header, *rts, arrival);
      if (peer.lost) return;
      break;
    case wire::Type::rma_data: {
      Completion completion;
      completion.context = remote_write_report_.context;
      completion.length = header.tag;  // bytes written, see on_transfer_done
      completion.data = header.data;
      completion.flags = kRemoteWrite | kRemoteData;
      completion.source = peer.id;
      finish(remote_write_report_, completion);
      release_arrival(peer, arrival.storage, arrival.buffer, arrival.position);
      break;
    }
    case wire::Type::fragment:
    case wire::Type::wireup:
    case wire::Type::put_completion:
    case wire::Type::rtr_cancelled:
    case wire::Type::atomic:
    case wire::Type::put:
    case wire::Type::get:
    case wire::Type::answer:
    case wire::Type::control:
    case wire::Type::none:
      release_arrival(peer, arrival.storage, arrival.buffer, arrival.position);
      break;
  }
  on_message_counted(peer);
}

void EndpointCore::deliver_large(Peer& peer, const wire::Header& header, const wire::Rts& rts,
                                 const Arrival& arrival) {
  const bool tagged = (header.flags & wire::kTagged) != 0;
  RecvOperation* const receive = rts.has_rtr != 0
                                     ? incoming_.find(rts.rtr)->receive  // see put_completed()
                                     : matcher_.find_posted(peer.id, tagged, header.tag);
  if (receive == nullptr && closing_) {
    release_arrival(peer, arrival.storage, arrival.buffer, arrival.position);
    return;
  }
  if (receive == nullptr) {
    keep_unexpected(peer, header, arrival);
    return;
  }
  if (rts.has_rtr != 0) {
    // A late write of the failed queue pair must not reach the next message's buffer.
    for (Registration& region : receive->rtr->regions) region.discard();
  }
  const Place place = place_in(*receive, rts.total);
  if (const DataPath path = path_of_transfer(peer); path != DataPath::wait) {
    start_get(*receive, peer, header, rts, place, path);
    release_arrival(peer, arrival.storage, arrival.buffer, arrival.position);
    return;
  }
  UnexpectedMessage& message = store(peer, header, arrival);
  message.receive = receive;
  message.place = place;
  waiting_.push_back(&message);
}

void EndpointCore::receive_eager(RecvOperation& receive, Peer& peer, const wire::Header& header,
                                 const std::byte* payload) {
  Completion completion = completion_of(header, peer.id, 0);
  const std::size_t offset = receive.used;
  const std::size_t free = receive.iov.total - offset;
  std::size_t length = header.length;
  if ((header.flags & wire::kAcknowledge) != 0) {
    acknowledge(peer, payload);
    payload += wire::kOperationBytes;
    length -= wire::kOperationBytes;
  }
  const std::size_t n = std::min(length, free);
  receive.iov.copy_in(offset, payload, n);
  charge(Work::copy, n);
  completion.length = n;
  if (receive.iov.count > 0) {
    completion.buffer = static_cast<std::byte*>(receive.iov.parts[0].iov_base) + offset;
  }
  if (receive.multi) receive.used += n;
  end_receive(receive, completion, length - n, Status{});
}

// The sender waits for delivery.
void EndpointCore::acknowledge(Peer& peer, const std::byte* payload) {
  std::uint64_t operation;
  std::memcpy(&operation, payload, sizeof operation);
  send_fin(peer, operation, Status{});
}

void EndpointCore::unpost(RecvOperation& receive) {
  if (!receive.posted) return;
  matcher_.remove(&receive);
  receive.posted = false;
  if (receive.rtr != nullptr) abandon_rtr(receive);
}

// A message of this receive is complete: reports it, and retires the receive when it is exhausted.
void EndpointCore::end_receive(RecvOperation& receive, const Completion& ended,
                               std::size_t overflow, Status status) {
  Completion completion = ended;
  completion.context = receive.report.context;
  if (status.ok() && overflow > 0) {
    status = Status{Code::truncated,
                    fmt::format("the message exceeds its receive buffer by {} bytes", overflow)};
  }
  bool gone = !receive.multi;
  if (receive.multi) {
    if (!receive.exhausted &&
        receive.iov.total - receive.used < std::max<std::size_t>(receive.min_free, 1)) {
      receive.exhausted = true;
      unpost(receive);
    }
    gone = receive.exhausted && receive.transfers == 0;
    if (gone) completion.flags |= kMultiRecvDone;
  }
  if (gone) unpost(receive);
  if (status.ok()) {
    finish(receive.report, completion);
  } else {
    fail(receive.report, completion, std::move(status), overflow);
  }
  if (gone) {
    if (receive.match.peer != kAnyPeer) --peers_[receive.match.peer]->directed_receives;
    receives_.give_back(&receive);
  }
}

Status EndpointCore::recv_now(const RecvRequest& request) {
  Peer* const peer = request.peer == kAnyPeer ? nullptr : find_peer(request.peer);
  if (request.peer != kAnyPeer && peer == nullptr) {
    return {Code::invalid, fmt::format("recv: no such peer: {}", request.peer)};
  }
  // Its message may have arrived already, which would make an RTR useless.
  const bool sends_rtr = peer != nullptr && wants_rtr(request, *peer);
  if (sends_rtr) {
    (void)poll_receive_queue();
    if (peer->ring_poll != RingPoll::none) (void)poll_ring(*peer);
  }
  RecvOperation* const receive = take_for_caller(receives_);
  if (receive == nullptr) return refusal();
  if (!receive->iov.set(request.buffer)) {
    receives_.give_back(receive);
    return {Code::invalid,
            fmt::format("recv: {} IOV entries, at most {}", request.buffer.size(), kMaxIov)};
  }
  receive->match = {request.peer, request.tag, request.ignore, request.tagged};
  receive->report = request.report;
  receive->multi = request.multi;
  receive->min_free = request.min_free;
  if (peer != nullptr) ++peer->directed_receives;
  matcher_.post(receive);
  receive->posted = true;
  for (;;) {
    UnexpectedMessage* const message = matcher_.find_unexpected(receive->match);
    if (message == nullptr) break;
    matcher_.remove_unexpected(message);
    take_unexpected(*receive, *message);
    // An exhausted receive has left the list, and its record may be in use again.
    if (matcher_.posted(request.tagged).last() != receive) return {};
  }
  if (peer != nullptr && peer->lost) {
    --peer->directed_receives;
    unpost(*receive);
    Status status = peer->loss;
    receives_.give_back(receive);
    return status;
  }
  if (sends_rtr) send_rtr(*receive, *peer);
  return {};
}

void EndpointCore::end_cancelled(RecvOperation& receive) {
  unpost(receive);
  if (receive.match.peer != kAnyPeer) --peers_[receive.match.peer]->directed_receives;
  Completion completion;
  completion.context = receive.report.context;
  completion.tag = receive.match.tag;
  completion.flags = kRecv | (receive.match.tagged ? kTagged : kMessage) |
                     (receive.multi ? static_cast<unsigned>(kMultiRecvDone) : 0u);
  fail(receive.report, completion, Status{Code::canceled, "cancelled"});
  receives_.give_back(&receive);
}

bool EndpointCore::cancel(void* context) {
  for (const bool tagged : {true, false}) {
    for (RecvOperation* r = matcher_.posted(tagged).last(); r != nullptr; r = r->previous) {
      if (r->report.context != context || r->transfers > 0 || r->cancelled) continue;
      if (r->rtr == nullptr) {
        end_cancelled(*r);
        return true;
      }
      // Its message may be in the process of being written.
      r->cancelled = true;
      wire::ControlMessage message;
      message.type = wire::Control::rtr_cancel;
      message.operation = r->rtr->incoming_id;
      send_control(*r->rtr->peer, Purpose::credit, message);
      return true;
    }
  }
  for (Peer* peer : backlogged_) {
    for (SendOperation* s = peer->backlog.last(); s != nullptr; s = s->previous) {
      if (s->report.context != context || s->report.queue == nullptr) continue;
      peer->backlog.remove(s);
      end_send(*s, Status{Code::canceled, "cancelled"});
      return true;
    }
  }
  return false;
}

}  // namespace turnout
