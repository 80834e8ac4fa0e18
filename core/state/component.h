// SPDX-License-Identifier: BSD-3-Clause
// EndpointState: what all components of an endpoint share, the layer below them. Component: what a
// component of `messaging`, `operations` or `channels` derives from to use it.
//
// The endpoint owns the state, and the components, which do not outlive it. The thread that drives
// the endpoint calls all of them. A test of a component makes an EndpointState without an endpoint
// and an adapter (tests/support/component_world.h).
#pragma once

#include "core/state/endpoint_events.h"
#include "core/state/memory_registration.h"
#include "core/state/operation_records.h"
#include "core/state/peer_table.h"
#include "core/state/polled_rings.h"

namespace turnout {

struct EndpointState {
  EndpointState(const Settings& settings, Clock& clock, EndpointOptions& options,
                EndpointParts& parts)
      : context(settings, clock, options), events(parts), records(context, options.context_size) {}

  EndpointContext context;
  EndpointEvents events;
  MemoryRegistration registration{context};
  TransportResources resources;
  PeerTable peer_table{context, resources};
  OperationRecords records;
  SrqFlowControl flow{context.clock};
  ConnectionEviction eviction;
  PolledRings rings;
};

class Component {
 protected:
  explicit Component(EndpointState& state) noexcept
      : context_(state.context),
        events_(state.events),
        registration_(state.registration),
        resources_(state.resources),
        peer_table_(state.peer_table),
        records_(state.records),
        flow_(state.flow),
        eviction_(state.eviction),
        rings_(state.rings) {}

  // A receive buffer of the shared queue is free.
  void post_again(std::uint32_t buffer) {
    resources_.to_post.push_back(buffer);
    context_.pending.add(Pending::receives);
  }
  void post_control_again(std::uint32_t buffer) {
    resources_.to_post_control.push_back(buffer);
    context_.pending.add(Pending::receives);
  }

  EndpointContext& context_;
  EndpointEvents& events_;
  MemoryRegistration& registration_;
  TransportResources& resources_;
  PeerTable& peer_table_;
  OperationRecords& records_;
  SrqFlowControl& flow_;
  ConnectionEviction& eviction_;
  PolledRings& rings_;
};

}  // namespace turnout
