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
  MessageSender(EndpointState& state, UdTransport& ud, PrivateReceiveQueues& private_receives)
      : Component(state), ud_(ud), private_receives_(private_receives) {}

  [[nodiscard]] std::size_t max_payload(const Peer& peer) const noexcept;
  [[nodiscard]] bool post_stream(Peer& peer, const StreamMessage& message);
  void send_wireup(Peer& peer);
  void post_flush(Peer& peer);
  // A peer has a ring with large entries. Without memory for the buffers messages stay small.
  void make_large_buffers();

 private:
  [[nodiscard]] bool post_over_ring(Peer& peer, const StreamMessage& message);
  static void spend_credit(Peer& peer, wire::Header* header) noexcept;
  [[nodiscard]] bool post_over_default(Peer& peer, const StreamMessage& message);
  [[nodiscard]] bool post_inline_over_rc(Peer& peer, const StreamMessage& message);
  void fill_header(Peer& peer, const StreamMessage& message, wire::Header* header);

  UdTransport& ud_;
  PrivateReceiveQueues& private_receives_;
};

}  // namespace turnout
