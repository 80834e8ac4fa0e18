// SPDX-License-Identifier: BSD-3-Clause
// EndpointReporter: the report of an endpoint.
#pragma once

#include "core/endpoint/wait_reporter.h"

namespace turnout {

class EndpointReporter : ComponentsUser {
 public:
  explicit EndpointReporter(Components& parts) : ComponentsUser(parts), waits_(parts) {}

  [[nodiscard]] EndpointReport report() const;
  // With what is pending now.
  [[nodiscard]] EndpointReport report_with_waits(Nanoseconds now) {
    EndpointReport made = report();
    made.waits = waits_.look(now);
    return made;
  }
  [[nodiscard]] WaitReporter& waits() noexcept { return waits_; }

 private:
  void report_history(EndpointReport* report) const;
  void report_memory(EndpointReport* report) const;
  void report_selection(EndpointReport* report) const;
  [[nodiscard]] std::optional<SourceReport> source_report(const Peer& peer) const;

  WaitReporter waits_;
};

}  // namespace turnout
