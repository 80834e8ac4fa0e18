// SPDX-License-Identifier: BSD-3-Clause
// Private receive queues (policy ardma-sr; MVAPICH's send/receive channel, Sur, Koop, Panda, SC'06,
// 2.2.1): each peer that sends over RC has a few receives that only its messages consume, and many
// once rendezvous control messages are frequent.
//
// The sender has a credit for each. Credits are granted with the request for RC and returned as
// buffers are posted again, so every message finds a receive. RTS and put completions use these
// receives also while a ring serves the direction. FIN, CTS and `written` are not sequenced: they
// are handled on arrival and free their receive at once. The last credit is reserved for them.
// Without a credit they use the queue pairs for credit messages, as under every other policy.
//
// Posted receives cannot be removed from a queue pair: their buffers are released when it is RESET,
// except those that hold messages.
#include "core/messaging/private_receive_queue.h"
#include "base/log.h"

namespace turnout {
namespace {
using State = ReceivePool::PrivateChunk::State;
}  // namespace

// To the pair's queue pair, not posted yet.
Status PrivateReceiveQueues::add_private_receives(Peer& peer, std::uint32_t count) {
  if (count > resources_.private_room - std::min(resources_.private_room, private_count_)) {
    return {Code::again, "the completion queue has no room for more private receives"};
  }
  auto chunk = resources_.receive_pool.add_private_receives(
      *context_.device, context_.account, count, peer_table_.reserved_headroom(), peer.id);
  if (!chunk) return chunk.status();
  context_.charge(Work::register_memory, std::uint64_t{count} * resources_.receive_pool.size());
  peer.connection->rc->receive_chunks.push_back(chunk.value());
  peer.state.make().rx.private_queue.count += count;
  private_count_ += count;
  private_report_.buffers_peak =
      std::max<std::uint64_t>(private_report_.buffers_peak, private_count_);
  return {};
}

// Before a request for RC: what its message lends.
Status PrivateReceiveQueues::ready_private_receives(Peer& peer) {
  PrivateReceives& receives = peer.state.make().rx.private_queue;
  if (receives.grow_at == 0) receives.grow_at = context_.settings.private_receive_threshold;
  if (peer.connection->rc->receive_chunks.empty()) {
    const auto first = static_cast<std::uint32_t>(std::min(
        context_.settings.private_receive_first, context_.settings.private_receive_buffers));
    if (Status status = add_private_receives(peer, first); !status.ok()) return status;
  }
  receives.granted = receives.count;
  for (const std::uint32_t chunk : peer.connection->rc->receive_chunks) {
    receives.granted -= resources_.receive_pool.private_chunk(chunk)->out;
  }
  receives.unreported = 0;
  if (receives.granted > wire::kPrivateReserve) return {};
  return {Code::again, "unexpected messages occupy the peer's private receives"};
}

void PrivateReceiveQueues::post_private_receives(Peer& peer) {
  if (peer.connection->rc->connected_to() == 0) return;
  for (const std::uint32_t number : peer.connection->rc->receive_chunks) {
    ReceivePool::PrivateChunk& chunk = *resources_.receive_pool.private_chunk(number);
    for (std::uint32_t i = 0; i < chunk.states.size(); ++i) {
      if (chunk.states[i] == State::idle) post_private_receives(peer, chunk, number << 16 | i);
    }
  }
}

void PrivateReceiveQueues::post_private_receives(Peer& peer, ReceivePool::PrivateChunk& chunk,
                                                 std::uint32_t buffer) {
  const std::uint64_t wr_id =
      std::uint64_t{chunk.lifetime} << kLifetimeShift | kPrivateReceive | buffer;
  context_.charge(Work::post, 1);
  const Status status = peer.connection->rc->post_receive(
      wr_id, {reinterpret_cast<std::uint64_t>(resources_.receive_pool.data(buffer)),
              resources_.receive_pool.size(), resources_.receive_pool.lkey(buffer)});
  if (!status.ok()) {  // its sender finds no receive, and tries again
    TURNOUT_LOG(channel, error, "posting a private receive failed: {}: {}; its sender retries",
                peer.address.to_string(), status.text());
    return;
  }
  chunk.states[buffer & 0xffffu] = State::posted;
}

// The queue will be RESET, and connected again.
void PrivateReceiveQueues::unpost_private_receives(const RcQueue& queue) {
  for (const std::uint32_t number : queue.receive_chunks) {
    ReceivePool::PrivateChunk& chunk = *resources_.receive_pool.private_chunk(number);
    resources_.receive_pool.begin_lifetime(chunk);
    std::replace(chunk.states.begin(), chunk.states.end(), State::posted, State::idle);
  }
}

// The peer lets go of the queue; its adapter may still write until it is RESET.
void PrivateReceiveQueues::close_private_receives(Peer& peer, const RcQueue& queue) {
  for (const std::uint32_t number : queue.receive_chunks) {
    ReceivePool::PrivateChunk& chunk = *resources_.receive_pool.private_chunk(number);
    resources_.receive_pool.begin_lifetime(chunk);
    chunk.closed = true;
  }
  if (peer.state->rx.private_queue.count == 0) return;
  PrivateReceives& receives = peer.state.make().rx.private_queue;
  receives.count = receives.granted = receives.unreported = 0;
}

// It was RESET or destroyed.
void PrivateReceiveQueues::release_private_receives(RcQueue& queue) {
  for (const std::uint32_t number : queue.receive_chunks) {
    ReceivePool::PrivateChunk& chunk = *resources_.receive_pool.private_chunk(number);
    chunk.closed = chunk.left = true;
    private_count_ -= static_cast<std::uint32_t>(chunk.states.size());
    if (chunk.out == 0) resources_.receive_pool.drop_private(number);
  }
  queue.receive_chunks.clear();
}

// The queue pair tells who it is from; the message must not tell another.
Status PrivateReceiveQueues::check_private_sender(const Peer& peer, const wire::Parsed& parsed) {
  if (parsed.header.index != peer.id && parsed.header.index != wire::kUnknownIndex) {
    return {Code::invalid, fmt::format("message: index {} in the private receive queue of peer {}",
                                       parsed.header.index, peer.id)};
  }
  if (parsed.wireup == nullptr) return {};
  wire::WireupRequest wireup;
  std::memcpy(&wireup, parsed.wireup, sizeof wireup);
  if (wireup.address.id == peer.address.id) return {};
  return {Code::invalid,
          fmt::format("message: wire-up request of another endpoint, {:016x}", wireup.address.id)};
}

// A message has left the buffer.
void PrivateReceiveQueues::return_private_receive(std::uint32_t buffer) {
  ReceivePool::PrivateChunk& chunk = *resources_.receive_pool.private_chunk(buffer >> 16);
  chunk.states[buffer & 0xffffu] = State::idle;
  --chunk.out;
  if (chunk.closed) {
    if (chunk.left && chunk.out == 0) resources_.receive_pool.drop_private(buffer >> 16);
    return;
  }
  Peer& peer = peer_table_.peers()[chunk.peer];
  ++peer.state.make().rx.private_queue.unreported;
  if (peer.connection->rc && peer.connection->rc->connected_to() != 0)
    post_private_receives(peer, chunk, buffer);
  report_private_credits(peer);
}

void PrivateReceiveQueues::grow_private_receives(Peer& peer) {
  PrivateReceives& receives = peer.state.make().rx.private_queue;
  receives.grow_at = 2 * receives.serving;  // when it was refused
  if (!peer.connection->rc || peer.connection->rc->connected_to() == 0) return;
  const std::uint32_t more = context_.most_private() - receives.count;
  if (Status status = add_private_receives(peer, more); !status.ok()) {
    ++private_report_.refused;
    TURNOUT_LOG(channel, debug, "private receive queue not enlarged: {}: {} receives: {}",
                peer.address.to_string(), receives.count, status.text());
    return;
  }
  ++private_report_.growths;
  post_private_receives(peer);
  receives.unreported += more;
  report_private_credits(peer);
}

void PrivateReceiveQueues::report_private_credits(Peer& peer) {
  const PrivateReceives& receives = peer.state->rx.private_queue;
  const bool out_of_credits = receives.granted <= wire::kPrivateReserve;
  if (receives.unreported > 0 &&
      (out_of_credits || receives.unreported >= (receives.count + 1) / 2))
    send_private_credits(peer);
}

void PrivateReceiveQueues::send_private_credits(Peer& peer) {
  // The peer knows of them by the time it sends over RC.
  if (!over_rc(peer.rx.kind)) return;
  PrivateReceives& receives = peer.state.make().rx.private_queue;
  wire::ControlMessage message{
      .type = wire::Control::credit,
      .kind = static_cast<std::uint8_t>(ChannelKind::rc_sr),
      .request = receives.request,
      .credits = static_cast<std::uint16_t>(std::min(receives.unreported, wire::kMostCredits))};
  receives.unreported -= message.credits;
  receives.granted += message.credits;
  credits_.count_credit_message();
  control_.send_control(peer, Purpose::credit, message);
}

// There is a credit. False: the queue pair has no place.
bool PrivateReceiveQueues::post_private_control(Peer& peer, wire::ControlMessage message,
                                                const wire::Detail* detail) {
  if (!peer.connection->rc || peer.connection->rc->full() ||
      !peer.connection->rc->takes_inline(kMostInline))
    return false;
  std::byte bytes[sizeof(wire::Header) + sizeof message + sizeof *detail];
  static_assert(sizeof bytes <= kMostInline);
  std::byte* const body = bytes + sizeof(wire::Header);
  std::size_t length = sizeof message;
  std::memcpy(body, &message, sizeof message);
  if (wire::has_detail(message.type)) {
    std::memcpy(body + length, detail, sizeof *detail);
    length += sizeof *detail;
  }
  const HandedBack back = hand_back(peer);
  const wire::Header header{.index = peer.remote_index,
                            .length = static_cast<std::uint16_t>(length),
                            .credits = back.credits,
                            .ring_credits = back.ring_credits,
                            .type = wire::Type::control,
                            .flags = back.flags,
                            .ring = back.ring};
  std::memcpy(bytes, &header, sizeof header);
  context_.profile.count_sent(Traffic::control, sizeof header + length);
  context_.charge(Work::post, 1);
  --peer.state.ref().tx.private_queue.credits;
  ++peer.state.make().tx.private_queue.controls;
  if (Status status =
          peer.connection->rc->send_inline({bytes, sizeof header + length}, peer.id, true);
      !status.ok()) {
    events_.lose_peer(peer, status);
  }
  return true;
}

}  // namespace turnout
