// SPDX-License-Identifier: BSD-3-Clause
// PostedReceives: the end of a receive: the payload is copied or taken over, the completion
// reported, and the receive buffer or ring entry given back with its credit. Also how an RTS that
// asks for it is acknowledged.
//
// The endpoint owns it; the thread that drives the endpoint calls it. Sizes are bytes.
#pragma once

#include "core/messaging/messaging.h"

namespace turnout {

// The location of a delivered message's payload, and how to release it.
struct Arrival {
  UnexpectedMessage::Storage storage = UnexpectedMessage::Storage::none;
  const std::byte* payload = nullptr;
  std::uint32_t buffer = 0;
  std::uint64_t position = 0;
  std::unique_ptr<std::byte[]>* heap = nullptr;  // if storage is heap: the owner
};

class PostedReceives : MessagingUser {
 public:
  PostedReceives(EndpointState& state, Messaging& messaging) : MessagingUser(state, messaging) {}

  void release_arrival(Peer& peer, UnexpectedMessage::Storage storage, std::uint32_t buffer,
                       std::uint64_t position);
  void receive_eager(RecvOperation& receive, Peer& peer, const wire::Header& header,
                     const std::byte* payload);
  void end_receive(RecvOperation& receive, const Completion& completion, std::size_t overflow,
                   Status status);
  void unpost(RecvOperation& receive);
  void end_cancelled(RecvOperation& receive);
  void acknowledge(Peer& peer, const std::byte* payload);
  [[nodiscard]] Completion completion_of(const wire::Header& header, PeerId peer,
                                         std::size_t length) const;

 private:
  void give_ring_credits(Peer& peer, std::uint32_t count);
};

}  // namespace turnout
