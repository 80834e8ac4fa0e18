// SPDX-License-Identifier: BSD-3-Clause
// Receive queues of queue pairs' own (policy ardma-sr; MVAPICH's send/receive channel, Sur, Koop,
// Panda, SC'06, 2.2.1): each peer that sends over RC has a few receives that nobody else's messages
// take, and many once what serves large messages comes often.
//
// The sender has a credit for each, told with the request for RC and handed back as buffers come
// free and are posted again: no message finds no receive. RTS and what follows a large message
// take them also while a ring serves the direction. FIN, CTS and `written` have no place in the
// stream: they are dealt with when they come, whatever waits, and free their receive at once. The
// last credit is theirs; without one they travel over the queue pairs for credits as under every
// other design, so they wait for nobody's receives.
//
// What is posted cannot be taken from a queue pair: its buffers go when it is RESET, except those
// in which messages lie.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/log.h"
#include "core/endpoint/endpoint_core.h"

namespace turnout {
namespace {
using State = ReceivePool::Own::State;
}

// To the pair's queue pair, not posted yet.
Status EndpointCore::add_own(Peer& peer, std::uint32_t count) {
  if (count > own_room_ - std::min(own_room_, own_count_)) {
    return {Code::again, "the completion queue has no room for more private receives"};
  }
  auto chunk = receive_pool_.add_own(*device_, account_, count, reserved_headroom(), peer.id);
  if (!chunk) return chunk.status();
  charge(Work::register_memory, std::uint64_t{count} * receive_pool_.size());
  peer.rc->receive_chunks.push_back(chunk.value());
  peer.own.count += count;
  own_count_ += count;
  own_report_.buffers_peak = std::max<std::uint64_t>(own_report_.buffers_peak, own_count_);
  return {};
}

// Before a request for RC: what its message lends.
Status EndpointCore::ready_own(Peer& peer) {
  OwnReceives& own = peer.own;
  if (own.grow_at == 0) own.grow_at = settings_.private_receive_threshold;
  if (peer.rc->receive_chunks.empty()) {
    const auto first = static_cast<std::uint32_t>(
        std::min(settings_.private_receive_first, settings_.private_receive_buffers));
    if (Status status = add_own(peer, first); !status.ok()) return status;
  }
  own.lent = own.count;
  for (const std::uint32_t chunk : peer.rc->receive_chunks) {
    own.lent -= receive_pool_.own(chunk)->out;
  }
  own.owed = 0;
  if (own.lent > wire::kOwnReserve) return {};
  return {Code::again, "unexpected messages occupy the peer's private receives"};
}

void EndpointCore::post_own(Peer& peer) {
  if (peer.rc->connected_to() == 0) return;
  for (const std::uint32_t chunk : peer.rc->receive_chunks) {
    ReceivePool::Own& own = *receive_pool_.own(chunk);
    for (std::uint32_t i = 0; i < own.states.size(); ++i) {
      if (own.states[i] == State::idle) post_own(peer, own, chunk << 16 | i);
    }
  }
}

void EndpointCore::post_own(Peer& peer, ReceivePool::Own& own, std::uint32_t buffer) {
  const std::uint64_t wr_id = std::uint64_t{own.lifetime} << kLifetimeShift | kOwnReceive | buffer;
  charge(Work::post, 1);
  const Status status =
      peer.rc->post_receive(wr_id, {reinterpret_cast<std::uint64_t>(receive_pool_.data(buffer)),
                                    receive_pool_.size(), receive_pool_.lkey(buffer)});
  if (!status.ok()) {  // its sender finds no receive, and tries again
    TURNOUT_LOG(channel, error, "posting a private receive failed: {}: {}; its sender retries",
                peer.address.to_string(), status.text());
    return;
  }
  own.states[buffer & 0xffffu] = State::posted;
}

// The queue will be RESET, and connected again.
void EndpointCore::unpost_own(const RcQueue& queue) {
  for (const std::uint32_t chunk : queue.receive_chunks) {
    ReceivePool::Own& own = *receive_pool_.own(chunk);
    receive_pool_.begin_lifetime(own);
    std::replace(own.states.begin(), own.states.end(), State::posted, State::idle);
  }
}

// The peer lets go of the queue; its adapter may still write until it is RESET.
void EndpointCore::close_own(Peer& peer, const RcQueue& queue) {
  for (const std::uint32_t chunk : queue.receive_chunks) {
    ReceivePool::Own& own = *receive_pool_.own(chunk);
    receive_pool_.begin_lifetime(own);
    own.closed = true;
  }
  peer.own.count = peer.own.lent = peer.own.owed = 0;
}

// It was RESET or destroyed.
void EndpointCore::leave_own(RcQueue& queue) {
  for (const std::uint32_t chunk : queue.receive_chunks) {
    ReceivePool::Own& own = *receive_pool_.own(chunk);
    own.closed = own.left = true;
    own_count_ -= static_cast<std::uint32_t>(own.states.size());
    if (own.out == 0) receive_pool_.drop_own(chunk);
  }
  queue.receive_chunks.clear();
}

void EndpointCore::on_own_receive(const ibv_wc& wc) {
  const auto buffer = static_cast<std::uint32_t>(wc.wr_id);
  ReceivePool::Own* const own = receive_pool_.own(buffer >> 16);
  if (own == nullptr || own->lifetime != wc.wr_id >> kLifetimeShift) return;
  if (wc.status != IBV_WC_SUCCESS) {  // with its queue pair, which will be given up
    TURNOUT_LOG(channel, debug, "receive failed: {}", ibv_wc_status_str(wc.status));
    return;
  }
  own->states[buffer & 0xffffu] = State::out;
  ++own->out;
  Peer& peer = *peers_[own->peer];
  if (peer.own.lent > 0) --peer.own.lent;
  on_own_message(peer, buffer, wc.byte_len);
}

// The queue pair tells who it is from; the message must not tell another.
Status EndpointCore::check_own_sender(const Peer& peer, const wire::Parsed& parsed) {
  if (parsed.header.index != peer.id && parsed.header.index != wire::kUnknownIndex) {
    return {Code::invalid, fmt::format("message: index {} in the private receive queue of peer {}",
                                       parsed.header.index, peer.id)};
  }
  if (parsed.introduction == nullptr) return {};
  wire::Introduction introduction;
  std::memcpy(&introduction, parsed.introduction, sizeof introduction);
  if (introduction.address.id == peer.address.id) return {};
  return {Code::invalid, fmt::format("message: wire-up request of another endpoint, {:016x}",
                                     introduction.address.id)};
}

void EndpointCore::on_own_message(Peer& peer, std::uint32_t buffer, std::uint32_t length) {
  wire::Parsed parsed;
  Status status =
      wire::parse_data(received(buffer), std::min(length, receive_pool_.size()), &parsed);
  if (status.ok()) status = check_own_sender(peer, parsed);
  if (!status.ok()) {
    TURNOUT_LOG(protocol, error, "receiving a message failed: {}: {}; it was dropped",
                peer.address.to_string(), status.text());
    give_back_own(buffer);
    return;
  }
  // Its first message may have been overtaken.
  PeerId id = peer.id;
  if (parsed.introduction != nullptr) (void)introduce(*parsed.introduction, &id);
  peer.heard_since_tick = true;
  OwnReceives& own = peer.own;
  if (wire::serves_large(parsed.header.type)) ++own.serving;
  if (parsed.header.type == wire::Type::eager) ++own.eager;
  if (parsed.header.type == wire::Type::control) {
    on_own_control(peer, parsed);
    give_back_own(buffer);
    if (peer.receive_state == ReceiveState::draining) finish_drain(peer);
  } else {
    take_message(peer, parsed, buffer, length);
  }
  if (!peer.lost && own.count > 0 && own.serving >= own.grow_at && own.count < most_own()) {
    grow_own(peer);
  }
}

void EndpointCore::on_own_control(Peer& peer, const wire::Parsed& parsed) {
  credits_given(peer, parsed.header);
  ++peer.own.controls;
  ++own_report_.controls;
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

// A message has left the buffer.
void EndpointCore::give_back_own(std::uint32_t buffer) {
  ReceivePool::Own& own = *receive_pool_.own(buffer >> 16);
  own.states[buffer & 0xffffu] = State::idle;
  --own.out;
  if (own.closed) {
    if (own.left && own.out == 0) receive_pool_.drop_own(buffer >> 16);
    return;
  }
  Peer& peer = *peers_[own.peer];
  ++peer.own.owed;
  if (peer.rc && peer.rc->connected_to() != 0) post_own(peer, own, buffer);
  tell_own(peer);
}

void EndpointCore::grow_own(Peer& peer) {
  OwnReceives& own = peer.own;
  own.grow_at = 2 * own.serving;  // when it was refused
  if (!peer.rc || peer.rc->connected_to() == 0) return;
  const std::uint32_t more = most_own() - own.count;
  if (Status status = add_own(peer, more); !status.ok()) {
    ++own_report_.refused;
    TURNOUT_LOG(channel, debug, "private receive queue not enlarged: {}: {} receives: {}",
                peer.address.to_string(), own.count, status.text());
    return;
  }
  ++own_report_.growths;
  post_own(peer);
  own.owed += more;
  tell_own(peer);
}

void EndpointCore::tell_own(Peer& peer) {
  const OwnReceives& own = peer.own;
  const bool dry = own.lent <= wire::kOwnReserve;
  if (own.owed > 0 && (dry || own.owed >= (own.count + 1) / 2)) send_own_credits(peer);
}

void EndpointCore::send_own_credits(Peer& peer) {
  // The peer knows of them by the time it sends over RC.
  if (!over_rc(peer.receive_kind)) return;
  wire::ControlMessage message;
  message.type = wire::Control::credit;
  message.kind = static_cast<std::uint8_t>(ChannelKind::rc_sr);
  message.credits = static_cast<std::uint16_t>(std::min(peer.own.owed, wire::kMostCredits));
  message.request = peer.own.request;
  peer.own.owed -= message.credits;
  peer.own.lent += message.credits;
  ++credit_messages_;
  send_control(peer, Purpose::credit, message);
}

// At the sender. Those of receives that are gone may come late.
void EndpointCore::own_credits_given(Peer& peer, std::uint32_t request,
                                     std::uint32_t credits) noexcept {
  OwnSender& own = peer.own_sender;
  if (own.request == 0 || request != own.request) return;
  own.credits = std::min(own.credits + credits, wire::kMostCredits);
}

// There is a credit. False: the queue pair has no place.
bool EndpointCore::post_control_over_own(Peer& peer, wire::ControlMessage message,
                                         const wire::Detail* detail) {
  if (!peer.rc || peer.rc->full() || !peer.rc->takes_inline(kMostInline)) return false;
  std::byte body[sizeof message + sizeof *detail];
  static_assert(sizeof(wire::Header) + sizeof body <= kMostInline);
  std::size_t length = sizeof message;
  std::memcpy(body, &message, sizeof message);
  if (wire::has_detail(message.type)) {
    std::memcpy(body + length, detail, sizeof *detail);
    length += sizeof *detail;
  }
  wire::Header header;
  header.type = wire::Type::control;
  header.index = peer.remote_index;
  header.length = static_cast<std::uint16_t>(length);
  hand_back(peer, &header);
  const ibv_sge pieces[2] = {
      {reinterpret_cast<std::uint64_t>(&header), sizeof header, 0},
      {reinterpret_cast<std::uint64_t>(body), static_cast<std::uint32_t>(length), 0}};
  profile_.count_sent(Traffic::control, sizeof header + length);
  charge(Work::post, 1);
  --peer.own_sender.credits;
  ++peer.own_sender.controls;
  if (Status status = peer.rc->send_inline(pieces, 2, peer.id, true); !status.ok()) {
    lose_peer(peer, status);
  }
  return true;
}

}  // namespace turnout
