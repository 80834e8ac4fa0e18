// SPDX-License-Identifier: BSD-3-Clause
// Components: all components of an endpoint, in the order of their layers: each holds references to
// lower ones only. They are destroyed from the last to the first: what uses a queue before the
// queue.
//
// The endpoint owns them; only the thread that drives the endpoint uses them.
#pragma once

#include "core/channels/channel_negotiator.h"
#include "core/channels/channel_selector.h"
#include "core/channels/connection_recovery.h"
#include "core/channels/connection_slots.h"
#include "core/channels/data_paths.h"
#include "core/channels/decision_outcomes.h"
#include "core/channels/keep_alive.h"
#include "core/channels/rc_pool.h"
#include "core/channels/rejection.h"
#include "core/channels/xrc_connections.h"
#include "core/channels/xrc_recovery.h"
#include "core/connection/eviction.h"
#include "core/flow/srq_flow_control.h"
#include "core/memory/memory_history.h"
#include "core/messaging/control_plane.h"
#include "core/messaging/control_sender.h"
#include "core/messaging/credits.h"
#include "core/messaging/message_sender.h"
#include "core/messaging/private_receive_queue.h"
#include "core/messaging/shared_receive_queue.h"
#include "core/messaging/ud_transport.h"
#include "core/operations/atomic_engine.h"
#include "core/operations/fragment_engine.h"
#include "core/operations/one_sided.h"
#include "core/operations/posted_receives.h"
#include "core/operations/put_engine.h"
#include "core/operations/rdma_engine.h"
#include "core/operations/receive_engine.h"
#include "core/operations/rendezvous_receiver.h"
#include "core/operations/rput_engine.h"
#include "core/operations/rtr_engine.h"
#include "core/operations/send_backlog.h"
#include "core/operations/send_engine.h"
#include "core/operations/unexpected_messages.h"
#include "core/report/call_time.h"
#include "core/report/report_live.h"
#include "core/state/component.h"

namespace turnout {

struct Components;

struct Messaging {
  explicit Messaging(Components& parts);

  ControlSender control_sender;
  UdTransport ud;
  ControlPlane control;
  Credits credits;
  SharedReceiveQueue shared_receives;
  PrivateReceiveQueues private_receives;
  MessageSender sender;
};

struct Operations {
  explicit Operations(Components& parts);

  PostedReceives posted;
  SendBacklog backlog;
  RdmaEngine rdma;
  FragmentEngine fragments;
  RputEngine rput;
  RendezvousReceiver rndv;
  PutEngine put;
  SendEngine send_engine;
  RtrEngine rtr;
  AtomicEngine atomic_engine;
  OneSided one_sided;
  UnexpectedMessages unexpected;
  ReceiveEngine receive_engine;
};

struct Channels {
  Channels(Components& parts, std::unique_ptr<Background> background);

  DecisionOutcomes outcomes;
  RcPool rc;
  ConnectionSlots slots;
  XrcConnections xrc_nodes;
  ChannelNegotiator negotiator;
  ConnectionRecovery recovery;
  XrcRecovery xrc_recovery;
  ChannelSelector selector;
  DataPaths data_paths;
  KeepAlive keep_alive;
  PeerRejection rejection;
};

struct Components : EndpointState {
  Components(const Settings& settings, Clock& clock, EndpointOptions& options,
             EndpointParts& parts);

  CallTime call_time;
  LiveReport live_report;
  MemoryHistory memory_history{context.account};
  Messaging messaging{*this};
  Operations operations{*this};
  Channels channels;
};

}  // namespace turnout
