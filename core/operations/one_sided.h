// SPDX-License-Identifier: BSD-3-Clause
// OneSided: one-sided operations of the caller (fi_read, fi_write): checked, split, and given to
// RDMA, to messages where there is no connection, or carried out at once where the target is this
// process.
//
// The endpoint owns it; the thread that drives the endpoint calls it. Errors: of the request's
// fields, of the budget.
#pragma once

#include "core/operations/atomic_engine.h"
#include "core/operations/rdma_engine.h"
#include "core/protocol/operation.h"
#include "core/state/endpoint_context.h"
#include "core/state/endpoint_events.h"
#include "core/state/operation_records.h"
#include "core/state/peer.h"
#include "core/state/peer_table.h"
#include "core/state/transport_resources.h"
#include "core/transport/wire.h"

namespace turnout {

class OneSided {
 public:
  OneSided(EndpointContext& context, PeerTable& peer_table, OperationRecords& records,
           TransportResources& resources, RdmaEngine& rdma, AtomicEngine& atomic_engine,
           EndpointEvents& events)
      : context_(context),
        peer_table_(peer_table),
        records_(records),
        resources_(resources),
        rdma_(rdma),
        atomic_engine_(atomic_engine),
        events_(events) {}

  [[nodiscard]] Status rma_now(const RmaRequest& request);

 private:
  [[nodiscard]] Status rma_to_self(const RmaRequest& request, const IoVec& iov);

  EndpointContext& context_;
  PeerTable& peer_table_;
  OperationRecords& records_;
  TransportResources& resources_;
  RdmaEngine& rdma_;
  AtomicEngine& atomic_engine_;
  EndpointEvents& events_;
};

}  // namespace turnout
