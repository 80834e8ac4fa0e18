// SPDX-License-Identifier: BSD-3-Clause
// PeerRejection: tells a peer that this endpoint has no room for it, and takes such word from
// peers.
//
// The endpoint owns it; the thread that drives the endpoint calls it.
#pragma once

#include "core/messaging/control_sender.h"
#include "core/messaging/ud_transport.h"
#include "core/protocol/operation.h"
#include "core/state/component.h"
#include "core/transport/wire.h"

namespace turnout {

class PeerRejection : Component {
 public:
  PeerRejection(EndpointState& state, ControlSender& control_sender, UdTransport& ud)
      : Component(state), control_sender_(control_sender), ud_(ud) {}

  [[nodiscard]] bool reject(const wire::WireupRequest& wireup);
  void reject(Peer& peer);
  void on_rejection(Peer& peer, const wire::ControlMessage& message);

 private:
  [[nodiscard]] bool post_rejection(const Address& address, const RemotePort& port,
                                    wire::Datagram* head, wire::ControlMessage* message);

  ControlSender& control_sender_;
  UdTransport& ud_;
};

}  // namespace turnout
