// SPDX-License-Identifier: BSD-3-Clause
// SendEngine: send operations: eager, or RTS and FIN, and the backlog of a peer that cannot be sent
// to now.
//
// The endpoint owns it; the thread that drives the endpoint calls it.
#pragma once

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
  void on_fin(const wire::ControlMessage& message, Peer& peer);
  // One of the requests of this operation of ours has been delivered.
  void on_delivered(Peer& peer, std::uint64_t id);
  void release_overdue();

 private:
  // Sent already: the usual message, which waits for nothing and for which nobody waits.
  [[nodiscard, gnu::always_inline]] bool send_short(Peer& peer, const SendRequest& request);
  [[nodiscard]] static Status ring_is_full();
  [[nodiscard]] bool has_large_ring(const Peer& peer) const noexcept {
    return over_ring(peer.tx.kind) && context_.format.most_over(peer.state->tx.ring.shape()) > 0;
  }
  // For a short message that could not be sent: true if it may be sent now.
  [[nodiscard, gnu::noinline]] bool go_on_with_credits(Peer& peer);
  // Whether a message of this size uses rendezvous.
  [[nodiscard]] bool is_large(const Peer& peer, std::size_t bytes) const noexcept;
  [[nodiscard]] bool send_fragments(SendOperation& operation);
  [[nodiscard]] bool post_part(SendOperation& operation, StreamMessage& message);

  SendBacklog& backlog_;
  PutEngine& put_;
};

}  // namespace turnout
