// Messages in: the order of each source's stream, matching, unexpected messages, peek and claim.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/log.h"
#include "core/endpoint_core.h"

namespace turnout {
namespace {
// How far ahead of its turn a message may arrive: more than all credits of both channels together.
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

void EndpointCore::introduce(const wire::Introduction& introduction, PeerId* id) {
  auto address = Address::decode(&introduction.address, sizeof(Address));
  Status status = address.status();
  Peer* peer = nullptr;
  if (address) peer = make_peer(address.value(), &status);
  if (peer == nullptr) {
    TURNOUT_LOG(protocol, error, "a message from an unknown sender is dropped: {}", status.text());
    *id = kAnyPeer;
    return;
  }
  *id = peer->id;
  peer->remote_index = introduction.index;
  // Its next messages need no introduction once it knows which record is its own here.
  wire::ControlMessage welcome;
  welcome.type = wire::Control::welcome;
  welcome.own_index = peer->id;
  send_control(*peer, Purpose::credit, welcome);
}

void EndpointCore::on_data(std::uint32_t buffer, std::uint32_t length) {
  const std::byte* const bytes = receive_pool_.data(buffer);
  wire::Parsed parsed;
  if (Status status = wire::parse_data(bytes, std::min(length, receive_pool_.size()), &parsed);
      !status.ok()) {
    TURNOUT_LOG(protocol, error, "dropped: {}", status.text());
    to_post_.push_back(buffer);
    return;
  }
  PeerId id = parsed.header.index;
  if (parsed.introduction != nullptr) introduce(*parsed.introduction, &id);
  Peer* const peer = find_peer(id);
  if (peer == nullptr || peer->lost) {
    if (id != kAnyPeer) TURNOUT_LOG(protocol, debug, "a message of peer {} is dropped", id);
    to_post_.push_back(buffer);
    return;
  }
  peer->heard_since_tick = true;
  const std::uint32_t ahead = parsed.header.sequence - peer->receive_sequence;
  if (ahead == 0) {
    Arrival arrival{UnexpectedMessage::Storage::buffer, parsed.payload, buffer, 0};
    deliver(*peer, parsed.header, arrival);
    if (!peer->held.empty()) deliver_held(*peer);
    if (peer->receive_state == ReceiveState::draining) finish_drain(*peer);
  } else if (ahead < kMaxAhead) {
    peer->held.push_back({parsed.header.sequence, buffer, length});
    ++receives_kept_;
  } else {  // already delivered: a work request that was posted again
    to_post_.push_back(buffer);
  }
}

void EndpointCore::deliver_held(Peer& peer) {
  for (std::size_t i = 0; i < peer.held.size();) {
    if (peer.held[i].sequence != peer.receive_sequence) {
      ++i;
      continue;
    }
    const HeldMessage held = peer.held[i];
    peer.held.erase(peer.held.begin() + static_cast<std::ptrdiff_t>(i));
    --receives_kept_;
    wire::Parsed parsed;
    const Status status = wire::parse_data(receive_pool_.data(held.buffer), held.length, &parsed);
    if (!status.ok()) {  // it was parsed when it came
      to_post_.push_back(held.buffer);
      continue;
    }
    Arrival arrival{UnexpectedMessage::Storage::buffer, parsed.payload, held.buffer, 0};
    deliver(peer, parsed.header, arrival);
    i = 0;
  }
}

bool EndpointCore::poll_rings() {
  bool moved = false;
  charge(Work::poll_ring, rings_.size());
  for (std::size_t i = 0; i < rings_.size(); ++i) {
    Peer& peer = *rings_[i];
    moved |= poll_ring(peer);
    // The peer may have left the list meanwhile.
    if (i < rings_.size() && rings_[i] != &peer) --i;
  }
  return moved;
}

bool EndpointCore::poll_ring(Peer& peer) {
  bool moved = false;
  wire::Header header;
  // A ring is read as long as it has messages, but not beyond one round: others wait too.
  for (std::uint32_t n = peer.ring->entries(); n > 0; --n) {
    if (!peer.ring->poll(&header) || header.sequence != peer.receive_sequence) break;
    if (Status status = wire::check_header(header);
        !status.ok() || !peer.ring->fits(header) || (header.flags & wire::kIntroduced) != 0) {
      lose_peer(peer, Status{Code::invalid,
                             fmt::format("{}: its ring holds a damaged message: {}",
                                         peer.address.to_string(),
                                         status.ok() ? "length out of range" : status.text())});
      return true;
    }
    const std::byte* const payload = peer.ring->payload(header);
    const std::uint64_t position = peer.ring->advance();
    peer.heard_since_tick = true;
    deliver(peer, header, Arrival{UnexpectedMessage::Storage::ring, payload, 0, position});
    moved = true;
    if (peer.lost) return true;
    if (!peer.held.empty()) deliver_held(peer);
  }
  if (moved && peer.receive_state == ReceiveState::draining) finish_drain(peer);
  return moved;
}

void EndpointCore::credits_given(Peer& peer, const wire::Header& header) {
  peer.credits = std::min(peer.credits + header.credits, peer.address.credits());
  // Credits of a ring that was given up may come late: they are not the present one's.
  if (header.ring_credits > 0 && peer.send_kind == ChannelKind::rc_rdma &&
      header.ring == static_cast<std::uint8_t>(peer.answered_request)) {
    peer.ring_sender.credits =
        std::min(peer.ring_sender.credits + header.ring_credits, peer.ring_sender.entries);
  }
}

void EndpointCore::give_credit(Peer& peer, UnexpectedMessage::Storage storage,
                               std::uint32_t count) {
  if (storage == UnexpectedMessage::Storage::ring) {
    peer.owed_ring += count;
    if (peer.ring && peer.owed_ring >= peer.ring->entries() / 2) send_credits(peer);
  } else {
    peer.owed += count;
    if (peer.owed >= settings_.credits / 2) send_credits(peer);
  }
}

// Lets go of where a message lay and hands its credit back.
void EndpointCore::release_arrival(Peer& peer, UnexpectedMessage::Storage storage,
                                   std::uint32_t buffer, std::uint64_t position) {
  switch (storage) {
    case UnexpectedMessage::Storage::buffer:
      to_post_.push_back(buffer);
      give_credit(peer, storage, 1);
      break;
    case UnexpectedMessage::Storage::ring:
      if (peer.ring) give_credit(peer, storage, peer.ring->free(position));
      break;
    case UnexpectedMessage::Storage::heap:
    case UnexpectedMessage::Storage::none:
      break;
  }
}

void EndpointCore::deliver(Peer& peer, const wire::Header& header, const Arrival& arrival) {
  ++peer.receive_sequence;
  ++peer.window;
  std::uint64_t bytes = header.length;
  if (header.type == wire::Type::rts && header.length >= sizeof bytes) {
    std::memcpy(&bytes, arrival.payload, sizeof bytes);  // Rts::total
  } else if ((header.flags & wire::kAcknowledge) != 0) {
    bytes -= wire::kOperationBytes;
  }
  peer.received.count(bytes);
  credits_given(peer, header);
  charge(Work::match, 1);
  switch (header.type) {
    case wire::Type::eager:
    case wire::Type::rts: {
      const bool tagged = (header.flags & wire::kTagged) != 0;
      RecvOperation* const receive = matcher_.find_posted(peer.id, tagged, header.tag);
      if (receive == nullptr) {
        keep_unexpected(peer, header, arrival);
        break;
      }
      if (header.type == wire::Type::eager) {
        receive_eager(*receive, peer, header, arrival.payload);
      } else {
        wire::Rts rts;
        if (Status status = wire::parse_rts(arrival.payload, header.length, &rts); !status.ok()) {
          release_arrival(peer, arrival.storage, arrival.buffer, arrival.position);
          lose_peer(peer, status);
          return;
        }
        start_get(*receive, peer, header, rts);
      }
      release_arrival(peer, arrival.storage, arrival.buffer, arrival.position);
      break;
    }
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
    case wire::Type::hello:
    case wire::Type::none:
      release_arrival(peer, arrival.storage, arrival.buffer, arrival.position);
      break;
  }
  on_message_counted(peer);
}

void EndpointCore::keep_unexpected(Peer& peer, const wire::Header& header, const Arrival& arrival) {
  ++unexpected_count_;
  UnexpectedMessage* const message = messages_.take();
  if (message == nullptr) {
    // Nothing is left even for the record. The stream cannot go on without this message.
    lose_peer(peer,
              Status{Code::over_budget,
                     fmt::format("{}: no memory within TURNOUT_MEMORY_BUDGET={} for a message "
                                 "nobody waits for; raise it",
                                 peer.address.to_string(), account_.budget())});
    if (arrival.storage == UnexpectedMessage::Storage::buffer) to_post_.push_back(arrival.buffer);
    return;
  }
  message->peer = peer.id;
  message->tagged = (header.flags & wire::kTagged) != 0;
  message->tag = header.tag;
  message->header = header;
  if (header.type == wire::Type::rts) {
    message->rts = std::make_unique<wire::Rts>();
    if (Status status = wire::parse_rts(arrival.payload, header.length, message->rts.get());
        !status.ok()) {
      messages_.give_back(message);
      release_arrival(peer, arrival.storage, arrival.buffer, arrival.position);
      lose_peer(peer, status);
      return;
    }
    release_arrival(peer, arrival.storage, arrival.buffer, arrival.position);
  } else if (header.length == 0) {
    release_arrival(peer, arrival.storage, arrival.buffer, arrival.position);
  } else {
    // Copied aside while the limit allows, so that the sender may go on. Beyond it the message
    // stays where it came, and its credit with it; but never so many that others find no receive.
    const bool scarce = arrival.storage == UnexpectedMessage::Storage::buffer &&
                        receives_kept_ >= settings_.receive_buffers / 2;
    if ((unexpected_bytes_ + header.length <= settings_.unexpected_memory || scarce) &&
        account_.reserve(MemoryKind::unexpected, header.length)) {
      message->heap = std::make_unique<std::byte[]>(header.length);
      std::memcpy(message->heap.get(), arrival.payload, header.length);
      charge(Work::copy, header.length);
      message->payload = message->heap.get();
      message->storage = UnexpectedMessage::Storage::heap;
      unexpected_bytes_ += header.length;
      release_arrival(peer, arrival.storage, arrival.buffer, arrival.position);
    } else {
      message->payload = arrival.payload;
      message->storage = arrival.storage;
      message->buffer = arrival.buffer;
      message->position = arrival.position;
      if (arrival.storage == UnexpectedMessage::Storage::buffer) ++receives_kept_;
    }
  }
  matcher_.add_unexpected(message);
}

// The message is in no list any more.
void EndpointCore::release_unexpected(UnexpectedMessage& message) {
  Peer& peer = *peers_[message.peer];
  if (message.storage == UnexpectedMessage::Storage::heap) {
    account_.release(MemoryKind::unexpected, message.header.length);
    unexpected_bytes_ -= message.header.length;
  } else {
    if (message.storage == UnexpectedMessage::Storage::buffer) --receives_kept_;
    release_arrival(peer, message.storage, message.buffer, message.position);
  }
  messages_.give_back(&message);
  if (peer.receive_state == ReceiveState::draining) finish_drain(peer);
}

void EndpointCore::receive_eager(RecvOperation& receive, Peer& peer, const wire::Header& header,
                                 const std::byte* payload) {
  Completion completion = completion_of(header, peer.id, 0);
  const std::size_t offset = receive.used;
  const std::size_t free = receive.pieces.total - offset;
  std::size_t length = header.length;
  if ((header.flags & wire::kAcknowledge) != 0) {
    acknowledge(peer, payload);
    payload += wire::kOperationBytes;
    length -= wire::kOperationBytes;
  }
  const std::size_t n = std::min(length, free);
  receive.pieces.copy_in(offset, payload, n);
  charge(Work::copy, n);
  completion.length = n;
  if (receive.pieces.count > 0) {
    completion.buffer = static_cast<std::byte*>(receive.pieces.iov[0].iov_base) + offset;
  }
  if (receive.multi) receive.used += n;
  end_receive(receive, completion, length - n, Status{});
}

// The sender waits until its message is out of our hands.
void EndpointCore::acknowledge(Peer& peer, const std::byte* payload) {
  std::uint64_t operation;
  std::memcpy(&operation, payload, sizeof operation);
  send_fin(peer, operation, Status{});
}

// The program does not want it: for its sender that is as good as received.
void EndpointCore::drop_unexpected(UnexpectedMessage& message) {
  Peer& peer = *peers_[message.peer];
  if (message.rts) {
    send_fin(peer, message.rts->operation, Status{});
  } else if ((message.header.flags & wire::kAcknowledge) != 0) {
    acknowledge(peer, message.payload);
  }
  release_unexpected(message);
}

void EndpointCore::unpost(RecvOperation& receive) {
  if (!receive.posted) return;
  matcher_.remove(&receive);
  receive.posted = false;
}

// One message has ended in this receive: reports it and retires the receive when it is used up.
void EndpointCore::end_receive(RecvOperation& receive, const Completion& ended,
                               std::size_t overflow, Status status) {
  Completion completion = ended;
  completion.context = receive.report.context;
  if (status.ok() && overflow > 0) {
    status = Status{Code::truncated,
                    fmt::format("the message is {} bytes longer than its buffer", overflow)};
  }
  bool gone = !receive.multi;
  if (receive.multi) {
    if (!receive.exhausted &&
        receive.pieces.total - receive.used < std::max<std::size_t>(receive.min_free, 1)) {
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

// A posted receive takes a message that was here first; the message is in no list any more.
void EndpointCore::take_unexpected(RecvOperation& receive, UnexpectedMessage& message) {
  Peer& peer = *peers_[message.peer];
  if (message.rts) {
    start_get(receive, peer, message.header, *message.rts);
  } else {
    receive_eager(receive, peer, message.header, message.payload);
  }
  release_unexpected(message);
}

Status EndpointCore::recv(const RecvRequest& request) {
  Peer* const peer = request.peer == kAnyPeer ? nullptr : find_peer(request.peer);
  if (request.peer != kAnyPeer && peer == nullptr) {
    return {Code::invalid, fmt::format("recv: no peer {}", request.peer)};
  }
  RecvOperation* const receive = receives_.take();
  if (receive == nullptr) return {Code::again, "no memory for the operation within the budget"};
  if (!receive->pieces.set(request.buffer)) {
    receives_.give_back(receive);
    return {Code::invalid,
            fmt::format("recv: {} pieces, at most {}", request.buffer.size(), kMaxIov)};
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
    // A receive that is used up has left the list, and is perhaps another one's by now.
    if (matcher_.posted(request.tagged).last() != receive) return {};
  }
  if (peer != nullptr && peer->lost) {
    --peer->directed_receives;
    unpost(*receive);
    Status status = peer->loss;
    receives_.give_back(receive);
    return status;
  }
  return {};
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
      fail(request.report, completion, Status{Code::no_message, "no such message has arrived"});
    }
    return {};
  }
  completion = completion_of(message->header, message->peer, message->length());
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
    RecvOperation* const receive = receives_.take();
    if (receive == nullptr) return {Code::again, "no memory for the operation within the budget"};
    if (!receive->pieces.set(request.buffer)) {
      receives_.give_back(receive);
      return {Code::invalid,
              fmt::format("recv: {} pieces, at most {}", request.buffer.size(), kMaxIov)};
    }
    receive->match = {kAnyPeer, m->tag, 0, m->tagged};
    receive->report = request.report;
    claimed_.remove(m);
    take_unexpected(*receive, *m);
    return {};
  }
  return {Code::invalid, "no claimed message belongs to this context"};
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
  return {Code::invalid, "no claimed message belongs to this context"};
}

bool EndpointCore::cancel(void* context) {
  for (const bool tagged : {true, false}) {
    for (RecvOperation* r = matcher_.posted(tagged).last(); r != nullptr; r = r->previous) {
      if (r->report.context != context || r->transfers > 0) continue;
      unpost(*r);
      if (r->match.peer != kAnyPeer) --peers_[r->match.peer]->directed_receives;
      Completion completion;
      completion.context = context;
      completion.tag = r->match.tag;
      completion.flags = kRecv | (tagged ? kTagged : kMessage) |
                         (r->multi ? static_cast<unsigned>(kMultiRecvDone) : 0u);
      fail(r->report, completion, Status{Code::canceled, "cancelled"});
      receives_.give_back(r);
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
