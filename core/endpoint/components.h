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
  Components(const Settings& settings, Clock& clock, EndpointOptions& options,
             EndpointParts& parts);

  CallTime call_time;
  LiveReport live_report;
  MemoryHistory memory_history{context.account};
  Messaging messaging{*this};
  Operations operations{*this, messaging};
  Channels channels;
};

}  // namespace turnout
