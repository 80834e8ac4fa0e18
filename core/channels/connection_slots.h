// SPDX-License-Identifier: BSD-3-Clause
// ConnectionSlots: connections within a limit: who waits for a slot, which connection is torn down
// for it (ConnectionEviction decides), and the messages of a tear-down. Source: [ACTS].
//
// The endpoint owns it; the thread that drives the endpoint calls it.
#pragma once

#include "core/channels/rc_pool.h"
#include "core/connection/eviction.h"
#include "core/messaging/control_plane.h"
#include "core/operations/unexpected_messages.h"
#include "core/protocol/operation.h"
#include "core/state/endpoint_context.h"
#include "core/state/endpoint_events.h"
#include "core/state/peer.h"
#include "core/state/peer_table.h"
#include "core/state/transport_resources.h"
#include "core/transport/wire.h"

namespace turnout {

class ConnectionSlots {
 public:
  ConnectionSlots(EndpointContext& context, ConnectionEviction& eviction, PeerTable& peer_table,
                  TransportResources& resources, ControlPlane& control,
                  UnexpectedMessages& unexpected, RcPool& rc, EndpointEvents& events)
      : context_(context),
        eviction_(eviction),
        peer_table_(peer_table),
        resources_(resources),
        control_(control),
        unexpected_(unexpected),
        rc_(rc),
        events_(events) {}

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

  EndpointContext& context_;
  ConnectionEviction& eviction_;
  PeerTable& peer_table_;
  TransportResources& resources_;
  ControlPlane& control_;
  UnexpectedMessages& unexpected_;
  RcPool& rc_;
  EndpointEvents& events_;
};

}  // namespace turnout
