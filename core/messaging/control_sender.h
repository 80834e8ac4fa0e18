// SPDX-License-Identifier: BSD-3-Clause
// ControlSender: posts one control message on a queue pair for its purpose, or says that there is
// no room for it now. It keeps none: ControlPlane and UdTransport do.
//
// The endpoint owns it; the thread that drives the endpoint calls it. Errors: of ibv_post_send, as
// a lost peer.
#pragma once

#include "core/state/component.h"

namespace turnout {

// A message of the control pools: a datagram's header, if there is one, and its body.
struct ControlBytes {
  const wire::Datagram* head = nullptr;
  const void* body = nullptr;
  std::size_t length = 0;
  const wire::Detail* detail = nullptr;
};

class ControlSender : Component {
 public:
  explicit ControlSender(EndpointState& state) : Component(state) {}

  [[nodiscard]] bool post_control(MessageQueue& queue, PeerId peer, const Address& address,
                                  const RemotePort& port, unsigned target,
                                  const ControlBytes& bytes, Status* status);
  // To the peer's queue pair for that purpose.
  [[nodiscard]] bool post_control(Peer& peer, bool credit, const ControlBytes& bytes);
};

}  // namespace turnout
