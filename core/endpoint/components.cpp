// SPDX-License-Identifier: BSD-3-Clause
#include "core/endpoint/components.h"

namespace turnout {

Components::Components(const Settings& settings, Clock& clock, EndpointOptions& options,
                       EndpointParts& parts)
    : EndpointState(settings, clock, options, parts),
      call_time(context.simulation.processor != nullptr),
      channels(*this, options.background ? std::move(options.background)
                                         : make_background(settings.setup_thread)) {
  resources.shutting_down.reserve(kPollBatch);
}

Messaging::Messaging(Components& parts)
    : control_sender(parts),
      ud(parts, control_sender),
      control(parts, control_sender, ud),
      credits(parts, control),
      shared_receives(parts, credits),
      private_receives(parts, control, credits),
      sender(parts, ud, private_receives) {}

Operations::Operations(Components& parts)
    : posted(parts, parts.messaging.control, parts.messaging.credits,
             parts.messaging.private_receives),
      backlog(parts),
      rdma(parts, parts.messaging.control, posted, backlog),
      fragments(parts, parts.messaging.control, parts.messaging.sender, backlog, rdma),
      rput(parts, parts.messaging.control, backlog, rdma, fragments),
      rndv(parts, posted, rdma, fragments, rput),
      put(parts, backlog, rdma),
      send_engine(parts, parts.messaging.sender, backlog, put),
      rtr(parts, parts.messaging.control, posted, backlog, rdma, fragments, send_engine),
      atomic_engine(parts, parts.messaging.sender, backlog, rdma, put, send_engine),
      one_sided(parts, rdma, atomic_engine),
      unexpected(parts, parts.messaging.control, parts.messaging.credits, posted, rndv,
                 atomic_engine),
      receive_engine(parts, parts.messaging.ud, parts.messaging.control, parts.messaging.credits,
                     parts.messaging.private_receives, posted, backlog, fragments, rndv, rtr,
                     atomic_engine, unexpected) {}

Channels::Channels(Components& parts, std::unique_ptr<Background> background)
    : outcomes(parts),
      rc(parts, parts.messaging.private_receives, std::move(background)),
      slots(parts, parts.messaging.control, parts.operations.unexpected, rc),
      xrc_nodes(parts, parts.messaging.control, rc),
      negotiator(parts, parts.messaging.control, parts.messaging.private_receives,
                 parts.messaging.sender, outcomes, rc, slots, xrc_nodes),
      recovery(parts, parts.messaging.ud, parts.messaging.control, parts.messaging.sender,
               parts.operations.rdma, outcomes, rc, negotiator),
      xrc_recovery(parts, parts.messaging.control, outcomes, rc, xrc_nodes, negotiator, recovery),
      selector(parts, parts.messaging.control, outcomes, rc, slots, xrc_nodes, negotiator,
               recovery),
      data_paths(parts, parts.messaging.sender, rc, slots, selector),
      keep_alive(parts, parts.messaging.ud, parts.messaging.credits,
                 parts.messaging.private_receives, parts.messaging.sender,
                 parts.operations.unexpected, xrc_nodes),
      rejection(parts, parts.messaging.control_sender, parts.messaging.ud) {}

}  // namespace turnout
