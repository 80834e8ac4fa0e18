// SPDX-License-Identifier: BSD-3-Clause
// Receives messages: stream order of each source, matching, posted receives.
#include "core/operations/receive_engine.h"
#include "base/log.h"
#include "base/read_alone.h"

namespace turnout {
namespace {
// How far out of order a message may arrive: more than all credits of both channels together.
constexpr std::uint32_t kMaxAhead = 1u << 16;
}  // namespace

void ReceiveEngine::on_data(std::uint32_t buffer, std::uint32_t length) {
  wire::Parsed parsed;
  if (Status status = wire::parse_data(
          resources_.received(buffer),
          std::min(length, resources_.receive_pool.size() - resources_.receive_offset), &parsed);
      !status.ok()) {
    TURNOUT_LOG(protocol, error, "receiving a message failed: {}; it was dropped", status.text());
    post_again(buffer);
    return;
  }
  if (parsed.header.type == wire::Type::control) {
    TURNOUT_LOG(
        protocol, error,
        "receiving a message failed: control message in the shared receive queue; it was dropped");
    post_again(buffer);
    return;
  }
  PeerId id = parsed.header.index;
  if (parsed.wireup != nullptr && !events_.on_wireup_request(*parsed.wireup, &id)) {
    unexpected_.pending_wireups().push_back({buffer, length});
    context_.pending.add(Pending::stalled_peers);
    return;
  }
  Peer* const peer = peer_table_.find_peer(id);
  if (peer == nullptr || peer->lost) {
    if (id != kAnyPeer) TURNOUT_LOG(protocol, debug, "dropped a message of peer {}", id);
    post_again(buffer);
    return;
  }
  peer->heard_since_tick = true;
  if (peer->link && !ud_.data_came(*peer, parsed.header, buffer)) return;
  take_message(*peer, parsed, buffer, length);
}

void ReceiveEngine::take_message(Peer& peer, const wire::Parsed& parsed, std::uint32_t buffer,
                                 std::uint32_t length) {
  const std::uint32_t ahead = parsed.header.sequence - peer.rx.sequence;
  if (ahead == 0 && unexpected_.may_deliver(peer, parsed.header)) {
    deliver(peer, parsed.header,
            Arrival{private_receives_.storage_of(buffer), parsed.payload, buffer, 0, nullptr});
    if (!peer.state->rx.reorder_buffer.empty()) drain_reorder_buffer(peer);
    if (peer.rx.state == ReceiveState::draining) events_.finish_drain(peer);
  } else if (ahead < kMaxAhead) {
    keep_out_of_order(peer, {parsed.header.sequence, buffer, length, nullptr});
  } else {  // already delivered: a reposted work request
    private_receives_.free_receive(buffer);
  }
}

// The missing message must find a receive, and more credits may be granted than receives exist.
void ReceiveEngine::keep_out_of_order(Peer& peer, OutOfOrderMessage message) {
  if (!resources_.receive_pool.is_private(message.buffer)) {
    if (resources_.receives_scarce())
      message.copy = unexpected_.copy_aside(resources_.received(message.buffer), message.length,
                                            message.length);
    if (message.copy) {
      post_again(message.buffer);
    } else {
      ++resources_.receives_kept;
    }
  }
  peer.state.make().rx.reorder_buffer.push_back(std::move(message));
}

// The caller delivers or frees it.
OutOfOrderMessage ReceiveEngine::take_out_of_order(Peer& peer, std::size_t at) {
  OutOfOrderMessage message = std::move(peer.state.ref().rx.reorder_buffer[at]);
  peer.state.ref().rx.reorder_buffer.erase(peer.state->rx.reorder_buffer.begin() +
                                           static_cast<std::ptrdiff_t>(at));
  if (!message.copy && !resources_.receive_pool.is_private(message.buffer))
    --resources_.receives_kept;
  return message;
}

void ReceiveEngine::free_out_of_order(const OutOfOrderMessage& message) {
  if (message.copy) {
    context_.account.release(MemoryKind::unexpected, message.length);
  } else {
    private_receives_.free_receive(message.buffer);
  }
}

void ReceiveEngine::drain_reorder_buffer(Peer& peer) {
  for (std::size_t i = 0; i < peer.state->rx.reorder_buffer.size();) {
    const auto ahead =
        static_cast<std::int32_t>(peer.state->rx.reorder_buffer[i].sequence - peer.rx.sequence);
    if (ahead < 0) {  // duplicate: a reposted work request
      free_out_of_order(take_out_of_order(peer, i));
      continue;
    }
    if (ahead > 0) {
      ++i;
      continue;
    }
    wire::Parsed parsed;
    const Status status = wire::parse_data(bytes_of(peer.state->rx.reorder_buffer[i]),
                                           peer.state->rx.reorder_buffer[i].length, &parsed);
    if (status.ok() && !unexpected_.may_deliver(peer, parsed.header)) return;
    OutOfOrderMessage message = take_out_of_order(peer, i);
    if (!status.ok()) {  // was parsed on arrival
      free_out_of_order(message);
      continue;
    }
    const bool copied = message.copy != nullptr;
    Arrival arrival{.payload = parsed.payload};
    if (copied) {
      arrival.storage = UnexpectedMessage::Storage::heap;
      arrival.heap = &message.copy;
    } else {
      arrival.storage = private_receives_.storage_of(message.buffer);
      arrival.buffer = message.buffer;
    }
    deliver(peer, parsed.header, arrival);
    if (copied) {  // stored messages are accounted by their payload length
      const std::size_t kept = message.copy ? 0 : parsed.header.length;
      context_.account.release(MemoryKind::unexpected, message.length - kept);
    }
    if (peer.lost) return;
    i = 0;
  }
}

// A round for ReceiveCost. A ring's messages include the cost of the rings polled before it.
bool ReceiveEngine::poll_measured() {
  Nanoseconds begun = context_.clock.now();
  std::uint64_t before = context_.delivered;
  const std::size_t controls = resources_.to_post_control.size();
  bool moved = events_.poll_receive_queue();
  // Control messages in between would be counted as ring messages.
  if (context_.delivered > before && resources_.to_post_control.size() == controls) {
    context_.receive_cost.open(context_.clock.now() - begun, context_.delivered - before);
    context_.pending.add(Pending::receives);
  }
  begun = context_.clock.now();
  moved |= go_on_with_each(rings_.speaking(), [&](Peer& peer) {
    const ChannelKind kind = peer.rx.kind;
    before = context_.delivered;
    const bool got = poll_ring(peer);
    if (context_.delivered > before) {
      const Nanoseconds now = context_.clock.now();
      context_.receive_cost.add(kind, now - begun, context_.delivered - before, context_.delivered);
      begun = now;
    }
    return got;
  });
  return moved;
}

bool ReceiveEngine::read_ring(Peer& peer) {
  bool moved = false;
  wire::Header header;
  RingReceiver& ring = *peer.state->rx.ring;  // stays until the peer is lost
  // Reads all messages of a ring, but at most one pass through it, for fairness.
  for (std::uint32_t n = ring.entries(); n > 0; --n) {
    if (!ring.poll(&header) || header.sequence != peer.rx.sequence) break;
    if (ring.checked()) [[unlikely]]
      context_.charge(
          Work::copy,
          2 * (header.length + sizeof header));  // checksummed, and overwritten when free
    if (!wire::is_plain_eager(header) || !ring.fits(header)) [[unlikely]] {
      if (Status status = wire::check_header(header); !status.ok() || !ring.fits(header) ||
                                                      (header.flags & wire::kWireup) != 0 ||
                                                      header.type == wire::Type::control) {
        events_.protocol_error(
            peer, fmt::format("damaged message in its ring: {}",
                              status.ok() ? "length or type out of range" : status.text()));
        return true;
      }
    }
    if (!unexpected_.may_deliver(peer, header)) {
      look_for_fins(peer);
      break;
    }
    const std::byte* const payload = ring.payload(header);
    const std::uint64_t position = ring.advance();
    ring.prefetch_behind_head();
    peer.heard_since_tick = true;
    deliver(peer, header, Arrival{UnexpectedMessage::Storage::ring, payload, 0, position, nullptr});
    moved = true;
    if (peer.lost) return true;
    if (!peer.state->rx.reorder_buffer.empty()) drain_reorder_buffer(peer);
  }
  if (moved) {
    rings_.spoke(peer);
    if (peer.rx.state == ReceiveState::draining) events_.finish_drain(peer);
  }
  return moved;
}

// Behind a message for which there is no memory now. Our program may receive nothing before the
// operations that they complete have ended.
void ReceiveEngine::look_for_fins(Peer& peer) {
  const RingReceiver& ring = *peer.state->rx.ring;
  wire::Header header;
  RingCursor at = ring.head();
  for (std::uint32_t n = 1; n < ring.entries(); ++n) {
    at.advance(ring.entries());
    if (!ring.peek(at, &header) || header.sequence != peer.rx.sequence + n) break;
    if (header.type == wire::Type::fin) take_fin(peer, header);
  }
}

// Once in its turn, perhaps before that, too.
void ReceiveEngine::take_fin(Peer& peer, const wire::Header& header) {
  events_.on_fin(peer, {.operation = header.tag, .read = header.data, .may_repeat = true});
}

// Another message of the application's; `total`: its bytes.
[[gnu::always_inline]] inline void ReceiveEngine::count_message(Peer& peer,
                                                                const wire::Header& header,
                                                                std::uint64_t total) {
  ++context_.delivered;
  context_.statistics.count_arrival();
  ++peer.rx.window;
  peer.rx.carried.count(total);
  peer.rx.last_data = header.data;
  peer.rx.last_had_data = (header.flags & wire::kRemoteData) != 0;
  context_.charge(Work::match, 1);
}

[[gnu::always_inline]] inline void ReceiveEngine::deliver_eager(Peer& peer,
                                                                const wire::Header& header,
                                                                const Arrival& arrival) {
  const std::uint64_t total = header.length - wire::prefix_bytes(header);
  count_message(peer, header, total);
  const bool tagged = (header.flags & wire::kTagged) != 0;
  RecvOperation* const receive = records_.matcher.find_posted(peer.id, tagged, header.tag);
  if (receive != nullptr) [[likely]]
    posted_.receive_eager(*receive, peer, header, arrival.payload);
  if (receive == nullptr && !context_.closing) {
    unexpected_.keep_unexpected(peer, header, arrival, total);
  } else {  // when closing it will never be received, but its sender must not wait
    posted_.release_arrival(peer, arrival.storage, arrival.buffer, arrival.position);
  }
  // A ring over RC is the last channel that any policy asks for.
  if (peer.rx.kind != ChannelKind::rc_rdma || context_.tests_channels())
    events_.on_message_counted(peer);
}

[[gnu::always_inline]] inline void ReceiveEngine::deliver(Peer& peer, const wire::Header& header,
                                                          const Arrival& arrival) {
  // Writes that were posted before this message was sent are complete.
  if (peer.state->rx.rtrs_sent > 0) [[unlikely]]
    (void)rtr_.poll_last_bytes(&peer);
  ++peer.rx.sequence;
  peer.rx.stalled = false;
  count_use(eviction_, peer, over_rc(peer.rx.kind));
  credits_.credits_given(peer, header);
  if ((header.flags & (wire::kLastCredit | wire::kUncredited)) != 0) [[unlikely]] {
    if ((header.flags & wire::kUncredited) != 0 &&
        (arrival.storage == UnexpectedMessage::Storage::buffer ||
         arrival.storage == UnexpectedMessage::Storage::heap)) {
      flow_.count_uncredited(peer.rx.grant);
    }
    if ((header.flags & wire::kLastCredit) != 0) flow_.used_last_credit(peer.rx.grant);
  }
  if (header.type == wire::Type::eager) [[likely]]
    return deliver_eager(peer, header, arrival);
  deliver_other(peer, header, arrival);
}

void ReceiveEngine::deliver_other(Peer& peer, const wire::Header& header, const Arrival& arrival) {
  if (!wire::is_message(header.type)) {
    if (header.type == wire::Type::fragment) fragments_.on_fragment(peer, header, arrival.payload);
    if (header.type == wire::Type::put_completion)
      rtr_.on_put_completion(peer, header, arrival.payload);
    if (header.type == wire::Type::fin) take_fin(peer, header);
    if (header.type == wire::Type::rtr_cancelled) rtr_.on_rtr_cancelled(peer, header.tag);
    if (wire::is_request(header.type)) atomic_engine_.on_request(peer, header, arrival.payload);
    if (header.type == wire::Type::answer) atomic_engine_.on_answer(peer, header, arrival.payload);
    posted_.release_arrival(peer, arrival.storage, arrival.buffer, arrival.position);
    return;
  }
  std::optional<wire::Rts> rts;
  std::optional<wire::RemoteEvent> event;
  // Of the message itself. Read once, because the peer can still write to its ring.
  std::uint64_t total = 0;
  if (header.type == wire::Type::rts) {
    const Status status = wire::parse_rts(arrival.payload, header.length, &rts.emplace());
    if (!status.ok() || rtr_.put_completed(peer, *rts)) {
      posted_.release_arrival(peer, arrival.storage, arrival.buffer, arrival.position);
      if (!status.ok()) events_.lose_peer(peer, status);
      return;
    }
    total = rts->total;
  } else if (header.type == wire::Type::eager_first) {
    Status status = wire::parse_total(header, arrival.payload, &total);
    if (status.ok() && fragments_.awaits_fragment(peer))
      status = {Code::invalid, "message: fragments of the one before it are missing"};
    if (!status.ok()) {
      posted_.release_arrival(peer, arrival.storage, arrival.buffer, arrival.position);
      events_.lose_peer(peer, status);
      return;
    }
  } else if (header.type == wire::Type::rma_data) {
    Status status;
    if (header.length != 0)
      status = wire::parse_remote_event(arrival.payload, header.length, &event.emplace());
    if (!status.ok()) {
      posted_.release_arrival(peer, arrival.storage, arrival.buffer, arrival.position);
      events_.lose_peer(peer, status);
      return;
    }
  } else {
    total = header.length - wire::prefix_bytes(header);
  }
  count_message(peer, header, total);
  switch (header.type) {
    case wire::Type::rts:
      deliver_large(peer, header, *rts, arrival);
      if (peer.lost) return;
      break;
    case wire::Type::eager_first:
      deliver_first(peer, header, arrival, total);
      break;
    case wire::Type::rma_data: {  // its tag: bytes written, see on_transfer_done
      const bool has_data = (header.flags & wire::kRemoteData) != 0;
      if (has_data) context_.report_write(header.tag, header.data, peer.id);
      if (event.has_value()) context_.count_access(event->read == 0, event->rkey, has_data);
      posted_.release_arrival(peer, arrival.storage, arrival.buffer, arrival.position);
      break;
    }
    case wire::Type::eager:
    case wire::Type::fragment:
    case wire::Type::wireup:
    case wire::Type::put_completion:
    case wire::Type::rtr_cancelled:
    case wire::Type::atomic:
    case wire::Type::put:
    case wire::Type::get:
    case wire::Type::answer:
    case wire::Type::control:
    case wire::Type::fin:
    case wire::Type::none:
      posted_.release_arrival(peer, arrival.storage, arrival.buffer, arrival.position);
      break;
  }
  events_.on_message_counted(peer);
}

void ReceiveEngine::deliver_large(Peer& peer, const wire::Header& header, const wire::Rts& rts,
                                  const Arrival& arrival) {
  const bool tagged = (header.flags & wire::kTagged) != 0;
  RecvOperation* const receive =
      rts.has_rtr != 0
          ? fragments_.incoming().find(rts.rtr)->incoming.receive  // see put_completed()
          : records_.matcher.find_posted(peer.id, tagged, header.tag);
  // When closing, may_deliver() has not looked for records.
  if (context_.closing && (receive == nullptr || !has_record()))
    return posted_.release_arrival(peer, arrival.storage, arrival.buffer, arrival.position);
  if (receive == nullptr) return unexpected_.keep_unexpected(peer, header, arrival, rts.total);
  if (rts.has_rtr != 0) {
    // A late write of the failed queue pair must not reach the next message's buffer.
    for (Registration& region : receive->rtr->regions) region.discard();
  }
  const Place place = rndv_.place_in(*receive, rts.total);
  DataPath path = events_.path_of_transfer(peer);
  // The budget has no record for it to wait in, but one for its transfer.
  if (path == DataPath::wait && !records_.messages.ready()) path = DataPath::fragments;
  if (path != DataPath::wait) {
    rndv_.start_get(*receive, peer, header, rts, place, path);
    posted_.release_arrival(peer, arrival.storage, arrival.buffer, arrival.position);
    return;
  }
  unexpected_.wait_for_transfer(unexpected_.store(peer, header, arrival, rts.total), *receive,
                                place);
}

// The first fragment of an eager message.
void ReceiveEngine::deliver_first(Peer& peer, const wire::Header& header, const Arrival& arrival,
                                  std::uint64_t total) {
  const bool tagged = (header.flags & wire::kTagged) != 0;
  RecvOperation* const receive = records_.matcher.find_posted(peer.id, tagged, header.tag);
  if (receive == nullptr && !context_.closing)
    return unexpected_.keep_unexpected(peer, header, arrival, total);
  if (receive != nullptr && has_record()) {
    const Place place = rndv_.place_in(*receive, total);
    if (!records_.transfers.ready()) {
      unexpected_.wait_for_transfer(unexpected_.store(peer, header, arrival, total), *receive,
                                    place);
      return;
    }
    rndv_.start_eager(*receive, peer, header, place, total,
                      {arrival.payload + wire::kTotalBytes, header.length - wire::kTotalBytes});
  }
  posted_.release_arrival(peer, arrival.storage, arrival.buffer, arrival.position);
}

Status ReceiveEngine::recv_now(const RecvRequest& request) {
  Peer* const peer = request.peer == kAnyPeer ? nullptr : peer_table_.find_peer(request.peer);
  if (request.peer != kAnyPeer && peer == nullptr) {
    return {Code::invalid, fmt::format("recv: no such peer: {}", request.peer)};
  }
  // Its message may have arrived already, which would make an RTR useless.
  const bool sends_rtr = peer != nullptr && rtr_.wants_rtr(request, *peer);
  if (sends_rtr) {
    (void)events_.poll_receive_queue();
    if (peer->rx.ring_poll != RingPoll::none) (void)poll_ring(*peer);
  }
  RecvOperation* const receive = records_.take_for_caller(records_.receives);
  if (receive == nullptr) return records_.refusal();
  if (!receive->iov.set(request.buffer)) {
    records_.receives.give_back(receive);
    return {Code::invalid,
            fmt::format("recv: {} IOV entries, at most {}", request.buffer.size(), kMaxIov)};
  }
  receive->match = {request.peer, read_alone(request.tag), read_alone(request.ignore),
                    request.tagged};
  const Report& report = request.report;
  receive->report = {read_alone(report.queue), read_alone(report.errors),
                     read_alone(report.counter), read_alone(report.context)};
  receive->multi = request.multi;
  receive->min_free = request.min_free;
  if (peer != nullptr) ++peer->rx.directed_receives;
  records_.matcher.post(receive);
  receive->posted = true;
  for (;;) {
    UnexpectedMessage* const message = records_.matcher.find_unexpected(receive->match);
    if (message == nullptr) break;
    unexpected_.take_out(*message);
    unexpected_.take_unexpected(*receive, *message);
    // An exhausted receive has left the list, and its record may be in use again.
    if (records_.matcher.posted(request.tagged).last() != receive) return {};
  }
  if (peer != nullptr && peer->lost) {
    --peer->rx.directed_receives;
    posted_.unpost(*receive);
    Status status = peer->state->loss;
    records_.receives.give_back(receive);
    return status;
  }
  if (sends_rtr) rtr_.send_rtr(*receive, *peer);
  return {};
}

bool ReceiveEngine::cancel(void* context) {
  for (const bool tagged : {true, false}) {
    for (RecvOperation* r = records_.matcher.posted(tagged).last(); r != nullptr; r = r->previous) {
      if (r->report.context != context || r->transfers > 0 || r->cancelled) continue;
      if (r->rtr == nullptr) {
        posted_.end_cancelled(*r);
        return true;
      }
      // Its message may be in the process of being written.
      r->cancelled = true;
      control_.send_control(*r->rtr->peer, Purpose::credit,
                            {.type = wire::Control::rtr_cancel, .operation = r->rtr->incoming.id});
      return true;
    }
  }
  for (Peer* peer : backlog_.backlogged()) {
    for (SendOperation* s = peer->state->tx.backlog.last(); s != nullptr; s = s->previous) {
      if (s->report.context != context || s->report.queue == nullptr) continue;
      if (s->fragment_offset > 0) continue;  // the peer has a part of it
      peer->state.ref().tx.backlog.remove(s);
      backlog_.end_send(*s, Status{Code::canceled, "cancelled"});
      return true;
    }
  }
  return false;
}

// Retries stalled messages; those in rings are retried by poll_rings().
bool ReceiveEngine::pump_stalled() {
  bool moved = false;
  for (std::size_t n = unexpected_.pending_wireups().size(); n > 0; --n) {
    const PendingWireup pending = unexpected_.pending_wireups().front();
    unexpected_.pending_wireups().erase(unexpected_.pending_wireups().begin());
    on_data(pending.buffer, pending.length);
  }
  remove_done(unexpected_.stalled(), [&](Peer& peer) {
    if (!peer.lost && !peer.state->rx.reorder_buffer.empty()) {
      const std::uint32_t before = peer.rx.sequence;
      drain_reorder_buffer(peer);
      moved |= before != peer.rx.sequence;
      if (peer.rx.state == ReceiveState::draining) events_.finish_drain(peer);
    }
    const bool done = peer.lost || !peer.rx.stalled;
    if (done) peer.rx.stall_listed = false;
    return done;
  });
  return moved;
}

}  // namespace turnout
