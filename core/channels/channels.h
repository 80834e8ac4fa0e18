// SPDX-License-Identifier: BSD-3-Clause
// Channels: the components of this folder, in the order of their layers: each holds references to
// lower ones only.
//
// The endpoint owns them; only the thread that drives the endpoint calls them.
#pragma once

#include "core/channels/data_paths.h"
#include "core/channels/keep_alive.h"
#include "core/channels/rejection.h"
#include "core/channels/xrc_recovery.h"
#include "core/operations/operations.h"

namespace turnout {

struct Channels {
  EndpointState& state;
  Messaging& messaging;
  Operations& operations;
  std::unique_ptr<Background> background;  // of `rc` from the start on

  DecisionOutcomes outcomes{state};
  RcPool rc{state, messaging, std::move(background)};
  RingPool ring_pool{state, rc};
  ConnectionSlots slots{state, messaging, operations.unexpected, rc};
  XrcConnections xrc_nodes{state, messaging, rc};
  ChannelNegotiator negotiator{state, messaging, outcomes, rc, ring_pool, slots, xrc_nodes};
  ConnectionRecovery recovery{state, messaging, operations.rdma, outcomes, rc, negotiator};
  XrcRecovery xrc_recovery{state, messaging, outcomes, rc, xrc_nodes, negotiator, recovery};
  ChannelSelector selector{state, messaging, outcomes, rc, slots, xrc_nodes, negotiator, recovery};
  DataPaths data_paths{state, messaging, rc, slots, selector};
  KeepAlive keep_alive{state, messaging, operations.unexpected, xrc_nodes};
  PeerRejection rejection{state, messaging};
};

}  // namespace turnout
