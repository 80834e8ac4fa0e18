// SPDX-License-Identifier: BSD-3-Clause
// Sends one message: its channel, header, credits and buffers.
#include "core/messaging/message_sender.h"
#include "core/connection/xrc_connection.h"

namespace turnout {
namespace {
// The virtual adapter is done with one when it was posted: they are as many as fill half of a ring.
constexpr std::uint32_t kLargeSendBuffers = 16;
}  // namespace
// Payload bytes that one message to this peer can carry now.
std::size_t MessageSender::max_payload(const Peer& peer) const noexcept {
  std::size_t bytes = eager_size(peer, context_.format) - context_.format.stream_overhead;
  if (over_ring(peer.tx.kind)) {
    std::uint32_t most = peer.state->tx.ring.entry_size;
    if (context_.over_datagrams()) {
      // It may be resent in a message of UD, see connection_recovery.cpp.
      most = std::min(most, static_cast<std::uint32_t>(bytes + sizeof(wire::Header)));
    } else {
      most =
          std::min(most, std::max(resources_.send_pool.size(), resources_.large_send_pool.size()));
    }
    bytes = most - sizeof(wire::Header);
  }
  if (peer.remote_index == wire::kUnknownIndex) bytes -= sizeof(wire::WireupRequest);
  return bytes;
}

bool MessageSender::post_stream(Peer& peer, const StreamMessage& message) {
  if (peer.tx.state >= SendState::flushing) [[unlikely]] {
    if (peer.tx.state == SendState::flushing) post_flush(peer);
    return false;
  }
  const bool ring = over_ring(peer.tx.kind) && (peer.state->tx.private_queue.request == 0 ||
                                                !wire::serves_large(message.type));
  const bool posted = ring ? post_over_ring(peer, message) : post_over_default(peer, message);
  if (posted) count_posted(peer, message);
  return posted;
}

// Half of the entries are for messages, which wait for their credits.
bool MessageSender::post_fin(Peer& peer, std::uint64_t operation, Nanoseconds read) {
  if (peer.tx.kind != ChannelKind::rc_rdma || peer.lost || peer.shut_down || context_.closing)
    return false;
  const RingSender& ring = peer.state->tx.ring;
  if (context_.format.most_over(ring.shape()) == 0) return false;
  if (ring.credits <= ring.entries / 2) take_written_credits(peer);
  if (ring.credits <= ring.entries / 2) return false;
  return post_stream(
      peer, {.type = wire::Type::fin, .tag = operation, .data = static_cast<std::uint64_t>(read)});
}

bool MessageSender::take_written_credits(Peer& peer) noexcept {
  const RcQueue* const rc = peer.connection->rc.get();
  if (rc == nullptr || rc->credit_word.at == nullptr) return false;
  const auto written = rc->credit_word.read();
  const std::uint32_t request = peer.state->tx.ring.request;
  if (!written || request == 0 || written->request != static_cast<std::uint16_t>(request))
    return false;
  RingSender& ring = peer.state.ref().tx.ring;
  ring.take_total(request, written->total);
  return ring.credits > 0;
}

void MessageSender::make_large_buffers() {
  const std::uint32_t size = context_.format.large_ring_entry;
  if (size == 0 || resources_.large_send_pool.size() != 0) return;
  Reservation reservation = Reservation::take(context_.account, MemoryKind::send_buffers,
                                              std::uint64_t{kLargeSendBuffers} * size,
                                              context_.account.budget() / 8, kLargeSendBuffers);
  if (!reservation) return;
  auto made = BufferPool::create(*context_.device, kLargeSendBuffers, size);
  if (!made) {
    TURNOUT_LOG(memory, warn,
                "creating buffers for large eager messages failed: {}; they use rendezvous",
                made.status().text());
    return;
  }
  resources_.large_send_pool = std::move(made).value();
  resources_.fixed.push_back(std::move(reservation));
}

// A peer must know us before it gets a request. If no message has carried the wire-up request yet,
// sends one that carries nothing else.
void MessageSender::send_wireup(Peer& peer) {
  const StreamMessage hello{.type = wire::Type::wireup};
  if (peer.tx.sequence == 0 && peer.state->tx.backlog.empty()) (void)post_stream(peer, hello);
}

bool MessageSender::post_over_ring(Peer& peer, const StreamMessage& message) {
  const RingSender& ring = peer.state->tx.ring;
  // Null: over DC.
  RcQueue* const rc = peer.tx.kind == ChannelKind::rc_rdma ? peer.connection->rc.get()
                      : over_xrc(peer.tx.kind)             ? peer.connection->xrc->link->queue.get()
                                                           : nullptr;
  const std::uint32_t srq = over_xrc(peer.tx.kind) ? peer.connection->xrc->srq : 0;
  MessageQueue& dc = *resources_.pool(Purpose::data)[peer.data_queue];
  if (rc != nullptr ? rc->full() : dc.full()) return false;
  if (ring.credits == 0 && !take_written_credits(peer)) return false;
  const std::size_t prefix = message.prefix_bytes();
  const std::size_t bytes = prefix + message.length + sizeof(wire::Header);
  // A message over DC keeps its buffer until complete, see DcInitiator.
  if (rc != nullptr && prefix == 0 && rc->takes_inline(bytes)) {
    count_written(peer, message, bytes, write_inline(peer, *rc, srq, message));
    return true;
  }
  const std::uint64_t remote = ring.entry_end() - bytes;
  const bool large = bytes > resources_.send_pool.size();
  BufferPool& pool = large ? resources_.large_send_pool : resources_.send_pool;
  const std::uint32_t buffer = pool.take();
  if (buffer == kNoBuffer) return false;
  wire::Header header = next_header(peer, message);
  header.phase = ring.next.phase;
  std::byte* const start = pool.data(buffer);
  if (prefix > 0) std::memcpy(start, &message.prefix, prefix);
  std::byte* const to = start + prefix;
  message.copy_payload(to);
  if (ring.checked) [[unlikely]] {
    header.index = ring_checksum(crc32c(0, start, prefix + message.length), header);
    context_.charge(Work::copy, bytes);
  }
  wire::write_header(header, to + message.length);
  context_.charge(Work::copy, bytes);
  SendRecord record{
      .kind = SendRecord::Kind::message,
      .pool = large ? SendRecord::Pool::large : SendRecord::Pool::data,
      .opcode = IBV_WR_RDMA_WRITE,
      // Queues never hold more than half of the large buffers, which are few, in
      // requests whose completion does not come.
      .signalled = (large && pool.available() < kLargeSendBuffers / 2) || message.operation != 0,
      .peer = peer.id,
      .buffer = buffer,
      .length = static_cast<std::uint32_t>(bytes),
      .lkey = pool.lkey(),
      .rkey = ring.rkey,
      .local = reinterpret_cast<std::uint64_t>(start),
      .remote = remote,
      .operation = message.operation};
  Status status;
  if (rc != nullptr) {
    record.dct = srq;
    status = rc->post(record);
  } else {
    resources_.address_data(peer, &record);
    status = dc.post(record);
  }
  if (!status.ok()) pool.give_back(buffer);
  count_written(peer, message, bytes, status);
  return true;
}

// Uses a credit of the peer's shared receive queue, or of its private one for us.
void MessageSender::spend_credit(Peer& peer, wire::Header* header) noexcept {
  if (peer.state->tx.private_queue.request != 0) [[unlikely]] {
    --peer.state.ref().tx.private_queue.credits;
    return;
  }
  if (--peer.tx.credits == 0) header->flags |= wire::kLastCredit;
}

bool MessageSender::post_over_default(Peer& peer, const StreamMessage& message) {
  const bool has_private = peer.state->tx.private_queue.request != 0;
  const bool rc = has_private || peer.tx.kind == ChannelKind::rc_srq;
  MessageQueue& default_queue = *resources_.pool(Purpose::data)[peer.data_queue];
  if (has_private) [[unlikely]] {
    if (peer.state->tx.private_queue.credits <= wire::kPrivateReserve) return false;
  } else if (peer.tx.credits == 0) {
    return false;
  }
  if (rc ? peer.connection->rc->full() : default_queue.full()) return false;
  const bool with_wireup = peer.remote_index == wire::kUnknownIndex;
  const std::size_t prefix = message.prefix_bytes();
  if (rc && !with_wireup && prefix == 0 &&
      peer.connection->rc->takes_inline(sizeof(wire::Header) + message.length)) {
    return post_inline_over_rc(peer, message);
  }
  const std::uint32_t buffer = resources_.send_pool.take();
  if (buffer == kNoBuffer) return false;
  wire::Header header = next_header(peer, message);
  spend_credit(peer, &header);
  std::byte* const whole = resources_.send_pool.data(buffer);
  std::byte* start = whole;
  if (context_.over_datagrams()) {
    wire::Datagram datagram;
    ud_.stamp(peer, wire::DatagramKind::data, &datagram);
    std::memcpy(start, &datagram, sizeof datagram);
    start += sizeof datagram;
  }
  std::byte* to = start + sizeof header;
  if (with_wireup) {
    header.flags |= wire::kWireup;
    const wire::WireupRequest wireup{.address = context_.address, .index = peer.id};
    std::memcpy(to, &wireup, sizeof wireup);
    to += sizeof wireup;
  }
  wire::write_header(header, start);
  std::memcpy(to, &message.prefix, prefix);
  to += prefix;
  message.copy_payload(to);
  to += message.length;
  context_.charge(Work::copy, message.length);
  SendRecord record{
      .kind = SendRecord::Kind::message,
      .pool = context_.over_datagrams() ? SendRecord::Pool::kept : SendRecord::Pool::data,
      .signalled = message.operation != 0,
      .takes_private = has_private,
      .peer = peer.id,
      .buffer = buffer,
      .length = static_cast<std::uint32_t>(to - whole),
      .lkey = resources_.send_pool.lkey(),
      .local = reinterpret_cast<std::uint64_t>(whole),
      .operation = message.operation};
  resources_.address_data(peer, &record);
  context_.profile.count_sent(traffic_of(message.type), record.length);
  if (Status status = rc ? peer.connection->rc->post(record) : default_queue.post(record);
      !status.ok()) {
    resources_.send_pool.give_back(buffer);
    events_.lose_peer(peer, status);
  } else if (context_.over_datagrams()) {
    ud_.keep_until_acknowledged(peer, header.sequence, record);
  }
  return true;
}

// RC-SRQ or RC-SR, small: inline. Requires a credit and room in the send queue.
bool MessageSender::post_inline_over_rc(Peer& peer, const StreamMessage& message) {
  wire::Header header = next_header(peer, message);
  spend_credit(peer, &header);
  const std::size_t bytes = sizeof header + message.length;
  std::byte aside[kMostInline];
  std::byte* const to = peer.connection->rc->place_of_inline(bytes, aside);
  wire::write_header(header, to);
  message.copy_payload(to + sizeof header);
  context_.profile.count_sent(traffic_of(message.type), bytes);
  const bool has_private = peer.state->tx.private_queue.request != 0;
  if (Status status =
          peer.connection->rc->send_inline({to, bytes}, peer.id, has_private, message.operation);
      !status.ok()) {
    events_.lose_peer(peer, status);
  }
  return true;
}

// A zero-byte write completes when the messages before it have consumed receives.
void MessageSender::post_flush(Peer& peer) {
  if (peer.tx.flush_posted || peer.lost) return;
  const bool rc = sends_over_rc(peer);
  MessageQueue& default_queue = *resources_.pool(Purpose::data)[peer.data_queue];
  if (rc ? peer.connection->rc->idle() : default_queue.idle()) {
    peer.tx.flush_posted = true;
    events_.on_flushed(peer);
    return;
  }
  if (rc ? peer.connection->rc->full() : default_queue.full())
    return;  // retried with the next message, or in keep_alive()
  SendRecord record{.kind = SendRecord::Kind::flush, .opcode = IBV_WR_RDMA_WRITE, .peer = peer.id};
  resources_.address_data(peer, &record);
  peer.tx.flush_posted = true;
  ++peer.state.make().tx.flushes;
  if (Status status = rc ? peer.connection->rc->post(record) : default_queue.post(record);
      !status.ok()) {
    events_.lose_peer(peer, status);
  }
}

}  // namespace turnout
