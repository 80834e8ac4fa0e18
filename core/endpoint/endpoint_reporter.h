// SPDX-License-Identifier: BSD-3-Clause
// EndpointReporter: the report of an endpoint.
#pragma once

#include "core/endpoint/components.h"

namespace turnout {

class EndpointReporter : ComponentsUser {
 public:
  using ComponentsUser::ComponentsUser;

  [[nodiscard]] EndpointReport report() const;

 private:
  void report_history(EndpointReport* report) const;
  void report_memory(EndpointReport* report) const;
};

}  // namespace turnout
