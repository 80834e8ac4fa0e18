// SPDX-License-Identifier: BSD-3-Clause
// EndpointReporter: the report of an endpoint.
#pragma once

#include "core/endpoint/components.h"

namespace turnout {

class EndpointReporter {
 public:
  explicit EndpointReporter(Components& parts) : parts_(parts), context_(parts.context) {}

  [[nodiscard]] EndpointReport report() const;

 private:
  void report_history(EndpointReport* report) const;
  void report_memory(EndpointReport* report) const;

  Components& parts_;
  EndpointContext& context_;
};

}  // namespace turnout
