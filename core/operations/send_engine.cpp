// SPDX-License-Identifier: BSD-3-Clause
// Send operations: eager or rendezvous, sent at once or queued in the backlog, until complete.
#include "core/operations/send_engine.h"
#include "base/log.h"

namespace turnout {
namespace {
[[gnu::noinline]] Status no_such_peer(PeerId peer) {
  return {Code::invalid, fmt::format("send: no such peer: {}", peer)};
}
}  // namespace

// Where the call that posts a request carries it out, a buffer that was just used comes back at
// once and is in the cache still, which the others are not. Elsewhere a message that found no
// buffer would wait for a round of progress, which polls the rings of all peers.
inline void SendEngine::take_back_buffers() {
  const bool wanted = context_.format.measures_limit || resources_.send_pool.available() == 0;
  if (wanted && resources_.awaits_completion() && !context_.in_progress)
    (void)events_.poll_send_queue();
}

inline bool SendEngine::send_short(Peer& peer, const SendRequest& request) {
  if (request.data.size() != 1 || peer.lost || peer.takes_less) return false;
  const PeerTxState& tx = peer.state->tx;
  const iovec& bytes = request.data.front();
  if (bytes.iov_len > context_.format.most_short || !tx.backlog.empty() || tx.rtrs) return false;
  // An injected message has no completion that could be delayed.
  if ((request.delivery_complete || request.match_complete) && !request.inject) return false;
  // Made twice: the compiler keeps none in memory that no function is given.
  const auto message = [&]() __attribute__((always_inline)) {
    return StreamMessage{.type = wire::Type::eager,
                         .flags = wire::flags_of(request.tagged, request.has_remote_data),
                         .tag = request.tag,
                         .data = request.remote_data,
                         .bytes = static_cast<const std::byte*>(bytes.iov_base),
                         .length = bytes.iov_len,
                         .counts_as = bytes.iov_len};
  };
  if (!sender_.post_short(peer, message())) {
    take_back_buffers();
    if (peer.lost || bytes.iov_len > sender_.max_payload(peer) ||
        !sender_.post_stream(peer, message())) {
      return false;
    }
  }
  context_.finish(request.report, [&]() -> Completion {
    return {.context = request.report.context,
            .length = bytes.iov_len,
            .tag = request.tag,
            .flags = kSend | (request.tagged ? kTagged : kMessage)};
  });
  return true;
}

// The peer may have returned credits while the program did nothing but send: a look at the receive
// queue takes less time than a message that waits. Over rings with large entries, which the model
// of an adapter does not have.
bool SendEngine::go_on_with_credits(Peer& peer) {
  const PeerTxState& tx = peer.state->tx;
  if (!has_large_ring(peer) || context_.in_progress || defers(peer)) return false;
  if (tx.ring.credits == 0 && !sender_.take_written_credits(peer) &&
      !events_.poll_receive_queue()) {
    return false;
  }
  if (!peer.lost && !tx.backlog.empty()) (void)pump_backlog(peer);
  return true;
}

Status SendEngine::send_now(const SendRequest& request) {
  Peer* const peer = peer_table_.find_peer(request.peer);
  if (peer == nullptr) [[unlikely]]
    return no_such_peer(request.peer);
  for (bool polled = false;; polled = true) {
    if (send_short(*peer, request)) return {};
    if (polled || !go_on_with_credits(*peer)) break;
  }
  take_back_buffers();
  if (peer->lost) return peer->state->loss;
  IoVec iov;
  if (!iov.set(request.data)) {
    return {Code::invalid,
            fmt::format("send: {} IOV entries, at most {}", request.data.size(), kMaxIov)};
  }
  if (request.inject && iov.total > kInjectLimit) {
    return {Code::invalid,
            fmt::format("send: {} bytes exceed the inject limit of {}", iov.total, kInjectLimit)};
  }
  const std::uint8_t flags = wire::flags_of(request.tagged, request.has_remote_data);
  const std::uint32_t completion_flags = kSend | (request.tagged ? kTagged : kMessage);
  // An injected message has no completion that could be delayed. A datagram's adapter does not know
  // what arrives.
  const bool delayed = (request.delivery_complete || request.match_complete) && !request.inject;
  const bool acknowledged = delayed && (request.match_complete || context_.over_datagrams());
  const bool measured = !request.inject && is_measured(*peer, iov.total);
  const bool alone = measured && nothing_is_under_way(*peer);
  const Nanoseconds began = measured ? context_.clock.now() : 0;
  const bool large = measured ? limit_.takes_rendezvous(iov.total, alone)
                              : !request.inject && is_large(*peer, iov.total);
  const bool eager = iov.total <= sender_.max_payload(*peer) && !large && !delayed;
  const std::size_t at = put_.find_rtr(*peer, request.tagged, request.tag);
  if (at != PutEngine::kNoRtr && large) {
    const wire::Detail& rtr = peer->state->tx.rtrs->open[at].detail;
    if (put_.may_put(*peer, iov, rtr)) {
      Status status = put_.put(*peer, request, iov, rtr);
      if (status.ok()) put_.consume_rtr(*peer, at);
      if (!MemoryRegistration::may_copy(status)) return status;
    }
  }

  // No RTR comes for a message of a size for which none is sent.
  const bool wait = large && !measured && at == PutEngine::kNoRtr && put_.may_defer(*peer);
  if (!wait && defers(*peer)) {
    put_.release_deferred(*peer);
  }
  if (eager && peer->state->tx.backlog.empty() && !is_putting(*peer)) {
    StreamMessage message{.type = wire::Type::eager,
                          .flags = flags,
                          .tag = request.tag,
                          .data = request.remote_data,
                          .iov = &iov,
                          .length = iov.total,
                          .counts_as = iov.total};
    if (sender_.post_stream(*peer, message)) {
      if (measured) eager_took(*peer, iov.total, 1, began, alone);
      context_.finish(request.report, {.context = request.report.context,
                                       .length = iov.total,
                                       .tag = request.tag,
                                       .flags = completion_flags});
      put_.consume_rtr(*peer, at);
      return {};
    }
  }
  if (records_.sends.in_use() >= records_.operation_limits.waiting) return too_many_wait();
  if (request.inject && has_large_ring(*peer) &&
      peer->state->tx.backlog.size() >= peer->state->tx.ring.entries) {
    return ring_is_full();
  }
  SendOperation* const operation = records_.take_for_caller(records_.sends);
  if (operation == nullptr) return records_.refusal();
  operation->peer = peer;
  operation->flags = flags;
  operation->tag = request.tag;
  operation->data = request.remote_data;
  operation->iov = iov;
  operation->report = request.report;
  operation->completion_flags = completion_flags;
  // It may be sent over another channel than the present one.
  const bool fits_one = iov.total <= eager_size(*peer, context_.format) -
                                         context_.format.stream_overhead -
                                         sizeof(wire::WireupRequest) - wire::kOperationBytes;
  const bool fragments = !acknowledged && context_.format.rendezvous_threshold != 0;
  operation->rendezvous = large || (!fits_one && !fragments);
  operation->acknowledged = acknowledged && !operation->rendezvous;
  operation->confirmed = delayed && !acknowledged && !operation->rendezvous;
  if (request.inject) {
    operation->copy = records_.take_copy(iov.total);
    if (operation->copy == nullptr) {
      records_.sends.give_back(operation);
      return records_.refusal();
    }
    iov.copy_out(operation->copy);
    operation->iov.parts[0] = {operation->copy, iov.total};
    operation->iov.count = 1;
    operation->rendezvous = false;
  }
  if (operation->rendezvous) {
    if (Status status = prepare_rendezvous(*operation); !status.ok()) {
      records_.sends.give_back(operation);
      return status;
    }
  }
  if (wait) {
    put_.defer(*operation);
    return {};
  }
  if (operation->acknowledged) operation->flags |= wire::kAcknowledge;
  if (operation->acknowledged || operation->confirmed) backlog_.await_fin(*operation);
  const bool rendezvous = operation->rendezvous;
  if (alone && rendezvous) timed_ = {operation->id, began};
  if (!peer->state->tx.backlog.empty() || !try_operation(*operation)) {
    backlog_.enqueue(*operation);
  } else if (measured && !rendezvous && !peer->lost) {
    const std::size_t most = sender_.max_payload(*peer);
    eager_took(*peer, iov.total, (iov.total + most - 1) / most, began, alone);
  }
  put_.consume_rtr(*peer, at);
  return {};
}

// A ring full of copies waits already. More of them, up to the budget, would only make each one
// slower: their records and blocks would not be in the cache when they are sent.
Status SendEngine::ring_is_full() {
  static const Status status{Code::again,
                             "the peer has received nothing for a ring full of messages"};
  return status;
}

// The budget for queued operations is used up, because peers receive nothing.
Status SendEngine::too_many_wait() {
  static const Status status{Code::again, "the budget allows no more pending operations"};
  return status;
}

bool SendEngine::is_large(const Peer& peer, std::size_t bytes) const noexcept {
  const MessageFormat& format = context_.format;
  if (format.large_ring_entry == 0 && format.rendezvous_threshold != 0)
    return bytes > format.rendezvous_threshold;
  if (bytes <= std::max(format.rendezvous_threshold, sender_.max_payload(peer))) return false;
  return !over_ring(peer.tx.kind) || bytes > format.most_over(peer.state->tx.ring.shape());
}

Status SendEngine::prepare_rendezvous(SendOperation& operation) {
  const IoVec& iov = operation.iov;
  for (std::uint32_t i = 0; i < iov.count; ++i) {
    if (iov.parts[i].iov_len == 0) continue;
    Status status =
        registration_.register_buffer(iov.parts[i], IBV_ACCESS_REMOTE_READ, &operation.regions[i]);
    if (MemoryRegistration::may_copy(status)) {
      TURNOUT_LOG(memory, info, "sending {} bytes in fragments: {}", iov.total, status.text());
      for (Registration& region : operation.regions) region.reset();
      break;
    }
    if (!status.ok()) return status;
  }
  backlog_.await_fin(operation);
  return {};
}

// Sends the operation if channel and credits allow.
bool SendEngine::try_operation(SendOperation& operation) {
  if (wire::is_request(operation.type)) {
    return events_.try_atomic(static_cast<AtomicOperation&>(operation));
  }
  Peer& peer = *operation.peer;
  // Writes to RTRs must complete first; only their put completions may be sent.
  if (is_putting(peer) && operation.type != wire::Type::put_completion && operation.rtr == 0) {
    return false;
  }
  StreamMessage message{.flags = operation.flags,
                        .tag = operation.tag,
                        .data = operation.data,
                        .counted = operation.counted};
  if (operation.type == wire::Type::put_completion) {
    const wire::PutCompletion completion{operation.grant.transfer,
                                         operation.grant.length,
                                         operation.outcome,
                                         operation.grant.last,
                                         {}};
    message.type = operation.type;
    message.bytes = reinterpret_cast<const std::byte*>(&completion);
    message.length = sizeof completion;
    if (!sender_.post_stream(peer, message)) return false;
    backlog_.end_send(operation, Status{});
    return true;
  }
  if (operation.type == wire::Type::rma_data) {
    const wire::RemoteEvent event{operation.grant.rkey, operation.reads, {}};
    message.type = operation.type;
    message.bytes = reinterpret_cast<const std::byte*>(&event);
    message.length = operation.has_event ? sizeof event : 0;
    if (!sender_.post_stream(peer, message)) return false;
    backlog_.end_send(operation, Status{});
    return true;
  }
  if (!operation.rendezvous) {
    if (operation.fragment_offset > 0 || operation.iov.total > sender_.max_payload(peer))
      return send_fragments(operation);
    message.type = operation.type == wire::Type::none ? wire::Type::eager : operation.type;
    message.iov = &operation.iov;
    message.length = message.counts_as = operation.iov.total;
    message.prefix = operation.id;
    if (operation.confirmed) return post_part(operation, message);
    const bool acknowledged = operation.acknowledged;
    if (!sender_.post_stream(peer, message)) return false;
    if (acknowledged) {  // already ended if the peer was lost meanwhile
      if (peer.lost) return true;
      operation.announced = true;
      ++peer.tx.awaiting_fin;
      return true;
    }
    backlog_.end_send(operation, Status{});
    return true;
  }
  wire::Rts rts;
  rts.total = operation.iov.total;
  rts.operation = operation.id;
  const std::uint32_t parts = SendBacklog::is_registered(operation) ? operation.iov.count : 0;
  for (std::uint32_t i = 0; i < parts; ++i) {
    const iovec& part = operation.iov.parts[i];
    if (part.iov_len == 0) continue;
    rts.segment[rts.segments++] = {reinterpret_cast<std::uint64_t>(part.iov_base), part.iov_len,
                                   operation.regions[i].rkey(), 0};
    rts.last = static_cast<const std::uint8_t*>(part.iov_base)[part.iov_len - 1];
  }
  if (operation.rtr != 0) {
    rts.has_rtr = 1;
    rts.rtr = operation.rtr;
  }
  std::array<std::byte, wire::kMostRtsBytes> bytes;
  message.type = wire::Type::rts;
  message.bytes = bytes.data();
  message.length = wire::write_rts(rts, bytes.data());
  message.counts_as = rts.total;
  if (!sender_.post_stream(peer, message)) return false;
  put_.count_rendezvous();
  if (peer.lost) return true;  // the operation has ended
  operation.announced = true;
  ++peer.tx.awaiting_fin;
  return true;
}

// An eager message in fragments: those that channel and credits allow. True: it is sent.
bool SendEngine::send_fragments(SendOperation& operation) {
  Peer& peer = *operation.peer;
  const std::size_t total = operation.iov.total;
  const bool confirmed = operation.confirmed;  // ended already if the peer is lost meanwhile
  while (operation.fragment_offset < total) {
    const bool first = operation.fragment_offset == 0;
    const std::size_t room = sender_.max_payload(peer) - (first ? wire::kTotalBytes : 0);
    const IoVec part = operation.iov.slice(operation.fragment_offset,
                                           std::min(room, total - operation.fragment_offset));
    StreamMessage message{.type = wire::Type::fragment,
                          .data = operation.fragment_offset,
                          .iov = &part,
                          .length = part.total};
    if (first) {
      message.type = wire::Type::eager_first;
      message.flags = operation.flags;
      message.tag = operation.tag;
      message.data = operation.data;
      message.prefix = message.counts_as = total;
      message.counted = operation.counted;
    }
    if (!post_part(operation, message)) return false;
    if (peer.lost) break;
  }
  if (!confirmed) backlog_.end_send(operation, peer.lost ? peer.state->loss : Status{});
  return true;
}

// A part of a message, or all of it. A confirmed operation has ended if the peer is lost.
bool SendEngine::post_part(SendOperation& operation, StreamMessage& message) {
  Peer& peer = *operation.peer;
  if (operation.confirmed) message.operation = operation.id;
  if (!sender_.post_stream(peer, message)) return false;
  if (peer.lost) return true;
  operation.fragment_offset += message.length;
  ++operation.in_flight;
  return true;
}

void SendEngine::on_delivered(Peer& peer, std::uint64_t id) {
  SendOperation* const operation = backlog_.find_confirmed(peer, id);
  if (operation == nullptr) return;  // ended with the peer
  assert(operation->in_flight > 0);
  if (--operation->in_flight == 0 && operation->fragment_offset == operation->iov.total)
    backlog_.end_send(*operation, Status{});
}

bool SendEngine::pump_backlog(Peer& peer) {
  bool moved = false;
  while (SendOperation* const operation = peer.state->tx.backlog.first()) {
    peer.state.ref().tx.backlog.remove(operation);
    if (!try_operation(*operation)) {
      peer.state.ref().tx.backlog.push_front(operation);
      break;
    }
    moved = true;
  }
  return moved;
}

bool SendEngine::pump_backlogs() {
  bool moved = false;
  remove_done(backlog_.backlogged(), [&](Peer& peer) {
    if (!defers(peer)) moved |= pump_backlog(peer);
    if (peer.state->tx.backlog.empty()) peer.backlogged = false;
    return !peer.backlogged;
  });
  return moved;
}

void SendEngine::on_fin(Peer& peer, const Fin& fin) {
  SendOperation* const operation = backlog_.find_awaiting(peer, fin.operation);
  if (operation == nullptr) {
    if (fin.may_repeat) return;
    TURNOUT_LOG(protocol, warn, "ignored an unexpected FIN: {}: operation {:#x} is not waiting",
                peer.address.to_string(), fin.operation);
    return;
  }
  if (peer.tx.awaiting_fin > 0) --peer.tx.awaiting_fin;
  if (context_.format.measures_limit) measure(peer, *operation, fin.read);
  backlog_.end_send(*operation, SendBacklog::status_reported(peer, fin.status, "fetch"));
}

void SendEngine::eager_took(Peer& peer, std::size_t bytes, std::size_t parts, Nanoseconds began,
                            bool alone) {
  RingSender& ring = peer.state.ref().tx.ring;
  if (!ring.touched()) [[unlikely]]
    return ring.count_large(parts);
  limit_.eager_took(bytes, parts, context_.clock.now() - began, alone);
}

// `time`: when the receiver had read the message, 0 if it did not note that. It knows: its FIN may
// wait behind its other messages, and this process may look late. A time that cannot be is of
// another clock.
void SendEngine::measure(const Peer& peer, const SendOperation& operation, std::uint64_t time) {
  const auto read = static_cast<Nanoseconds>(time);
  const auto follows = std::exchange(followed_, {});
  const bool alone = timed_.id == operation.id;
  const Nanoseconds began = alone ? std::exchange(timed_, {}).began : 0;
  if (read <= 0 || read > context_.clock.now()) return;
  if (alone && read > began) limit_.rendezvous_took(operation.iov.total, read - began);
  if (follows.peer == peer.id && read > follows.read)
    limit_.rendezvous_added(operation.iov.total, read - follows.read);
  if (peer.tx.awaiting_fin > 0) followed_ = {peer.id, read};
}

void SendEngine::release_overdue() {
  const Nanoseconds now = context_.clock.now();
  if (now < put_.deferred_until()) return;
  put_.look_no_more();
  for (std::size_t i = 0; i < backlog_.backlogged().size(); ++i) {
    Peer& peer = *backlog_.backlogged()[i];
    if (!defers(peer)) continue;
    const Nanoseconds until = peer.state->tx.rtrs->deferred_since + context_.settings.rtr_wait;
    if (now < until) {
      put_.look_at(until);
      continue;
    }
    peer.state->tx.rtrs->waits.count(false);
    put_.release_deferred(peer);
  }
}

}  // namespace turnout
