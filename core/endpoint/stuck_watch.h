// SPDX-License-Identifier: BSD-3-Clause
// StuckWatch: TURNOUT_STUCK: an operation that has been pending for longer is logged with what it
// waits for, again when more are, and the report of the endpoint is left in the folder
// that TURNOUT_REPORT names, for `turnout stuck`.
//
// The endpoint owns it and calls it from its thread. Failures to write are logged. Times are
// nanoseconds by the endpoint's clock.
#pragma once

#include "core/endpoint/endpoint_reporter.h"

namespace turnout {

class StuckWatch : ComponentsUser {
 public:
  StuckWatch(Components& parts, EndpointReporter& reporter)
      : ComponentsUser(parts), reporter_(reporter) {}

  void tick(Nanoseconds now) {
    if (context_.settings.stuck == 0 || now < next_) [[likely]]
      return;
    look(now);
  }

 private:
  static constexpr std::size_t kMostLines = 8;  // of the log, an episode
  // Looks in the time after which an operation counts as stuck; none more often than these.
  static constexpr Nanoseconds kLooks = 4, kLeast = 10'000'000;

  void look(Nanoseconds now);
  void log(const WaitsReport& waits) const;
  void write(Nanoseconds now) const;

  EndpointReporter& reporter_;
  Nanoseconds next_ = 0;
  std::size_t stuck_ = 0;  // operations, at the last look
};

}  // namespace turnout
