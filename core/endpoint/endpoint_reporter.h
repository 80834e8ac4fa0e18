// SPDX-License-Identifier: BSD-3-Clause
// EndpointReporter: the report of an endpoint.
#pragma once

#include "core/report/report.h"
#include "core/state/endpoint_context.h"
#include "core/state/peer.h"
#include "core/state/transport_resources.h"

namespace turnout {

struct Components;

class EndpointReporter {
 public:
  EndpointReporter(Components& parts, EndpointContext& context)
      : parts_(parts), context_(context) {}

  [[nodiscard]] EndpointReport report() const;

 private:
  void report_history(EndpointReport* report) const;
  void report_memory(EndpointReport* report) const;

  Components& parts_;
  EndpointContext& context_;
};

}  // namespace turnout
