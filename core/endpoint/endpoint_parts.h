// SPDX-License-Identifier: BSD-3-Clause
// EndpointParts: the components of an endpoint, and what stands above them: start, progress,
// dispatch of completions, lost peers, report and shutdown. EndpointCore owns them.
#pragma once

#include "core/endpoint/peer_loss.h"
#include "core/endpoint/progress_loop.h"
#include "core/endpoint/shutdown.h"
#include "core/endpoint/startup.h"

namespace turnout {

struct EndpointParts {
  EndpointParts(const Settings& settings, Clock& clock, EndpointOptions& options)
      : components(settings, clock, options, *this) {}

  Components components;
  SendCompletions send_completions{components};
  ReceiveDispatch receive_dispatch{components};
  PeerLoss peer_loss{components};
  EndpointReporter reporter{components};
  ProgressLoop progress_loop{components, receive_dispatch, send_completions, reporter};
  Startup startup{components};
  Shutdown shutdown{components};
};

}  // namespace turnout
