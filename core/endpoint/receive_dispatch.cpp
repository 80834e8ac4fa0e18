// SPDX-License-Identifier: BSD-3-Clause
#include "core/endpoint/receive_dispatch.h"
#include "base/log.h"

namespace turnout {

bool ReceiveDispatch::take_entries(const ibv_wc* entries, int count) {
  if (count < 0) {
    TURNOUT_LOG(channel, error, "ibv_poll_cq failed: receive queue");
    return false;
  }
  const std::span<const ibv_wc> all(entries, static_cast<std::size_t>(count));
  note_shutdowns(all);
  for (const ibv_wc& wc : all) {
    if ((wc.wr_id & kPrivateReceive) != 0) [[unlikely]] {
      on_private_receive(wc);
      continue;
    }
    const auto buffer = static_cast<std::uint32_t>(wc.wr_id);
    const bool control = (wc.wr_id & kControlReceive) != 0;
    if (!control) --shared_receives_.shared().posted;
    if (wc.status != IBV_WC_SUCCESS) {
      TURNOUT_LOG(channel, warn, "receive failed: {}; reposting the buffer",
                  ibv_wc_status_str(wc.status));
      control ? post_control_again(buffer) : post_again(buffer);
      continue;
    }
    if (context_.over_datagrams()) {
      on_datagram(control, buffer, wc.byte_len);
    } else if (control) {
      on_control(buffer, wc.byte_len);
      post_control_again(buffer);
    } else {
      operations_.receive_engine.on_data(buffer, wc.byte_len);
    }
  }
  resources_.shutting_down.clear();
  return true;
}

// A peer whose shutdown message is in this batch may be gone: earlier messages of the batch are not
// answered, because the reply could only fail.
void ReceiveDispatch::note_shutdowns(std::span<const ibv_wc> entries) noexcept {
  if (context_.over_datagrams()) return;
  for (const ibv_wc& wc : entries) {
    if ((wc.wr_id & kControlReceive) == 0 || wc.status != IBV_WC_SUCCESS ||
        wc.byte_len < sizeof(wire::ControlMessage)) {
      continue;
    }
    wire::ControlMessage message;
    std::memcpy(&message,
                resources_.control_receive_pool.data(static_cast<std::uint32_t>(wc.wr_id)),
                sizeof message);
    if (message.type == wire::Control::shutdown) resources_.shutting_down.push_back(message.sender);
  }
}

void ReceiveDispatch::on_control(std::uint32_t buffer, std::uint32_t length) {
  wire::ControlMessage message;
  wire::Detail detail;
  Status status =
      wire::parse_control(resources_.control_receive_pool.data(buffer), length, &message, &detail);
  if (!status.ok()) {
    TURNOUT_LOG(connection, error, "receiving a control message failed: {}; it was dropped",
                status.text());
    return;
  }
  Peer* const peer = peer_table_.find_sender(message.index, message.sender);
  if (peer == nullptr || peer->lost) {
    TURNOUT_LOG(connection, debug, "dropped a control message of {:016x}", message.sender);
    return;
  }
  peer->heard_since_tick = true;
  handle_control(*peer, message, detail);
  // With private receive queues this counts as the peer's first message.
  if (context_.traits.has_private_receives && wire::serves_large(message.type) &&
      context_.settings.test_switch_every == 0 && peer->rx.kind == context_.default_channel) {
    channels_.selector.on_message_counted(*peer);
  }
}

void ReceiveDispatch::handle_control(Peer& peer, const wire::ControlMessage& message,
                                     const wire::Detail& detail) {
  if (peer.connection->recovery && wire::changes_channel(message.type)) {
    return;  // from before the connection failed: both ends discard changes in progress
  }
  if (peer.connection->xrc && peer.connection->xrc->lost && wire::changes_receiving(message.type)) {
    return;  // the same, see xrc_recovery.cpp
  }
  switch (message.type) {
    case wire::Control::credit:
      if (message.kind == static_cast<std::uint8_t>(ChannelKind::rc_sr)) {
        credits_.on_private_credits(peer, message.request, message.credits);
        break;
      }
      peer.tx.credits = std::min(peer.tx.credits + message.credits, wire::kMostCredits);
      if (over_ring(peer.tx.kind))
        peer.state.ref().tx.ring.take_total(message.request, message.ring_entries);
      break;
    case wire::Control::wireup_reply:
      peer.remote_index = message.own_index;
      channels_.selector.on_wired_up(peer);
      break;
    case wire::Control::fin:
      return operations_.send_engine.on_fin(
          peer, {message.operation, message.status, message.ring_address});
    case wire::Control::shutdown:
      peer.shut_down = true;
      note_last(peer, message);
      break;
    case wire::Control::request:
      return channels_.negotiator.on_request(peer, message);
    case wire::Control::accept:
      return channels_.negotiator.on_accept(peer, message);
    case wire::Control::ready:
      return channels_.negotiator.on_ready(peer, message);
    case wire::Control::switched:
      return channels_.negotiator.on_switched(peer, message);
    case wire::Control::refuse:
      return channels_.negotiator.on_refuse(peer, message);
    case wire::Control::feedback:
      return channels_.selector.on_feedback(peer, message);
    case wire::Control::closed:
      return channels_.negotiator.on_closed(peer);
    case wire::Control::disconnect:
      return channels_.slots.on_disconnect(peer, message);
    case wire::Control::error:
      return channels_.recovery.on_error(peer, message);
    case wire::Control::replay:
      return channels_.recovery.on_replay(peer, message);
    case wire::Control::resumed:
      return channels_.recovery.on_resumed(peer, message);
    case wire::Control::xrc_error:
      return channels_.xrc_recovery.on_xrc_error(peer, message);
    case wire::Control::xrc_replay:
      return channels_.xrc_recovery.on_xrc_replay(peer, message);
    case wire::Control::xrc_resumed:
      return channels_.xrc_recovery.on_xrc_resumed(peer, message);
    case wire::Control::fragment_request:
      return operations_.fragments.on_fragment_request(peer, message);
    case wire::Control::cts:
      return operations_.rput.on_cts(peer, message, detail);
    case wire::Control::written:
      return operations_.rput.on_written(peer, message);
    case wire::Control::rtr:
      return operations_.put.on_rtr(peer, detail);
    case wire::Control::rtr_cancel:
      return operations_.put.on_rtr_cancel(peer, message.operation);
    case wire::Control::reject:
      return channels_.rejection.on_rejection(peer, message);
  }
}

void ReceiveDispatch::on_datagram(bool control, std::uint32_t buffer, std::uint32_t length) {
  const std::byte* const whole =
      control ? resources_.control_receive_pool.data(buffer) : resources_.receive_pool.data(buffer);
  const std::uint32_t size =
      control ? resources_.control_receive_pool.size() : resources_.receive_pool.size();
  wire::Datagram datagram;
  Status status;
  const std::byte* const bytes = whole + wire::kGrhBytes;
  if (length < wire::kGrhBytes || length > size) [[unlikely]] {
    status = {Code::invalid, "datagram: shorter than the adapter's header"};
  } else {
    length -= wire::kGrhBytes;
    status = wire::parse_datagram(bytes, length, &datagram);
    if (status.ok() && control == (datagram.kind == wire::DatagramKind::data)) [[unlikely]] {
      status = {Code::invalid, "datagram: arrived at the wrong queue pair"};
    }
  }
  if (!status.ok()) {
    TURNOUT_LOG(protocol, error, "receiving a datagram failed: {}; it was dropped", status.text());
    control ? post_control_again(buffer) : post_again(buffer);
    return;
  }
  if (control) {
    on_control_datagram(bytes, length);
    post_control_again(buffer);
  } else {
    operations_.receive_engine.on_data(buffer,
                                       length - static_cast<std::uint32_t>(sizeof datagram));
  }
}

void ReceiveDispatch::on_control_datagram(const std::byte* bytes, std::uint32_t length) {
  wire::Datagram datagram;
  std::memcpy(&datagram, bytes, sizeof datagram);
  bytes += sizeof datagram;
  length -= static_cast<std::uint32_t>(sizeof datagram);
  Peer* const peer = peer_table_.find_sender(datagram.index, datagram.sender);
  if (peer == nullptr && datagram.kind == wire::DatagramKind::probe) {
    wire::WireupRequest wireup;
    std::memcpy(&wireup, bytes, sizeof wireup);
    answer_unknown_peer(wireup);
    return;
  }
  if (peer == nullptr || peer->lost) {
    TURNOUT_LOG(connection, debug, "dropped a datagram of {:016x}", datagram.sender);
    // It has shut down and waits for our acknowledgement.
    if (peer != nullptr && peer->shut_down && datagram.kind != wire::DatagramKind::ack) {
      ud_.send_ack(*peer);
    }
    // It continues to probe: the rejection was lost.
    if (peer != nullptr && peer->state->given_up != Code::ok)
      peer->state.make().loss_unreported = true;
    return;
  }
  peer->heard_since_tick = true;
  take_ud_header(*peer, datagram);
  if (peer->lost || datagram.kind == wire::DatagramKind::ack) return;
  if (datagram.kind == wire::DatagramKind::probe) return ud_.owe_ack(*peer, true);
  wire::ControlMessage message;
  wire::Detail detail;  // types with a detail are not sent over UD
  if (Status status = wire::parse_control(bytes, length, &message, &detail); !status.ok()) {
    TURNOUT_LOG(connection, error, "receiving a datagram failed: {}; it was dropped",
                status.text());
    return;
  }
  if (datagram.kind == wire::DatagramKind::reject) {
    if (message.type == wire::Control::reject) handle_control(*peer, message, detail);
    return;
  }
  UdReliability& link = *peer->link;
  if (message.sequence != link.control_expected) {
    link.control_gap |= before(link.control_expected, message.sequence);
    ud_.owe_ack(*peer, true);
    return;
  }
  ++link.control_expected;
  ud_.owe_ack(*peer, false);
  handle_control(*peer, message, detail);
  // It waits for the acknowledgement, and this process may exit before its next timer.
  if (message.type == wire::Control::shutdown) ud_.send_ack(*peer);
}

void ReceiveDispatch::take_ud_header(Peer& peer, const wire::Datagram& datagram) {
  UdReliability& link = *peer.link;
  link.heard = true;
  link.probing = false;
  peer.probes = 0;
  bool moved = link.take_data_ack(datagram, peer.tx.sequence,
                                  [this](std::uint32_t buffer) { ud_.release_kept(buffer); });
  moved |= link.take_control_ack(datagram.control_ack);
  if (link.timed && before(link.timed_sequence, datagram.data_ack)) {
    link.timed = false;
    link.round_trip.sample(context_.clock.now() - link.timed_at);
  }
  if (moved || !link.waits()) {
    link.backoff = 0;
    link.due = 0;
    if (link.waits()) ud_.arm(peer, context_.clock.now());
  }
  // Later messages arrived: retransmit the first missing one, once for each.
  if (datagram.sack > 1 && (datagram.sack & 1u) == 0 && !link.sent.empty()) {
    const UdReliability::Sent& missing = link.sent[0];
    if (missing.sequence == datagram.data_ack && missing.buffer != kNoBuffer &&
        !(link.resent_data && link.resent_sequence == missing.sequence)) {
      link.resent_data = true;
      link.resent_sequence = missing.sequence;
      link.timed = false;
      ud_.resend_data(peer, missing);
    }
  }
  if ((datagram.flags & wire::kControlGap) != 0 && link.control_sent > 0 &&
      datagram.control_ack == link.control_first &&
      !(link.resent_control && link.resent_control_sequence == link.control_first)) {
    link.resent_control = true;
    link.resent_control_sequence = link.control_first;
    for (std::size_t i = 0; i < link.control_sent && !peer.lost; ++i) {
      if (!ud_.post_ud_control(peer, i)) break;
    }
  }
  if (!peer.lost && link.control_sent < link.control.size()) (void)ud_.transmit_control(peer);
}

// A probe of a peer without a record. If the reply cannot be sent, it probes again.
void ReceiveDispatch::answer_unknown_peer(const wire::WireupRequest& wireup) {
  auto address = Address::decode(&wireup.address, sizeof(Address));
  if (!address || !address.value().datagrams()) return;
  Status status;
  const RemotePort* const port = peer_table_.port_of(address.value(), &status);
  if (port == nullptr) return;
  wire::Datagram datagram{.sender = context_.address.id, .index = wireup.index};
  (void)control_sender_.post_control(*resources_.pool(Purpose::credit).front(), kAnyPeer,
                                     address.value(), *port, address.value().data_qps(),
                                     {&datagram, nullptr, 0}, &status);
}

// False: the sender cannot be rejected now; the message is to be handled again later.
bool ReceiveDispatch::on_wireup_request(const wire::WireupRequest& wireup, PeerId* id) {
  *id = kAnyPeer;
  auto address = Address::decode(&wireup.address, sizeof(Address));
  Status status = address.status();
  Peer* peer = nullptr;
  if (address) peer = peer_table_.make_peer(address.value(), &status);
  if (peer == nullptr) {
    if (address && !channels_.rejection.reject(wireup)) return false;
    TURNOUT_LOG(protocol, error, "wire-up failed: a request from a new peer was rejected: {}",
                status.text());
    return true;
  }
  *id = peer->id;
  peer->remote_index = wireup.index;
  // Its next messages need no wire-up request once it knows its index here.
  if (peer->link && std::exchange(peer->link->replied_to_wireup, true))
    return true;  // already sent
  control_.send_control(*peer, Purpose::credit,
                        {.type = wire::Control::wireup_reply, .own_index = peer->id});
  channels_.selector.on_wired_up(*peer);
  return true;
}

void ReceiveDispatch::on_private_receive(const ibv_wc& wc) {
  const auto buffer = static_cast<std::uint32_t>(wc.wr_id);
  ReceivePool::PrivateChunk* const chunk = resources_.receive_pool.private_chunk(buffer >> 16);
  if (chunk == nullptr || chunk->lifetime != wc.wr_id >> kLifetimeShift) return;
  if (wc.status != IBV_WC_SUCCESS) {  // with its queue pair, which will be given up
    TURNOUT_LOG(channel, debug, "receive failed: {}", ibv_wc_status_str(wc.status));
    return;
  }
  chunk->states[buffer & 0xffffu] = ReceivePool::PrivateChunk::State::out;
  ++chunk->out;
  Peer& peer = peer_table_.peers()[chunk->peer];
  if (peer.state->rx.private_queue.granted > 0) --peer.state.ref().rx.private_queue.granted;
  on_private_message(peer, buffer, wc.byte_len);
}

void ReceiveDispatch::on_private_message(Peer& peer, std::uint32_t buffer, std::uint32_t length) {
  wire::Parsed parsed;
  Status status = wire::parse_data(resources_.received(buffer),
                                   std::min(length, resources_.receive_pool.size()), &parsed);
  if (status.ok()) status = PrivateReceiveQueues::check_private_sender(peer, parsed);
  if (!status.ok()) {
    TURNOUT_LOG(protocol, error, "receiving a message failed: {}: {}; it was dropped",
                peer.address.to_string(), status.text());
    private_receives_.return_private_receive(buffer);
    return;
  }
  // Its first message may have been overtaken.
  PeerId id = peer.id;
  if (parsed.wireup != nullptr) (void)on_wireup_request(*parsed.wireup, &id);
  peer.heard_since_tick = true;
  PrivateReceives& receives = peer.state.make().rx.private_queue;
  if (wire::serves_large(parsed.header.type)) ++receives.serving;
  if (parsed.header.type == wire::Type::eager) ++receives.eager;
  if (parsed.header.type == wire::Type::control) {
    on_private_control(peer, parsed);
    private_receives_.return_private_receive(buffer);
    if (peer.rx.state == ReceiveState::draining) channels_.negotiator.finish_drain(peer);
  } else {
    operations_.receive_engine.take_message(peer, parsed, buffer, length);
  }
  if (!peer.lost && receives.count > 0 && receives.serving >= receives.grow_at &&
      receives.count < context_.most_private()) {
    private_receives_.grow_private_receives(peer);
  }
}

void ReceiveDispatch::on_private_control(Peer& peer, const wire::Parsed& parsed) {
  credits_.credits_given(peer, parsed.header);
  ++peer.state.make().rx.private_queue.controls;
  private_receives_.count_control();
  wire::ControlMessage message;
  wire::Detail detail;
  const Status status =
      wire::parse_control(parsed.payload, parsed.header.length, &message, &detail);
  if (!status.ok() || !wire::serves_large(message.type)) {
    TURNOUT_LOG(connection, error, "receiving a control message failed: {}: {}; it was dropped",
                peer.address.to_string(),
                status.ok() ? fmt::format("control message: type {} in a private receive queue",
                                          static_cast<unsigned>(message.type))
                            : status.text());
    return;
  }
  handle_control(peer, message, detail);
}

}  // namespace turnout
