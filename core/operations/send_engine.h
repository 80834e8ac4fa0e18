// SPDX-License-Identifier: BSD-3-Clause
// SendEngine: send operations: eager, or RTS and FIN, and the backlog of a peer that cannot be sent
// to now.
//
// The endpoint owns it; the thread that drives the endpoint calls it.
#pragma once

#include "core/operations/eager_limit.h"
#include "core/operations/put_engine.h"

namespace turnout {

class SendEngine : MessagingUser {
 public:
  SendEngine(EndpointState& state, Messaging& messaging, SendBacklog& backlog, PutEngine& put)
      : MessagingUser(state, messaging), backlog_(backlog), put_(put) {}

  [[nodiscard]] Status send_now(const SendRequest& request);
  [[nodiscard]] static Status too_many_wait();
  [[nodiscard]] bool try_operation(SendOperation& operation);
  [[nodiscard]] Status prepare_rendezvous(SendOperation& operation);
  bool pump_backlog(Peer& peer);
  bool pump_backlogs();
  void on_fin(Peer& peer, const Fin& fin);
  // One of the requests of this operation of ours has been delivered.
  void on_delivered(Peer& peer, std::uint64_t id);
  void release_overdue();
  // The bytes above which messages use rendezvous, by what was measured; 0: nothing was.
  [[nodiscard]] std::size_t measured_limit() const noexcept { return limit_.limit(); }

 private:
  // Sent already: the usual message, which waits for nothing and for which nobody waits.
  [[nodiscard, gnu::always_inline]] bool send_short(Peer& peer, const SendRequest& request);
  void take_back_buffers();
  [[nodiscard]] static Status ring_is_full();
  [[nodiscard]] bool has_large_ring(const Peer& peer) const noexcept {
    return over_ring(peer.tx.kind) && context_.format.most_over(peer.state->tx.ring.shape()) > 0;
  }
  // For a short message that could not be sent: true if it may be sent now.
  [[nodiscard, gnu::noinline]] bool go_on_with_credits(Peer& peer);
  // Whether what was measured decides if a message of this size uses rendezvous.
  [[nodiscard]] bool is_measured(const Peer& peer, std::size_t bytes) const noexcept {
    return context_.format.measures_limit && bytes > EagerLimit::kLeast && has_large_ring(peer) &&
           bytes <= context_.format.most_over(peer.state->tx.ring.shape());
  }
  // The receiver has taken what was sent before, as far as is known.
  [[nodiscard]] bool nothing_is_under_way(const Peer& peer) const noexcept {
    const PeerTxState& tx = peer.state->tx;
    // Its credit for the latest message, or for our latest FIN, may come with its next message.
    return peer.tx.awaiting_fin == 0 && tx.backlog.empty() &&
           tx.ring.credits + 2 >= tx.ring.entries;
  }
  // Of other messages.
  [[nodiscard]] bool is_large(const Peer& peer, std::size_t bytes) const noexcept;
  void measure(const Peer& peer, const SendOperation& operation, std::uint64_t time);
  // A measured message was posted in so many parts.
  void eager_took(Peer& peer, std::size_t bytes, std::size_t parts, Nanoseconds began, bool alone);
  [[nodiscard]] bool send_fragments(SendOperation& operation);
  [[nodiscard]] bool post_part(SendOperation& operation, StreamMessage& message);

  SendBacklog& backlog_;
  PutEngine& put_;
  EagerLimit limit_;
  // The rendezvous that is measured from its beginning.
  struct Timed {
    std::uint64_t id = 0;  // of its operation; 0: none
    Nanoseconds began = 0;
  } timed_;
  // The latest that was read, while another one to the same peer was announced already.
  struct Followed {
    PeerId peer = kAnyPeer;
    Nanoseconds read = 0;
  } followed_;
};

}  // namespace turnout
