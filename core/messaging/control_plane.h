// SPDX-License-Identifier: BSD-3-Clause
// ControlPlane: control messages to peers: each is posted when there is a send buffer and room in a
// send queue, else kept in order. It also sends wire-up messages and answers.
//
// The endpoint owns it; the thread that drives the endpoint calls it.
#pragma once

#include <deque>

#include "core/messaging/ud_transport.h"

namespace turnout {

struct PendingControl {
  PeerId peer;
  Purpose purpose;
  wire::ControlMessage message;
  wire::Detail detail;  // if the type has one
};

class ControlPlane : Component {
 public:
  ControlPlane(EndpointState& state, ControlSender& control_sender, UdTransport& ud)
      : Component(state), control_sender_(control_sender), ud_(ud) {}

  void send_control(Peer& peer, Purpose purpose, wire::ControlMessage message,
                    const wire::Detail* detail = nullptr);
  bool pump_control();
  // `read`: when, if a sender that measures may like to know.
  void send_fin(Peer& peer, std::uint64_t operation, const Status& status, Nanoseconds read = 0);
  [[nodiscard]] std::deque<PendingControl>& pending_control() noexcept { return pending_control_; }

 private:
  [[nodiscard]] bool post_control(const PendingControl& pending);

  ControlSender& control_sender_;
  UdTransport& ud_;

  std::deque<PendingControl> pending_control_;
};

}  // namespace turnout
