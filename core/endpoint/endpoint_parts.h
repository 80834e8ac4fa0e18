// SPDX-License-Identifier: BSD-3-Clause
// EndpointParts: the components of an endpoint, and what stands above them: start, progress,
// dispatch of completions, lost peers, report and shutdown. EndpointCore owns them.
#pragma once

#include "core/endpoint/peer_loss.h"
#include "core/endpoint/progress_loop.h"
#include "core/endpoint/shutdown.h"
#include "core/endpoint/startup.h"

namespace turnout {

struct EndpointParts : Components {
  EndpointParts(const Settings& settings, Clock& clock, EndpointOptions& options)
      : Components(settings, clock, options, *this) {}

  SendCompletions send_completions{*this};
  ReceiveDispatch receive_dispatch{*this};
  PeerLoss peer_loss{*this};
  EndpointReporter reporter{*this};
  ProgressLoop progress_loop{*this, receive_dispatch, send_completions, reporter};
  Startup startup{*this};
  Shutdown shutdown{*this};
};

}  // namespace turnout
