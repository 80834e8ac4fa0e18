// SPDX-License-Identifier: BSD-3-Clause
#include "core/endpoint/components.h"

namespace turnout {

Components::Components(const Settings& settings, Clock& clock, EndpointOptions& options,
                       EndpointParts& parts)
    : context(settings, clock, options),
      events(parts),
      records(context, options.context_size),
      call_time(context.simulation.processor != nullptr),
      channels(*this, options.background      ? std::move(options.background)
                      : settings.setup_thread ? make_background_thread()
                                              : make_foreground()) {
  resources.shutting_down.reserve(kPollBatch);
}

Messaging::Messaging(Components& parts)
    : control_sender(parts.context, parts.resources, parts.events),
      ud(parts.context, parts.resources, control_sender, parts.events),
      control(parts.context, parts.peer_table, parts.resources, control_sender, ud, parts.events),
      credits(parts.flow, parts.peer_table, control),
      shared_receives(parts.context, parts.flow, parts.peer_table, parts.resources, credits),
      private_receives(parts.context, parts.peer_table, parts.resources, control, credits,
                       parts.events),
      sender(parts.context, parts.eviction, parts.resources, ud, private_receives, parts.events) {}

Operations::Operations(Components& parts)
    : posted(parts.context, parts.peer_table, parts.records, parts.resources,
             parts.messaging.control, parts.messaging.credits, parts.messaging.private_receives,
             parts.events),
      backlog(parts.context, parts.records, parts.events),
      rdma(parts.context, parts.records, parts.registration, parts.resources,
           parts.messaging.control, posted, backlog, parts.events),
      fragments(parts.context, parts.messaging.control, parts.messaging.sender, backlog, rdma,
                parts.events),
      rput(parts.context, parts.records, parts.messaging.control, backlog, rdma, fragments,
           parts.events),
      rndv(parts.context, parts.records, posted, rdma, fragments, rput),
      put(parts.context, parts.records, backlog, rdma, parts.events),
      send_engine(parts.context, parts.peer_table, parts.records, parts.registration,
                  parts.messaging.sender, backlog, put, parts.events),
      rtr(parts.context, parts.eviction, parts.records, parts.registration, parts.messaging.control,
          posted, backlog, rdma, fragments, send_engine, parts.events),
      atomic_engine(parts.context, parts.peer_table, parts.records, parts.messaging.sender, backlog,
                    rdma, put, send_engine, parts.events),
      one_sided(parts.context, parts.peer_table, parts.records, parts.resources, rdma,
                atomic_engine, parts.events),
      unexpected(parts.context, parts.flow, parts.peer_table, parts.records, parts.resources,
                 parts.messaging.control, parts.messaging.credits, posted, rndv, atomic_engine,
                 parts.events),
      receive_engine(parts.context, parts.flow, parts.eviction, parts.rings, parts.peer_table,
                     parts.records, parts.resources, parts.messaging.ud, parts.messaging.control,
                     parts.messaging.credits, parts.messaging.private_receives, posted, backlog,
                     fragments, rndv, rtr, atomic_engine, unexpected, parts.events) {}

Channels::Channels(Components& parts, std::unique_ptr<Background> background)
    : outcomes(parts.context, parts.eviction, parts.events),
      rc(parts.context, parts.eviction, parts.peer_table, parts.resources,
         parts.messaging.private_receives, parts.events, std::move(background)),
      slots(parts.context, parts.eviction, parts.peer_table, parts.resources,
            parts.messaging.control, parts.operations.unexpected, rc, parts.events),
      xrc_nodes(parts.context, parts.eviction, parts.peer_table, parts.resources,
                parts.messaging.control, rc, parts.events),
      negotiator(parts.context, parts.eviction, parts.rings, parts.peer_table, parts.resources,
                 parts.messaging.control, parts.messaging.private_receives, parts.messaging.sender,
                 outcomes, rc, slots, xrc_nodes, parts.events),
      recovery(parts.context, parts.eviction, parts.rings, parts.resources, parts.messaging.ud,
               parts.messaging.control, parts.messaging.sender, parts.operations.rdma, outcomes, rc,
               negotiator, parts.events),
      xrc_recovery(parts.context, parts.eviction, parts.rings, parts.peer_table,
                   parts.messaging.control, outcomes, rc, xrc_nodes, negotiator, recovery,
                   parts.events),
      selector(parts.context, parts.eviction, parts.peer_table, parts.resources,
               parts.messaging.control, outcomes, rc, slots, xrc_nodes, negotiator, recovery),
      data_paths(parts.context, parts.eviction, parts.records, parts.messaging.sender, rc, slots,
                 selector),
      keep_alive(parts.context, parts.peer_table, parts.records, parts.resources,
                 parts.messaging.ud, parts.messaging.credits, parts.messaging.private_receives,
                 parts.messaging.sender, parts.operations.unexpected, xrc_nodes, parts.events),
      rejection(parts.context, parts.peer_table, parts.resources, parts.messaging.control_sender,
                parts.messaging.ud, parts.events) {}

}  // namespace turnout
