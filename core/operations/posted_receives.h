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

  // Frees the storage of a message and returns its credit.
  void release_arrival(Peer& peer, UnexpectedMessage::Storage storage, std::uint32_t buffer,
                       std::uint64_t position) {
    if (storage != UnexpectedMessage::Storage::ring) return release_receive(peer, storage, buffer);
    if (peer.state->rx.ring) give_ring_credits(peer, peer.state->rx.ring->free(position));
  }
  [[gnu::always_inline]] void receive_eager(RecvOperation& receive, Peer& peer,
                                            const wire::Header& header, const std::byte* payload) {
    if (!receive.multi && receive.iov.count == 1 && header.length <= receive.iov.total &&
        (header.flags & wire::kAcknowledge) == 0) [[likely]] {
      receive_whole(receive, peer, header, payload);
    } else {
      receive_part(receive, peer, header, payload);
    }
  }
  void end_receive(RecvOperation& receive, const Completion& completion, std::size_t overflow,
                   Status status);
  void unpost(RecvOperation& receive) {
    if (!receive.posted) return;
    records_.matcher.remove(&receive);
    receive.posted = false;
    if (receive.rtr != nullptr) events_.abandon_rtr(receive);
  }
  void end_cancelled(RecvOperation& receive);
  void acknowledge(Peer& peer, const std::byte* payload);
  [[nodiscard]] static Completion completion_of(const wire::Header& header, PeerId peer,
                                                std::size_t length) noexcept {
    return {.length = length,
            .tag = header.tag,
            .data = header.data,
            .flags = kRecv | ((header.flags & wire::kTagged) != 0 ? kTagged : kMessage) |
                     ((header.flags & wire::kRemoteData) != 0 ? kRemoteData : 0u),
            .source = peer};
  }

 private:
  // The usual message, into one buffer that has room for it and is for no other.
  [[gnu::always_inline]] void receive_whole(RecvOperation& receive, Peer& peer,
                                            const wire::Header& header, const std::byte* payload) {
    iovec& into = receive.iov.parts[0];
    if (header.length > 0) std::memcpy(into.iov_base, payload, header.length);
    context_.charge(Work::copy, header.length);
    unpost(receive);
    context_.finish(receive.report, [&] {
      Completion completion = completion_of(header, peer.id, header.length);
      completion.context = receive.report.context;
      completion.buffer = into.iov_base;
      return completion;
    });
    if (receive.match.peer != kAnyPeer) --peer.rx.directed_receives;
    records_.receives.give_back(&receive);
  }
  void receive_part(RecvOperation& receive, Peer& peer, const wire::Header& header,
                    const std::byte* payload);
  void release_receive(Peer& peer, UnexpectedMessage::Storage storage, std::uint32_t buffer);
  void give_ring_credits(Peer& peer, std::uint32_t count) {
    PeerRxState& rx = peer.state.ref().rx;
    rx.unreported_ring += count;
    if (rx.ring && rx.unreported_ring >= rx.ring->entries() / 2) credits_.return_ring(peer);
  }
};

}  // namespace turnout
