// SPDX-License-Identifier: BSD-3-Clause
// PeerRejection: tells a peer that this endpoint has no room for it, and takes such word from
// peers.
//
// The endpoint owns it; the thread that drives the endpoint calls it.
#pragma once

#include "core/messaging/messaging.h"

namespace turnout {

class PeerRejection : MessagingUser {
 public:
  PeerRejection(EndpointState& state, Messaging& messaging) : MessagingUser(state, messaging) {}

  [[nodiscard]] bool reject(const wire::WireupRequest& wireup);
  void reject(Peer& peer);
  void on_rejection(Peer& peer, const wire::ControlMessage& message);

 private:
  [[nodiscard]] bool post_rejection(const Address& address, const RemotePort& port,
                                    wire::Datagram* head, wire::ControlMessage* message);
};

}  // namespace turnout
