// SPDX-License-Identifier: BSD-3-Clause
// ProgressLoop: one call of progress: what is polled in which order, and what is due by time.
#pragma once

#include "core/endpoint/endpoint_reporter.h"
#include "core/endpoint/receive_dispatch.h"
#include "core/endpoint/send_completions.h"

namespace turnout {

class ProgressLoop {
 public:
  ProgressLoop(Components& parts, ReceiveDispatch& receive_dispatch,
               SendCompletions& send_completions, EndpointReporter& reporter);

  bool progress_now();

 private:
  void tick();

  Components& parts_;
  EndpointContext& context_;
  ReceiveDispatch& receive_dispatch_;
  SendCompletions& send_completions_;
  EndpointReporter& reporter_;

  std::uint32_t tick_every_;  // progress calls between two clock reads
};

}  // namespace turnout
