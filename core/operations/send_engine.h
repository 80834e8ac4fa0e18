// SPDX-License-Identifier: BSD-3-Clause
// SendEngine: send operations: eager, or RTS and FIN, and the backlog of a peer that cannot be sent
// to now.
//
// The endpoint owns it; the thread that drives the endpoint calls it.
#pragma once

#include "core/messaging/message_sender.h"
#include "core/operations/put_engine.h"
#include "core/operations/send_backlog.h"
#include "core/protocol/operation.h"
#include "core/state/endpoint_context.h"
#include "core/state/endpoint_events.h"
#include "core/state/memory_registration.h"
#include "core/state/operation_records.h"
#include "core/state/peer.h"
#include "core/state/peer_table.h"
#include "core/transport/wire.h"

namespace turnout {

class SendEngine {
 public:
  SendEngine(EndpointContext& context, PeerTable& peer_table, OperationRecords& records,
             MemoryRegistration& registration, MessageSender& sender, SendBacklog& backlog,
             PutEngine& put, EndpointEvents& events)
      : context_(context),
        peer_table_(peer_table),
        records_(records),
        registration_(registration),
        sender_(sender),
        backlog_(backlog),
        put_(put),
        events_(events) {}

  [[nodiscard]] Status send_now(const SendRequest& request);
  [[nodiscard]] static Status too_many_wait();
  [[nodiscard]] bool try_operation(SendOperation& operation);
  [[nodiscard]] Status prepare_rendezvous(SendOperation& operation);
  bool pump_backlog(Peer& peer);
  bool pump_backlogs();
  void on_fin(const wire::ControlMessage& message, Peer& peer);
  void release_overdue();

 private:
  // Whether a message of this size uses rendezvous.
  [[nodiscard]] bool is_large(const Peer& peer, std::size_t bytes) const noexcept;

  EndpointContext& context_;
  PeerTable& peer_table_;
  OperationRecords& records_;
  MemoryRegistration& registration_;
  MessageSender& sender_;
  SendBacklog& backlog_;
  PutEngine& put_;
  EndpointEvents& events_;
};

}  // namespace turnout
