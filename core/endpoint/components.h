// SPDX-License-Identifier: BSD-3-Clause
// Components: all components of an endpoint, in the order of their layers. They are destroyed from
// the last to the first: what uses a queue before the queue.
//
// The endpoint owns them; only the thread that drives the endpoint uses them.
#pragma once

#include "core/channels/channels.h"
#include "core/memory/memory_history.h"
#include "core/messaging/messaging.h"
#include "core/operations/operations.h"
#include "core/report/call_time.h"
#include "core/report/report_live.h"
#include "core/state/component.h"

namespace turnout {

struct Components : EndpointState {
  Components(const Settings& settings, Clock& clock, EndpointOptions& options, EndpointParts& parts)
      : EndpointState(settings, clock, options, parts),
        call_time(context.simulation.processor != nullptr),
        channels{*this, messaging, operations,
                 options.background ? std::move(options.background)
                                    : make_background(settings.setup_thread)} {
    resources.shutting_down.reserve(kPollBatch);
  }

  CallTime call_time;
  LiveReport live_report;
  MemoryHistory memory_history{context.account};
  Messaging messaging{*this};
  Operations operations{*this, messaging};
  Channels channels;
};

// What stands above the components derives from this to use all of them.
class ComponentsUser : protected MessagingUser {
 public:
  explicit ComponentsUser(Components& parts) noexcept
      : MessagingUser(parts, parts.messaging),
        parts_(parts),
        shared_receives_(parts.messaging.shared_receives),
        operations_(parts.operations),
        channels_(parts.channels) {}

 protected:
  Components& parts_;
  SharedReceiveQueue& shared_receives_;
  Operations& operations_;
  Channels& channels_;
};

}  // namespace turnout
