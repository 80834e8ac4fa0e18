// SPDX-License-Identifier: BSD-3-Clause
// ConnectionSlots: connections within a limit: who waits for a slot, which connection is torn down
// for it (ConnectionEviction decides), and the messages of a tear-down. Source: [ACTS].
//
// The endpoint owns it; the thread that drives the endpoint calls it.
#pragma once

#include "core/channels/rc_pool.h"
#include "core/operations/unexpected_messages.h"

namespace turnout {

class ConnectionSlots : MessagingUser {
 public:
  ConnectionSlots(EndpointState& state, Messaging& messaging, UnexpectedMessages& unexpected,
                  RcPool& rc)
      : MessagingUser(state, messaging), unexpected_(unexpected), rc_(rc) {}

  void limit_connections();
  // A slot is free now, and no peer is queued.
  [[nodiscard]] bool may_have_slot(const Peer& peer, bool with_ring) const noexcept {
    return peer.connection->has_rc() || (!eviction_.has_waiting() && has_slot(peer, with_ring));
  }
  bool request_slot(Peer& peer);
  [[nodiscard]] bool park(Peer& peer, std::uint32_t qp_id);
  void serve_slot_waiters();
  void on_disconnect(Peer& peer, const wire::ControlMessage& message);
  void continue_disconnect(Peer& peer);

 private:
  [[nodiscard]] bool has_slot(const Peer& peer, bool with_ring) const noexcept;
  void evict_for_waiters(Nanoseconds now);
  [[nodiscard]] bool can_go(const PeerEviction& eviction) const noexcept;
  void tear_down(Peer& peer, Nanoseconds now);

  UnexpectedMessages& unexpected_;
  RcPool& rc_;
};

}  // namespace turnout
