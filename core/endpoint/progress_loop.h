// SPDX-License-Identifier: BSD-3-Clause
// ProgressLoop: one call of progress: what is polled in which order, and what is due by time.
#pragma once

#include "core/endpoint/endpoint_reporter.h"
#include "core/endpoint/receive_dispatch.h"
#include "core/endpoint/send_completions.h"
#include "core/endpoint/stuck_watch.h"

namespace turnout {

class ProgressLoop : ComponentsUser {
 public:
  ProgressLoop(Components& parts, ReceiveDispatch& receive_dispatch,
               SendCompletions& send_completions, EndpointReporter& reporter)
      : ComponentsUser(parts),
        receive_dispatch_(receive_dispatch),
        send_completions_(send_completions),
        reporter_(reporter),
        stuck_(parts, reporter) {}

  bool progress_now();

 private:
  bool go_on_with_pending();
  void post_receives();
  void tick();

  ReceiveDispatch& receive_dispatch_;
  SendCompletions& send_completions_;
  EndpointReporter& reporter_;
  StuckWatch stuck_;

  // Progress calls between two looks for completions of failed requests, and between two clock
  // reads. Under a virtual clock reading it costs nothing, and every call may be the last for long.
  static constexpr std::uint32_t kPollForFailures = 16;
  const std::uint32_t tick_every_ = context_.simulation.processor == nullptr ? 64 : 1;
};

}  // namespace turnout
