// SPDX-License-Identifier: BSD-3-Clause
// Messaging: the components of this folder, in the order of their layers: each holds references to
// lower ones only. MessagingUser: what a component of `operations` or `channels` derives from to
// use them.
//
// The endpoint owns them, and the components that use them, which do not outlive them; only the
// thread that drives the endpoint calls them.
#pragma once

#include "core/messaging/message_sender.h"
#include "core/messaging/shared_receive_queue.h"

namespace turnout {

struct Messaging {
  EndpointState& state;

  ControlSender control_sender{state};
  UdTransport ud{state, control_sender};
  ControlPlane control{state, control_sender, ud};
  Credits credits{state, control};
  SharedReceiveQueue shared_receives{state, credits};
  PrivateReceiveQueues private_receives{state, control, credits};
  MessageSender sender{state, ud};
};

class MessagingUser : protected Component {
 protected:
  MessagingUser(EndpointState& state, Messaging& messaging) noexcept
      : Component(state),
        control_sender_(messaging.control_sender),
        ud_(messaging.ud),
        control_(messaging.control),
        credits_(messaging.credits),
        private_receives_(messaging.private_receives),
        sender_(messaging.sender) {}

  ControlSender& control_sender_;
  UdTransport& ud_;
  ControlPlane& control_;
  Credits& credits_;
  PrivateReceiveQueues& private_receives_;
  MessageSender& sender_;
};

}  // namespace turnout
