// SPDX-License-Identifier: BSD-3-Clause
// XrcRecovery: the same as ConnectionRecovery for connections to nodes, whose messages belong to
// several peers.
//
// The endpoint owns it; the thread that drives the endpoint calls it.
#pragma once

#include "core/channels/connection_recovery.h"

namespace turnout {

class XrcRecovery : MessagingUser {
 public:
  XrcRecovery(EndpointState& state, Messaging& messaging, DecisionOutcomes& outcomes, RcPool& rc,
              XrcConnections& xrc_nodes, ChannelNegotiator& negotiator,
              ConnectionRecovery& recovery)
      : MessagingUser(state, messaging),
        outcomes_(outcomes),
        rc_(rc),
        xrc_nodes_(xrc_nodes),
        negotiator_(negotiator),
        recovery_(recovery) {}

  void fail_xrc_connection(XrcConnection& link, const ibv_wc& wc);
  void on_xrc_error(Peer& peer, const wire::ControlMessage& message);
  void send_xrc_replay(Peer& peer);
  void on_xrc_replay(Peer& peer, const wire::ControlMessage& message);
  bool pump_xrc_lost();
  void on_xrc_resumed(Peer& peer, const wire::ControlMessage& message);

 private:
  bool replay_xrc(Peer& peer);

  DecisionOutcomes& outcomes_;
  RcPool& rc_;
  XrcConnections& xrc_nodes_;
  ChannelNegotiator& negotiator_;
  ConnectionRecovery& recovery_;
};

}  // namespace turnout
