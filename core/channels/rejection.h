// SPDX-License-Identifier: BSD-3-Clause
// PeerRejection: tells a peer that this endpoint has no room for it, and takes such word from
// peers.
//
// The endpoint owns it; the thread that drives the endpoint calls it.
#pragma once

#include "core/messaging/control_sender.h"
#include "core/messaging/ud_transport.h"
#include "core/protocol/operation.h"
#include "core/state/endpoint_context.h"
#include "core/state/endpoint_events.h"
#include "core/state/peer.h"
#include "core/state/peer_table.h"
#include "core/state/transport_resources.h"
#include "core/transport/wire.h"

namespace turnout {

class PeerRejection {
 public:
  PeerRejection(EndpointContext& context, PeerTable& peer_table, TransportResources& resources,
                ControlSender& control_sender, UdTransport& ud, EndpointEvents& events)
      : context_(context),
        peer_table_(peer_table),
        resources_(resources),
        control_sender_(control_sender),
        ud_(ud),
        events_(events) {}

  [[nodiscard]] bool reject(const wire::WireupRequest& wireup);
  void reject(Peer& peer);
  void on_rejection(Peer& peer, const wire::ControlMessage& message);

 private:
  [[nodiscard]] bool post_rejection(const Address& address, const RemotePort& port,
                                    wire::Datagram* head, wire::ControlMessage* message);

  EndpointContext& context_;
  PeerTable& peer_table_;
  TransportResources& resources_;
  ControlSender& control_sender_;
  UdTransport& ud_;
  EndpointEvents& events_;
};

}  // namespace turnout
