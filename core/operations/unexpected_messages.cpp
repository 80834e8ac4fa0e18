// SPDX-License-Identifier: BSD-3-Clause
// Unexpected messages: their storage, matching with later receives, peek and claim, and what
// happens when the budget is used up.
//
// A message is copied aside while TURNOUT_UNEXPECTED_MEMORY allows, and its credit returned. Beyond
// that it retains its receive buffer or ring entry, and its credit, so the sender is throttled. If
// a receive for that peer is posted, the matching message may be behind the retained ones, so
// messages are copied beyond the limit, up to the budget. If even a record does not fit, the stream
// of that peer stalls until one is free; its messages wait in their buffers.
#include "core/operations/unexpected_messages.h"
#include "base/log.h"

namespace turnout {
namespace {

// Without a handle.
TakenMessage description_of(const UnexpectedMessage& message) noexcept {
  return {.peer = message.peer,
          .tagged = message.tagged,
          .has_remote_data = (message.header.flags & wire::kRemoteData) != 0,
          .tag = message.tag,
          .remote_data = message.header.data,
          .length = message.total};
}

// Time, in units of TURNOUT_KEEPALIVE, after which a warning is logged for a stalled peer that a
// receive waits for; then the time after which its operations fail, so that the job does not hang.
constexpr int kTellAfter = 10;
constexpr int kGiveUpAfter = 30;

// Bytes that a message takes when it is copied aside.
std::size_t bytes_aside(const UnexpectedMessage& message) {
  return message.header.type == wire::Type::eager_first ? message.total : message.header.length;
}
}  // namespace

// Whether the memory that this message, the next of its stream, needs is available.
bool UnexpectedMessages::has_room_for(Peer& peer, const wire::Header& header) {
  if (context_.closing) [[unlikely]]
    return true;  // it is dropped, unless a receive takes it
  if (wire::is_request(header.type)) [[unlikely]]
    return atomic_engine_.may_answer(peer);
  if (header.type == wire::Type::fragment) {
    UnexpectedMessage* const message = header.tag == 0 ? peer.state->rx.partial : nullptr;
    return message == nullptr || message->has_room ||
           (may_set_aside(peer, *message) && set_aside(*message));
  }
  if (records_.messages.ready()) [[likely]]
    return true;
  if (!wire::is_message(header.type) || header.type == wire::Type::rma_data) return true;
  const bool tagged = (header.flags & wire::kTagged) != 0;
  const bool awaited = records_.matcher.find_posted(peer.id, tagged, header.tag) != nullptr;
  return awaited && (header.type == wire::Type::eager || records_.transfers.ready());
}

// Otherwise stalls the stream.
bool UnexpectedMessages::may_deliver_now(Peer& peer, const wire::Header& header) {
  if (has_room_for(peer, header)) return true;
  peer.rx.stalled = true;
  peer.rx.atomic_stalled = wire::is_request(header.type);
  if (!peer.rx.stall_listed) {
    peer.rx.stall_listed = true;
    stalled_.push_back(&peer);
    context_.pending.add(Pending::stalled_peers);
  }
  return false;
}

// Creates the record; may_deliver() has checked that there is room.
UnexpectedMessage& UnexpectedMessages::store(Peer& peer, const wire::Header& header,
                                             const Arrival& arrival, std::uint64_t total) {
  UnexpectedMessage& message = *records_.messages.take();
  message.peer = peer.id;
  message.tagged = (header.flags & wire::kTagged) != 0;
  message.tag = header.tag;
  message.header = header;
  message.total = total;
  message.payload = arrival.payload;
  message.storage = arrival.storage;
  message.buffer = arrival.buffer;
  message.position = arrival.position;
  if (header.type == wire::Type::eager_first) {
    message.arrived = static_cast<std::uint32_t>(header.length - wire::kTotalBytes);
    peer.state.make().rx.partial = &message;
  }
  if (arrival.storage == UnexpectedMessage::Storage::heap) {  // copied while out of order
    message.heap = std::move(*arrival.heap);
    unexpected_bytes_ += header.length + sizeof(UnexpectedMessage);
    credits_.return_credit(peer);
    return message;
  }
  ++peer.rx.retained;
  if (arrival.storage == UnexpectedMessage::Storage::buffer) {
    ++resources_.receives_kept;
    SrqFlowControl::retain(peer.rx.grant);
  }
  // If the budget refuses, the message is retained.
  if (may_set_aside(peer, message)) (void)set_aside(message);
  if (message.storage == UnexpectedMessage::Storage::buffer && flow_.retained(peer.rx.grant)) {
    credits_.send_credits(peer);
  }
  return message;
}

// Exceeding the limit is better than retaining the receives that others need. Retained messages
// must not block fragments of a large message, answers, or a disconnect either.
bool UnexpectedMessages::may_set_aside(const Peer& peer, const UnexpectedMessage& message) const {
  const std::uint64_t bytes = bytes_aside(message) + sizeof(UnexpectedMessage);
  return unexpected_bytes_ + bytes <= context_.settings.unexpected_memory ||
         (message.storage == UnexpectedMessage::Storage::buffer && resources_.receives_scarce()) ||
         peer.rx.incoming_large > 0 || owes_answers(peer) ||
         peer.connection->eviction.disconnecting;
}

void UnexpectedMessages::keep_unexpected(Peer& peer, const wire::Header& header,
                                         const Arrival& arrival, std::uint64_t total) {
  ++unexpected_count_;
  UnexpectedMessage& message = store(peer, header, arrival, total);
  context_.profile.unexpected.count(message.total);
  records_.matcher.add_unexpected(&message);
  if (watcher_ != nullptr) [[unlikely]]
    watcher_->on_unexpected(description_of(message), true);
}

void UnexpectedMessages::take_out(UnexpectedMessage& message) {
  records_.matcher.remove_unexpected(&message);
  if (watcher_ != nullptr) [[unlikely]]
    watcher_->on_unexpected(description_of(message), false);
}

std::vector<TakenMessage> UnexpectedMessages::watch(UnexpectedWatcher* watcher) {
  watcher_ = watcher;
  std::vector<TakenMessage> all;
  for (const bool tagged : {true, false}) {
    for (const UnexpectedMessage* m = records_.matcher.unexpected(tagged).first(); m != nullptr;
         m = m->next) {
      all.push_back(description_of(*m));
    }
  }
  return all;
}

// Null: the budget has no room.
std::unique_ptr<std::byte[]> UnexpectedMessages::copy_aside(const std::byte* from,
                                                            std::size_t length, std::size_t room) {
  assert(length <= room);
  if (!context_.account.reserve(MemoryKind::unexpected, room)) return nullptr;
  auto copy = std::make_unique_for_overwrite<std::byte[]>(room);
  std::memcpy(copy.get(), from, length);
  context_.charge(Work::copy, length);
  return copy;
}

// Copies the message aside and returns its credit.
bool UnexpectedMessages::set_aside(UnexpectedMessage& message) {
  Peer& peer = peer_table_.peers()[message.peer];
  const bool first = message.header.type == wire::Type::eager_first;
  const std::size_t prefix = first ? wire::kTotalBytes : 0;
  const std::size_t bytes = bytes_aside(message);
  const UnexpectedMessage::Storage from = message.storage;
  std::unique_ptr<std::byte[]> copy;
  if (bytes > 0) {
    copy = copy_aside(message.payload + prefix, message.header.length - prefix, bytes);
    if (!copy) return false;
  }
  message.heap = std::move(copy);
  message.has_room = first;
  message.payload = message.heap.get();
  message.storage = bytes > 0 ? UnexpectedMessage::Storage::heap : UnexpectedMessage::Storage::none;
  unexpected_bytes_ += bytes + sizeof(UnexpectedMessage);
  if (from == UnexpectedMessage::Storage::heap) {  // a copy of the first fragment alone
    context_.account.release(MemoryKind::unexpected, message.header.length);
    unexpected_bytes_ -= message.header.length + sizeof(UnexpectedMessage);
    return true;
  }
  --peer.rx.retained;
  if (from == UnexpectedMessage::Storage::buffer) {
    --resources_.receives_kept;
    SrqFlowControl::release(peer.rx.grant);
  }
  posted_.release_arrival(peer, from, message.buffer, message.position);
  return true;
}

// Copies retained messages of the peer aside, as far as the budget allows. Large messages may wait
// for a transfer that ends only when the fragments of others have arrived.
bool UnexpectedMessages::relieve(Peer& peer) {
  bool moved = false;
  if (UnexpectedMessage* const partial = peer.state->rx.partial;
      partial != nullptr && !partial->has_room) {
    moved = set_aside(*partial);  // its fragments wait
  }
  for (const auto* const list : {&records_.matcher.unexpected(true),
                                 &records_.matcher.unexpected(false), &claimed_, &waiting_}) {
    for (UnexpectedMessage* m = list->first(); m != nullptr; m = m->next) {
      if (peer.rx.retained == 0) return moved;
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
void UnexpectedMessages::look_after_retained(Peer& peer, bool wildcards, Nanoseconds now) {
  const bool moving = peer.rx.seen_at_round != peer.rx.sequence;
  peer.rx.seen_at_round = peer.rx.sequence;
  // Messages of others may occupy every receive that its next one needs.
  const bool starved = resources_.receives_kept >= resources_.receive_pool.count();
  if (moving || (peer.rx.retained == 0 && !peer.rx.stalled && !starved)) {
    if (peer.state->rx.stuck_since != 0) peer.state.make().rx.stuck_since = 0;
    return;
  }
  // An atomic request without room for its answer counts, although no receive waits for it.
  const bool refused = peer.rx.stalled && peer.rx.atomic_stalled;
  const bool waited = wildcards || peer.rx.directed_receives > 0 || peer.rx.incoming_large > 0 ||
                      owes_answers(peer) || refused;
  const bool scarce = resources_.receives_scarce();
  if ((!waited && !scarce) || relieve(peer)) {
    if (peer.state->rx.stuck_since != 0) peer.state.make().rx.stuck_since = 0;
    return;
  }
  if (!waited) return;
  PeerRxState& rx = peer.state.make().rx;
  if (rx.stuck_since == 0) {
    rx.stuck_since = now;
    rx.stuck_reported = false;
  }
  const Nanoseconds stuck = now - rx.stuck_since;
  if (stuck < kTellAfter * context_.settings.keepalive ||
      (rx.stuck_reported && stuck < kGiveUpAfter * context_.settings.keepalive)) {
    return;
  }
  Status why{Code::over_budget,
             fmt::format("receiving failed: {}: a receive or an atomic operation is blocked "
                         "because unexpected messages fill TURNOUT_MEMORY_BUDGET={}; raise it, or "
                         "post receives in the order of the sends",
                         peer.address.to_string(), context_.account.budget())};
  if (stuck >= kGiveUpAfter * context_.settings.keepalive) {
    events_.lose_peer(peer, why);
  } else {
    rx.stuck_reported = true;
    TURNOUT_LOG(protocol, warn, "{}", why.text());
  }
}

// The message is in no list any more.
void UnexpectedMessages::release_unexpected(UnexpectedMessage& message) {
  Peer& peer = peer_table_.peers()[message.peer];
  if (peer.state->rx.partial == &message) peer.state.ref().rx.partial = nullptr;
  const std::size_t bytes = message.has_room ? message.total : message.header.length;
  switch (message.storage) {
    case UnexpectedMessage::Storage::heap:
      context_.account.release(MemoryKind::unexpected, bytes);
      [[fallthrough]];
    case UnexpectedMessage::Storage::none:
      unexpected_bytes_ -= bytes + sizeof(UnexpectedMessage);
      break;
    case UnexpectedMessage::Storage::buffer:
      --resources_.receives_kept;
      SrqFlowControl::release(peer.rx.grant);
      [[fallthrough]];
    case UnexpectedMessage::Storage::private_receive:
    case UnexpectedMessage::Storage::ring:
      --peer.rx.retained;
      posted_.release_arrival(peer, message.storage, message.buffer, message.position);
      break;
  }
  records_.messages.give_back(&message);
  if (peer.rx.state == ReceiveState::draining) events_.finish_drain(peer);
}

// Discarded by the program: for its sender it is received.
void UnexpectedMessages::drop_unexpected(UnexpectedMessage& message) {
  Peer& peer = peer_table_.peers()[message.peer];
  if (message.header.type == wire::Type::rts) {
    wire::Rts rts;
    if (wire::parse_rts(message.payload, message.header.length, &rts).ok()) {
      control_.send_fin(peer, rts.operation, Status{});
    }
  } else if ((message.header.flags & wire::kAcknowledge) != 0) {
    posted_.acknowledge(peer, message.payload);
  }
  release_unexpected(message);
}

// A new receive matches an earlier message; the message is in no list any more.
void UnexpectedMessages::take_unexpected(RecvOperation& receive, UnexpectedMessage& message) {
  if (message.header.type != wire::Type::eager) {
    const Place place = rndv_.place_in(receive, message.total);
    const DataPath path = path_of(message);
    wait_for_transfer(message, receive, place);
    if (path != DataPath::wait) start_waiting(message, path);
    return;
  }
  posted_.receive_eager(receive, peer_table_.peers()[message.peer], message.header,
                        message.payload);
  release_unexpected(message);
}

void UnexpectedMessages::wait_for_transfer(UnexpectedMessage& message, RecvOperation& receive,
                                           Place place) {
  message.receive = &receive;
  message.place = place;
  waiting_.push_back(&message);
  context_.pending.add(Pending::unexpected_messages);
}

// How its receive gets the data.
DataPath UnexpectedMessages::path_of(const UnexpectedMessage& message) {
  Peer& peer = peer_table_.peers()[message.peer];
  if (message.header.type == wire::Type::rts) return events_.path_of_transfer(peer);
  const bool starts = !message.partial() || peer.lost || records_.transfers.ready();
  return starts ? DataPath::fragments : DataPath::wait;
}

void UnexpectedMessages::drop_partial(Peer& peer) {
  UnexpectedMessage* const partial = peer.state->rx.partial;
  if (partial == nullptr) return;
  peer.state.ref().rx.partial = nullptr;
  // Its receive ends with the loss; so does that of who claimed it.
  bool awaited = partial->receive != nullptr;
  for (const UnexpectedMessage* m = claimed_.first(); m != nullptr; m = m->next)
    awaited |= m == partial;
  if (awaited) return;
  records_.matcher.remove_unexpected(partial);
  release_unexpected(*partial);
}

// A transfer is free, or the peer is lost.
void UnexpectedMessages::start_waiting(UnexpectedMessage& message, DataPath path) {
  waiting_.remove(&message);
  Peer& peer = peer_table_.peers()[message.peer];
  if (message.header.type == wire::Type::eager_first) {
    if (peer.state->rx.partial == &message) peer.state.ref().rx.partial = nullptr;
    const std::byte* const bytes = message.payload + (message.has_room ? 0 : wire::kTotalBytes);
    rndv_.start_eager(*message.receive, peer, message.header, message.place, message.total,
                      {bytes, message.arrived});
    return release_unexpected(message);
  }
  wire::Rts rts;
  // Parsed again: the peer can still write to the ring.
  if (Status status = wire::parse_rts(message.payload, message.header.length, &rts);
      !status.ok() || rts.total != message.total) {
    events_.lose_peer(
        peer, status.ok() ? Status{Code::invalid, "RTS: modified after it was sent"} : status);
  }
  rndv_.start_get(*message.receive, peer, message.header, rts, message.place, path);
  release_unexpected(message);
}

bool UnexpectedMessages::pump_waiting() {
  bool moved = false;
  for (UnexpectedMessage* message = waiting_.first(); message != nullptr;) {
    UnexpectedMessage* const next = message->next;
    const DataPath path = path_of(*message);
    if (peer_table_.peers()[message->peer].lost || path != DataPath::wait) {
      start_waiting(*message, path);
      moved = true;
    }
    message = next;
  }
  return moved;
}

Status UnexpectedMessages::peek(const PeekRequest& request) {
  const PostedMatch match{request.peer, request.tag, 0, request.tagged};
  PostedMatch wanted = match;
  wanted.ignore = request.ignore;
  UnexpectedMessage* message = records_.matcher.find_unexpected(wanted);
  if (message == nullptr) {
    events_.progress();
    message = records_.matcher.find_unexpected(wanted);
  }
  Completion completion{.context = request.report.context,
                        .tag = request.tag,
                        .flags = kRecv | (request.tagged ? kTagged : kMessage)};
  if (message == nullptr) {
    Peer* const peer = request.peer == kAnyPeer ? nullptr : peer_table_.find_peer(request.peer);
    if (peer != nullptr && peer->lost) {
      context_.fail(request.report, completion, peer->state->loss);
    } else {
      context_.fail(request.report, completion,
                    Status{Code::no_message, "no matching message has arrived"});
    }
    return {};
  }
  completion = posted_.completion_of(message->header, message->peer, message->total);
  completion.context = request.report.context;
  if (request.discard || request.claim) take_out(*message);
  if (request.claim) {
    completion.flags |= kClaimed;
    message->claim = request.report.context;
    claimed_.push_back(message);
  } else if (request.discard) {
    drop_unexpected(*message);
  }
  context_.finish(request.report, completion);
  return {};
}

Status UnexpectedMessages::recv_claimed(const RecvRequest& request) {
  for (UnexpectedMessage* m = claimed_.first(); m != nullptr; m = m->next) {
    if (m->claim == request.report.context) return receive_claimed(*m, request);
  }
  return {Code::invalid, "no claimed message has this context"};
}

Status UnexpectedMessages::receive_claimed(UnexpectedMessage& message, const RecvRequest& request) {
  RecvOperation* const receive = records_.take_for_caller(records_.receives);
  if (receive == nullptr) return records_.refusal();
  if (!receive->iov.set(request.buffer)) {
    records_.receives.give_back(receive);
    return {Code::invalid,
            fmt::format("recv: {} IOV entries, at most {}", request.buffer.size(), kMaxIov)};
  }
  receive->match = {kAnyPeer, message.tag, 0, message.tagged};
  receive->report = request.report;
  claimed_.remove(&message);
  take_unexpected(*receive, message);
  return {};
}

Status UnexpectedMessages::discard_claimed(const Report& report) {
  for (UnexpectedMessage* m = claimed_.first(); m != nullptr; m = m->next) {
    if (m->claim != report.context) continue;
    claimed_.remove(m);
    Completion completion = posted_.completion_of(m->header, m->peer, 0);
    completion.context = report.context;
    drop_unexpected(*m);
    context_.finish(report, completion);
    return {};
  }
  return {Code::invalid, "no claimed message has this context"};
}

// It goes to the claimed ones, whose claim is then none that a program can make.
std::optional<TakenMessage> UnexpectedMessages::take_message() {
  matched_outside_ = true;
  for (const bool tagged : {true, false}) {
    UnexpectedMessage* const m = records_.matcher.unexpected(tagged).first();
    if (m == nullptr) continue;
    take_out(*m);
    m->claim = m;
    claimed_.push_back(m);
    TakenMessage taken = description_of(*m);
    taken.handle = m;
    return taken;
  }
  return std::nullopt;
}

Status UnexpectedMessages::recv_taken(void* handle, const RecvRequest& request) {
  return receive_claimed(*static_cast<UnexpectedMessage*>(handle), request);
}

void UnexpectedMessages::discard_taken(void* handle) {
  auto* const message = static_cast<UnexpectedMessage*>(handle);
  claimed_.remove(message);
  drop_unexpected(*message);
}

}  // namespace turnout
