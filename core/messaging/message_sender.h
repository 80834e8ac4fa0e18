// SPDX-License-Identifier: BSD-3-Clause
// MessageSender: puts one message of a peer's stream on its channel: header, credits, ring entry or
// send buffer. It posts the message or says that it cannot now; it keeps none.
//
// The endpoint owns it; the thread that drives the endpoint calls it. Nothing is allocated.
#pragma once

#include "core/messaging/private_receive_queue.h"

namespace turnout {

// One message of the data stream, with the location of its bytes.
struct StreamMessage {
  wire::Type type = wire::Type::eager;
  std::uint8_t flags = 0;
  std::uint64_t tag = 0;
  std::uint64_t data = 0;
  const IoVec* iov = nullptr;        // payload, or
  const std::byte* bytes = nullptr;  // contiguous
  std::size_t length = 0;
  // Precedes the payload: the operation if flags ask to acknowledge, the length of all fragments.
  std::uint64_t prefix = 0;
  std::uint64_t counts_as = 0;  // message bytes, for the report
  bool counted = false;         // in the report
  std::uint64_t operation = 0;  // see SendRecord

  [[nodiscard]] std::size_t prefix_bytes() const noexcept {
    static_assert(wire::kOperationBytes == sizeof prefix && wire::kTotalBytes == sizeof prefix);
    return wire::prefix_bytes(type, flags);
  }
  void copy_payload(std::byte* to) const noexcept {
    if (bytes != nullptr) {
      std::memcpy(to, bytes, length);
    } else if (iov != nullptr) {
      iov->copy_out(to);
    }
  }
};

class MessageSender : Component {
 public:
  MessageSender(EndpointState& state, UdTransport& ud) : Component(state), ud_(ud) {}

  [[nodiscard]] std::size_t max_payload(const Peer& peer) const noexcept;
  [[nodiscard]] bool post_stream(Peer& peer, const StreamMessage& message);
  // The same for a whole eager message of few bytes, which is usually posted inline to the peer's
  // ring over RC. False: it is not, or not now; post_stream() may still do it.
  [[nodiscard, gnu::always_inline]] bool post_short(Peer& peer, const StreamMessage& message);
  // That a large message of the peer's has been read, at that time, to its ring with large entries.
  // False: it is to be told by a control message.
  [[nodiscard]] bool post_fin(Peer& peer, std::uint64_t operation, Nanoseconds read);
  // Credits that the peer has written since (credit_words.h). False: its ring is still full.
  bool take_written_credits(Peer& peer) noexcept;
  void send_wireup(Peer& peer);
  void post_flush(Peer& peer);
  // A peer has a ring with large entries. Without memory for the buffers messages stay small.
  void make_large_buffers();

 private:
  [[nodiscard]] bool post_over_ring(Peer& peer, const StreamMessage& message);
  [[nodiscard, gnu::always_inline]] Status write_inline(Peer& peer, RcQueue& rc, std::uint32_t srq,
                                                        const StreamMessage& message);
  [[gnu::always_inline]] void count_posted(Peer& peer, const StreamMessage& message);
  [[gnu::always_inline]] void count_written(Peer& peer, const StreamMessage& message,
                                            std::size_t bytes, const Status& status);
  static void spend_credit(Peer& peer, wire::Header* header) noexcept;
  [[nodiscard]] bool post_over_default(Peer& peer, const StreamMessage& message);
  [[nodiscard]] bool post_inline_over_rc(Peer& peer, const StreamMessage& message);
  // Of the peer's next message; it uses its sequence number.
  [[nodiscard, gnu::always_inline]] static wire::Header next_header(Peer& peer,
                                                                    const StreamMessage& message);

  UdTransport& ud_;
};

[[nodiscard]] constexpr Traffic traffic_of(wire::Type type) noexcept {
  return wire::is_request(type) || wire::carries_bytes(type) ? Traffic::data : Traffic::control;
}

inline wire::Header MessageSender::next_header(Peer& peer, const StreamMessage& message) {
  const PrivateReceiveQueues::HandedBack back = PrivateReceiveQueues::hand_back(peer);
  return {.tag = message.tag,
          .data = message.data,
          .sequence = peer.tx.sequence++,
          .index = peer.remote_index,
          .length = static_cast<std::uint16_t>(message.length + message.prefix_bytes()),
          .credits = back.credits,
          .ring_credits = back.ring_credits,
          .type = message.type,
          .flags = static_cast<std::uint8_t>(message.flags | back.flags),
          .ring = back.ring};
}

inline void MessageSender::count_posted(Peer& peer, const StreamMessage& message) {
  if (!message.counted && wire::is_message(message.type)) peer.tx.carried.count(message.counts_as);
  if (context_.traits.uses_feedback)
    context_.feedback.count(peer.tx.sent, peer.id, peer.data_queue);
  count_use(eviction_, peer, over_rc(peer.tx.kind));
  context_.charge(Work::post, 1);
}

// Into its log, and from there to the peer's ring. There is room in both, and in the queue.
inline Status MessageSender::write_inline(Peer& peer, RcQueue& rc, std::uint32_t srq,
                                          const StreamMessage& message) {
  const RingSender& ring = peer.state->tx.ring;
  const std::size_t bytes = message.length + sizeof(wire::Header);
  std::byte aside[kMostInline];
  std::byte* const to = rc.place_of_inline(bytes, aside);
  message.copy_payload(to);
  wire::Header header = next_header(peer, message);
  header.phase = ring.next.phase;
  if (ring.checked) [[unlikely]] {
    header.index = ring_checksum(crc32c(0, to, message.length), header);
    context_.charge(Work::copy, bytes);
  }
  wire::write_header(header, to + message.length);
  return rc.write_inline({to, bytes}, ring.entry_end() - bytes, ring.rkey, peer.id, srq,
                         message.operation);
}

// The entry of the peer's ring is used, and a sequence number: after an error the stream cannot
// continue.
inline void MessageSender::count_written(Peer& peer, const StreamMessage& message,
                                         std::size_t bytes, const Status& status) {
  context_.profile.count_sent(traffic_of(message.type), bytes);
  RingSender& ring = peer.state.ref().tx.ring;
  --ring.credits;
  ring.next.advance(ring.entries);
  if (!status.ok()) [[unlikely]]
    events_.lose_peer(peer, status);
}

inline bool MessageSender::post_short(Peer& peer, const StreamMessage& message) {
  if (peer.tx.kind != ChannelKind::rc_rdma || peer.tx.state >= SendState::flushing) return false;
  const RingSender& ring = peer.state->tx.ring;
  RcQueue& rc = *peer.connection->rc;
  const std::size_t bytes = message.length + sizeof(wire::Header);
  if (bytes > ring.entry_size || rc.full() || !rc.takes_inline(bytes)) return false;
  if (ring.credits == 0 && !take_written_credits(peer)) [[unlikely]]
    return false;
  count_written(peer, message, bytes, write_inline(peer, rc, 0, message));
  count_posted(peer, message);
  return true;
}

}  // namespace turnout
