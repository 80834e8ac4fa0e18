// SPDX-License-Identifier: BSD-3-Clause
// ControlPlane: control messages to peers: each is posted when there is a send buffer and room in a
// send queue, else kept in order. It also sends wire-up messages and answers.
//
// The endpoint owns it; the thread that drives the endpoint calls it.
#pragma once

#include <deque>

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

struct PendingControl {
  PeerId peer;
  Purpose purpose;
  wire::ControlMessage message;
  wire::Detail detail;  // if the type has one
};

class ControlPlane {
 public:
  ControlPlane(EndpointContext& context, PeerTable& peer_table, TransportResources& resources,
               ControlSender& control_sender, UdTransport& ud, EndpointEvents& events)
      : context_(context),
        peer_table_(peer_table),
        resources_(resources),
        control_sender_(control_sender),
        ud_(ud),
        events_(events) {}

  void send_control(Peer& peer, Purpose purpose, wire::ControlMessage message,
                    const wire::Detail* detail = nullptr);
  bool pump_control();
  void send_fin(Peer& peer, std::uint64_t operation, const Status& status);
  [[nodiscard]] std::deque<PendingControl>& pending_control() noexcept { return pending_control_; }

 private:
  [[nodiscard]] bool post_control(const PendingControl& pending);

  EndpointContext& context_;
  PeerTable& peer_table_;
  TransportResources& resources_;
  ControlSender& control_sender_;
  UdTransport& ud_;
  EndpointEvents& events_;

  std::deque<PendingControl> pending_control_;
};

}  // namespace turnout
