// SPDX-License-Identifier: BSD-3-Clause
// J1-J5 of AQPS 3.3: changes the channel of one direction of a pair between the default transport
// (DC-sendrecv, or UD-sendrecv without DC), a ring written over DC, a ring written over an RC queue
// pair, and messages over that queue pair (RC-SRQ, RC-SR). Beyond the paper: refusal and fallback,
// crossing requests, the switch back, reuse of queue pairs.
//
// For RC the receiver of the data requests the switch (J1) with its ring and its RC queue pair. The
// sender creates its own, connects it and accepts (J2), or refuses, or falls back to the ring over
// DC. The receiver connects (J3, ready). The sender switches and reports the last sequence number
// of the old channel (J4). Under the policy `turnout` the sender accepts before it connects, so
// that both connect at the same time (the overlap of ACTS' on-demand connections), and switches
// when both have. Every message carries its sequence number and is delivered in that order (J5). A
// ring over DC needs no queue pair: request, switched.
//
// The switch back uses the same messages: request, switched, and from RC `closed` when everything
// sent over it has been delivered. Between the two kinds of ring the ring is kept, with its
// contents and credits; its entries are read in order, whichever channel wrote them.
//
// RC-SRQ and RC-SR need a queue pair and no ring. Between them and a ring over RC the queue pair is
// kept: request, switched. RC-SRQ and the default transport consume receives of the same shared
// queue. Between them a sender switches only when its earlier messages have consumed receives:
// otherwise messages of the new channel, which wait for those of the old one, could consume all.
//
// If the initiator's queue pairs have private receive queues (RC-SR), every request for RC contains
// their size. Rendezvous control messages use them also while a ring serves the direction.
//
// One RC queue pair serves both directions of a pair. If requests cross, each contains its sender's
// queue pair and also answers the other. Establishment messages of a pair are ordered, so when
// `closed` was sent in both directions both ends know it and RESET their queue pairs. A later
// request contains a new queue pair, and an end that still has the old connection reconnects.
#include "core/channels/channel_negotiator.h"
#include "base/log.h"

namespace turnout {
// Requests the peer to send into our ring, over DC or RC, or over RC without one. An existing ring
// is kept.
Status ChannelNegotiator::request_channel(Peer& peer, ChannelKind to, ChannelKind fallback) {
  ChannelChange& change = peer.change.make();
  change.wanted = to;
  change.fallback = fallback;
  if (peer.remote_index == wire::kUnknownIndex) {
    return {Code::again, "wire-up with the peer is not complete"};
  }
  if (!peer.state->rx.ring && over_ring(to)) {
    if (Status status = ring_pool_.want_ring(peer); !status.ok()) return status;
  }
  if (over_rc(to)) {
    if (Status status = rc_.want_rc(peer); !status.ok()) {
      drop_new_ring(peer);
      return status;
    }
  }
  peer.rx.state = ReceiveState::preparing;
  peer.change.make().requested_at = context_.clock.now();
  if (over_rc(to)) {
    advance_rc(peer);
  } else {
    send_request(peer);
  }
  return {};
}

// J1, when ring and queue pair are ready.
void ChannelNegotiator::send_request(Peer& peer) {
  const bool with_ring = over_ring(peer.change->wanted);
  if (with_ring && !peer.state->rx.ring) return;  // it is made, see end_ring_job()
  const bool fresh = !over_ring(peer.rx.kind);    // the ring
  if (context_.closing) {
    peer.rx.state = ReceiveState::steady;
    drop_new_ring(peer);
    outcomes_.decided(peer, "not done: the endpoint is closing");
    rc_.drop_rc_if_unused(peer);
    return;
  }
  if (ring_over_connection(peer.change->wanted) && !fresh && !peer.state->rx.ring->checked() &&
      !context_.placement.rc_in_order().value_or(true)) {
    peer.rx.state = ReceiveState::steady;
    events_.request_failed(
        peer, Status{Code::unsupported,
                     "left on DC-RDMA: the adapter places RC data in any order, and the "
                     "ring has no checksums"});
    return;
  }
  const bool has_private = context_.traits.has_private_receives && over_rc(peer.change->wanted) &&
                           !over_rc(peer.rx.kind);
  if (has_private) {
    if (Status status = private_receives_.ready_private_receives(peer); !status.ok()) {
      peer.rx.state = ReceiveState::steady;
      drop_new_ring(peer);
      events_.request_failed(peer, status);
      return;
    }
  }
  if (with_ring && fresh && context_.placement.checks()) peer.state->rx.ring->check();
  wire::ControlMessage message{.request = ++peer.change.make().request};
  if (with_ring && fresh) {
    PeerRxState& rx = peer.state.ref().rx;
    rx.ring_request = message.request;
    rx.unreported_ring = rx.returned_ring = 0;
  }
  if (has_private) {
    peer.state.make().rx.private_queue.request = message.request;
    message.credits = static_cast<std::uint16_t>(peer.state->rx.private_queue.granted);
  }
  peer.rx.state = ReceiveState::requested;
  message.type = wire::Control::request;
  message.kind = static_cast<std::uint8_t>(peer.change->wanted);
  message.fallback = static_cast<std::uint8_t>(peer.change->fallback);
  if (over_rc(peer.change->wanted)) message.qp_id = peer.connection->rc->qp_id();
  if (over_xrc(peer.change->wanted)) message.qp_id = resources_.xrc->srq_number();
  if (with_ring) {
    message.ring_address = peer.state->rx.ring->address();
    message.ring_rkey = peer.state->rx.ring->rkey();
    message.ring_entries = peer.state->rx.ring->entries();
    message.ring_checked = peer.state->rx.ring->checked() ? 1 : 0;
    message.entry_units =
        static_cast<std::uint16_t>(peer.state->rx.ring->entry_size() / Address::kSizeUnit);
  }
  control_.send_control(peer, Purpose::establishment, message);
}

// Requests the switch back from our ring, or from RC to the ring over DC.
void ChannelNegotiator::request_switch_back(Peer& peer, ChannelKind to) {
  peer.rx.state = ReceiveState::closing;
  ChannelChange& change = peer.change.make();
  change.wanted = to;
  change.requested_at = context_.clock.now();
  control_.send_control(peer, Purpose::establishment,
                        {.type = wire::Control::request,
                         .kind = static_cast<std::uint8_t>(to),
                         .request = ++change.request});
}

void ChannelNegotiator::refuse(Peer& peer, std::uint32_t request, wire::Refusal why) {
  ++refusals_;
  control_.send_control(peer, Purpose::establishment,
                        {.type = wire::Control::refuse, .refusal = why, .request = request});
}

// J4, at the sender of the data: its next message uses the new channel.
void ChannelNegotiator::switch_sending(Peer& peer, ChannelKind to, std::uint32_t request,
                                       wire::Refusal refusal) {
  peer.send_on(to, context_.age());
  if (!over_rc(to) && peer.state->tx.private_queue.request != 0) {
    PrivateSender& sender = peer.state.make().tx.private_queue;
    sender.request = sender.credits = 0;
  }
  control_.send_control(peer, Purpose::establishment,
                        with_last(peer, {.type = wire::Control::switched,
                                         .kind = static_cast<std::uint8_t>(to),
                                         .refusal = refusal,
                                         .request = request}));
}

// Delays J4: sends nothing to this peer until its earlier messages have consumed receives.
void ChannelNegotiator::switch_after_flush(Peer& peer, ChannelKind to, std::uint32_t request) {
  ChannelAnswer& answer = peer.change.make().answer;
  answer.kind = to;
  answer.request = request;
  peer.tx.state = SendState::flushing;
  peer.tx.flush_posted = false;
  sender_.post_flush(peer);
}

void ChannelNegotiator::on_flushed(Peer& peer) {
  Recovery* const lost = peer.connection->recovery ? peer.connection->recovery.get()
                         : peer.connection->xrc    ? peer.connection->xrc->lost.get()
                                                   : nullptr;
  if (lost != nullptr) {
    if (peer.tx.flush_posted) lost->flushed = true;  // not one of before
    return;
  }
  if (peer.lost || peer.tx.state != SendState::flushing) return;
  peer.tx.state = SendState::steady;
  switch_sending(peer, peer.change->answer.kind, peer.change->answer.request);
}

// A pair uses either an RC queue pair or XRC, not both: each has its own states of set-up and
// failure.
bool ChannelNegotiator::excludes(const Peer& peer, ChannelKind to) noexcept {
  if (over_xrc(to)) return peer.connection->has_rc();
  const bool asks = peer.rx.state != ReceiveState::steady && over_xrc(peer.change->wanted);
  return over_rc(to) && (asks || (peer.connection->xrc && !peer.connection->xrc->idle()));
}

// J2, at the sender of the data.
void ChannelNegotiator::on_request(Peer& peer, const wire::ControlMessage& message) {
  const auto to = static_cast<ChannelKind>(message.kind);
  const bool over_dc = to == ChannelKind::dc_rdma;
  if (peer.tx.state == SendState::flushing)
    return refuse(peer, message.request, wire::Refusal::busy);
  // Otherwise messages over the default transport could consume every receive when the connection
  // fails, and the resent messages would find none.
  if (to == context_.default_channel && sends_over_rc(peer))
    return switch_after_flush(peer, to, message.request);
  // Switching back needs no resources.
  const bool from_ring_over_rc = peer.tx.kind == ChannelKind::rc_rdma;
  const bool has_private = peer.state->tx.private_queue.request != 0;
  const bool keeps_rc = to == ChannelKind::rc_srq || (to == ChannelKind::rc_sr && has_private);
  if (to == context_.default_channel || (over_dc && ring_over_connection(peer.tx.kind)) ||
      (keeps_rc && from_ring_over_rc)) {
    return switch_sending(peer, to, message.request);
  }
  const std::uint32_t entry_size = message.entry_units * Address::kSizeUnit;
  const bool bad_ring =
      over_ring(to) && (message.ring_entries == 0 || message.ring_entries > kMaxRingEntries ||
                        entry_size < wire::kLeastMessage || entry_size > wire::kMostMessage);
  const bool bad_kind = (!over_ring(to) && !messages_over_rc(to)) ||
                        (to != ChannelKind::rc_rdma && context_.over_datagrams());
  const bool bad_receives =
      message.credits > wire::kMostCredits || (message.credits <= wire::kPrivateReserve &&
                                               (message.credits > 0 || to == ChannelKind::rc_sr));
  const bool bad_number = over_connection(to) && qp_number_of(message.qp_id) == 0;
  if (bad_kind || bad_ring || bad_receives || bad_number) {
    TURNOUT_LOG(connection, error,
                "rejected an invalid channel request: {}: channel {}, {} ring entries of {} bytes, "
                "queue pair {}, {} private receives",
                peer.address.to_string(), message.kind, message.ring_entries, entry_size,
                qp_number_of(message.qp_id), message.credits);
    refuse(peer, message.request, wire::Refusal::device);
    return;
  }
  const bool has_ring = peer.tx.kind == ChannelKind::dc_rdma;
  const bool adds_ring = to == ChannelKind::rc_rdma && messages_over_rc(peer.tx.kind);
  if (peer.connection->eviction.disconnecting && over_rc(to))
    return refuse(peer, message.request, wire::Refusal::disconnecting);
  const bool from_xrc =
      over_xrc(peer.tx.kind) || (peer.connection->xrc && peer.connection->xrc->link != nullptr);
  if (context_.closing || peer.tx.state != SendState::steady || (peer.tx.uses_rc && !adds_ring) ||
      from_ring_over_rc || from_xrc || (has_ring && !ring_over_connection(to))) {
    return refuse(peer, message.request, wire::Refusal::busy);
  }
  if (excludes(peer, to)) return refuse(peer, message.request, wire::Refusal::other);
  if (over_xrc(to) && !xrc_nodes_.has_xrc())
    return refuse(peer, message.request, wire::Refusal::device);
  if (!has_ring && over_ring(to)) {
    peer.change.make().answer.ring = RingSender{message.ring_address,
                                                message.ring_rkey,
                                                message.ring_entries,
                                                entry_size,
                                                message.ring_entries,
                                                message.request,
                                                {},
                                                message.ring_checked != 0};
    if (entry_size > resources_.send_pool.size()) sender_.make_large_buffers();
  }
  if (over_dc || adds_ring) {
    peer.state.make().tx.ring = peer.change->answer.ring;
    switch_sending(peer, to, message.request);
    return;
  }
  ChannelAnswer& answer = peer.change.make().answer;
  answer.kind = to;
  answer.request = message.request;
  answer.fallback = static_cast<ChannelKind>(message.fallback);
  answer.private_credits = message.credits;
  answer.ready = false;
  if (over_xrc(to)) return xrc_nodes_.take_xrc_request(peer, message.qp_id);
  if (!eviction_.active() || slots_.may_have_slot(peer, false) ||
      !slots_.park(peer, message.qp_id)) {
    take_request(peer, message.qp_id);
  }
}

// For the request answered last, with its QP id.
void ChannelNegotiator::take_request(Peer& peer, std::uint32_t qp_id) {
  if (!peer.connection->has_rc() && rc_.active_rc() >= context_.settings.max_active_rc)
    return answer_refusal(peer, wire::Refusal::limit);
  peer.connect().remote_qp_id = qp_id;
  if (Status status = rc_.want_rc(peer); !status.ok()) {
    peer.connect().remote_qp_id = 0;
    answer_refusal(peer, RcPool::refusal_of(peer, status));
    return;
  }
  peer.tx.state = SendState::preparing;
  advance_rc(peer);
}

// No RC for the request answered last: falls back to the ring over DC if the request allows it.
void ChannelNegotiator::answer_refusal(Peer& peer, wire::Refusal why) {
  rc_.drop_rc_if_unused(peer);
  if (peer.tx.kind == context_.default_channel && !context_.over_datagrams() &&
      ring_over_connection(peer.change->answer.kind) &&
      peer.change->answer.fallback == ChannelKind::dc_rdma) {
    ++refusals_;
    peer.state.make().tx.ring = peer.change->answer.ring;
    switch_sending(peer, ChannelKind::dc_rdma, peer.change->answer.request, why);
  } else {
    refuse(peer, peer.change->answer.request, why);
  }
}

// Our queue pair is connected, or begins to be.
void ChannelNegotiator::send_accept(Peer& peer) {
  if (context_.closing) {
    peer.tx.state = SendState::steady;
    refuse(peer, peer.change->answer.request, wire::Refusal::busy);
    rc_.drop_rc_if_unused(peer);
    return;
  }
  peer.tx.state = SendState::accepted;
  const CreditWord& word = peer.connection->rc->credit_word;
  control_.send_control(peer, Purpose::establishment,
                        {.type = wire::Control::accept,
                         .request = peer.change->answer.request,
                         .qp_id = peer.connection->rc->qp_id(),
                         .ring_address = word.address(),
                         .ring_rkey = word.rkey});
}

// At the receiver of the data.
void ChannelNegotiator::on_accept(Peer& peer, const wire::ControlMessage& message) {
  if (peer.rx.state != ReceiveState::requested || message.request != peer.change->request ||
      !over_connection(peer.change->wanted) || qp_number_of(message.qp_id) == 0) {
    TURNOUT_LOG(connection, warn, "ignored an unexpected accept: {}: request {}, queue pair {}",
                peer.address.to_string(), message.request, qp_number_of(message.qp_id));
    return;
  }
  if (over_xrc(peer.change->wanted)) return xrc_nodes_.on_xrc_accept(peer, message);
  peer.rx.state = ReceiveState::connecting;
  PeerConnection& connection = peer.connect();
  connection.remote_qp_id = message.qp_id;
  connection.credits_at = message.ring_address;
  connection.credits_rkey = context_.traits.writes_credits ? message.ring_rkey : 0;
  advance_rc(peer);
}

// J3: our queue pair is connected too.
void ChannelNegotiator::send_ready(Peer& peer) {
  peer.rx.state = ReceiveState::accepted;
  control_.send_control(peer, Purpose::establishment,
                        {.type = wire::Control::ready, .request = peer.change->request});
}

// At the sender of the data: switches to RC.
void ChannelNegotiator::on_ready(Peer& peer, const wire::ControlMessage& message) {
  if (peer.tx.state != SendState::accepted || message.request != peer.change->answer.request)
    return;
  if (over_xrc(peer.change->answer.kind)) return xrc_nodes_.on_xrc_ready(peer, message);
  if (!peer.connection->has_rc()) return;  // it failed: the refusal is under way
  peer.change.make().answer.ready = true;
  if (peer.connection->rc_job == nullptr) begin_sending_over_rc(peer);
}

// Both ends are connected.
void ChannelNegotiator::begin_sending_over_rc(Peer& peer) {
  const ChannelAnswer& answer = peer.change->answer;
  peer.tx.state = SendState::steady;
  peer.tx.uses_rc = true;
  if (answer.private_credits > 0) {
    PrivateSender& sender = peer.state.make().tx.private_queue;
    sender.credits = answer.private_credits;
    sender.request = answer.request;
  }
  // Each has its own receives: no need to wait for messages in flight.
  if (answer.kind == ChannelKind::rc_sr)
    return switch_sending(peer, ChannelKind::rc_sr, answer.request);
  if (answer.kind == ChannelKind::rc_srq)
    return switch_after_flush(peer, ChannelKind::rc_srq, answer.request);
  if (peer.tx.kind != ChannelKind::dc_rdma) peer.state.make().tx.ring = answer.ring;
  switch_sending(peer, ChannelKind::rc_rdma, answer.request);
}

// The new channel serves the direction peer -> us after the message last_old.
void ChannelNegotiator::switch_receiving(Peer& peer, ChannelKind to) {
  const bool polled = over_ring(peer.rx.kind);
  peer.rx.state = ReceiveState::steady;
  peer.receive_on(to, context_.age());
  if (peer.state->rx.private_queue.unreported > 0) private_receives_.report_private_credits(peer);
  if (over_ring(to) && !polled) rings_.add(peer);
  if (!over_ring(to) && polled) {
    rings_.remove(peer);
    PeerRxState& rx = peer.state.ref().rx;
    ring_pool_.put_away(std::move(rx.ring));
    rx.unreported_ring = rx.returned_ring = 0;
  }
}

// Frees the ring of a request that failed.
void ChannelNegotiator::drop_new_ring(Peer& peer) {
  if (!over_ring(peer.rx.kind)) peer.state.make().rx.ring.reset();
}

// Whether a refusal may still arrive, also after the accept: the connection may fail first.
bool ChannelNegotiator::awaits_answer(const Peer& peer) noexcept {
  return peer.rx.state == ReceiveState::requested || peer.rx.state == ReceiveState::connecting ||
         peer.rx.state == ReceiveState::accepted;
}

// J5, at the receiver of the data.
void ChannelNegotiator::on_switched(Peer& peer, const wire::ControlMessage& message) {
  if (message.request != peer.change->request) return;
  const auto to = static_cast<ChannelKind>(message.kind);
  note_last(peer, message);
  const bool adds_ring = peer.rx.state == ReceiveState::requested &&
                         messages_over_rc(peer.rx.kind) && to == ChannelKind::rc_rdma;
  if ((peer.rx.state == ReceiveState::accepted || adds_ring) && over_connection(to) &&
      to == peer.change->wanted) {
    switch_receiving(peer, to);
    outcomes_.done(peer);
  } else if (peer.rx.state == ReceiveState::requested && to == ChannelKind::dc_rdma &&
             !over_ring(peer.rx.kind) && over_ring(peer.change->wanted)) {
    const bool instead = peer.change->wanted != to;
    switch_receiving(peer, to);
    if (instead) {
      wait_before_asking(peer, message.refusal, "; the peer writes to the ring over DC");
      rc_.drop_rc_if_unused(peer);
    } else {
      outcomes_.done(peer);
    }
  } else if (peer.rx.state == ReceiveState::closing && to == peer.change->wanted) {
    peer.rx.state = ReceiveState::draining;
    if (!has_last_message(peer)) rings_.spoke(peer);
    finish_drain(peer);
  }
}

// Frees the old channel when everything sent over it is delivered and no read uses it. A ring must
// not contain messages any more.
void ChannelNegotiator::finish_drain(Peer& peer) {
  if (peer.rx.state != ReceiveState::draining || peer.lost) return;
  if (peer.connection->xrc && peer.connection->xrc->failed) return;  // see on_xrc_resumed()
  const bool drained = has_last_message(peer) &&
                       (over_rc(peer.change->wanted) || has_last_control(peer)) &&
                       peer.state->rx.reads_over_rc == 0 &&
                       (over_ring(peer.change->wanted) || !peer.state->rx.ring ||
                        peer.state->rx.ring->all_returned());
  if (!drained && context_.settings.break_rule != "free-before-drain") return;
  const bool left_rc = over_rc(peer.rx.kind) && !over_rc(peer.change->wanted);
  const bool left_xrc = over_xrc(peer.rx.kind);
  switch_receiving(peer, peer.change->wanted);
  if (left_xrc) xrc_nodes_.release_target(peer);
  if (left_rc || left_xrc) send_closed(peer);
  outcomes_.done(peer);
  rc_.drop_rc_if_unused(peer);
}

// The request answered last failed, or its channel was switched back.
void ChannelNegotiator::send_closed(Peer& peer) {
  control_.send_control(peer, Purpose::establishment,
                        {.type = wire::Control::closed, .request = peer.change->request});
}

// The peer's budget and limits change with the communication pattern: request again after a few
// decisions, not at once. Where connections are evicted for others a slot is free much sooner.
void ChannelNegotiator::wait_before_asking(Peer& peer, wire::Refusal why,
                                           std::string_view instead) {
  const bool place =
      why == wire::Refusal::disconnecting ||
      (eviction_.active() && (why == wire::Refusal::limit || why == wire::Refusal::budget));
  outcomes_.wait_after_refusal(
      peer, place ? eviction_.slot_timeout() : kDecisionsRefused * context_.settings.interval);
  if (context_.traits.uses_feedback && over_ring(peer.change->wanted) && !peer.change->predicted)
    outcomes_.note_set_up(false);
  peer.change.make().reason =
      fmt::format("peer refused {}: {}{}",
                  peer.change->wanted == ChannelKind::rc_rdma ? "RC" : name(peer.change->wanted),
                  wire::explain(why), instead);
  outcomes_.decided(peer, fmt::format("refused by peer: {}{}", wire::explain(why), instead));
}

void ChannelNegotiator::on_refuse(Peer& peer, const wire::ControlMessage& message) {
  if (!awaits_answer(peer) || message.request != peer.change->request) return;
  peer.rx.state = ReceiveState::steady;
  if (over_xrc(peer.change->wanted)) xrc_nodes_.release_target(peer);
  drop_new_ring(peer);
  wait_before_asking(peer, message.refusal, "");
  slots_.continue_disconnect(peer);
  rc_.drop_rc_if_unused(peer);
}

void ChannelNegotiator::on_closed(Peer& peer) {
  if (peer.tx.state == SendState::accepted) peer.tx.state = SendState::steady;
  peer.tx.uses_rc = false;
  rc_.drop_rc_if_unused(peer);
  if (!over_xrc(peer.tx.kind)) xrc_nodes_.release_xrc_connection(peer);
}

}  // namespace turnout
