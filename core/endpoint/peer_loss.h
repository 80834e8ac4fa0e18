// SPDX-License-Identifier: BSD-3-Clause
// PeerLoss: what is done about a peer that is lost: every component's part in it, in order.
#pragma once

#include "core/state/endpoint_context.h"
#include "core/state/peer.h"
#include "core/state/transport_resources.h"

namespace turnout {

struct Components;

class PeerLoss {
 public:
  PeerLoss(Components& parts, EndpointContext& context) : parts_(parts), context_(context) {}

  void lose_peer(Peer& peer, const Status& why);

 private:
  Components& parts_;
  EndpointContext& context_;
};

}  // namespace turnout
