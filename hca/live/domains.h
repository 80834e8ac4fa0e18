// SPDX-License-Identifier: BSD-3-Clause
// LiveDomains: protection domains: numbers that are unique on the fabric; they have no record.
//
// A domain is its program's until dealloc(). Errors: null and errno, or an errno value. Any thread.
#pragma once

#include "hca/device/objects.h"
#include "hca/live/fabric.h"

namespace turnout::hca {

class LiveDomains {
 public:
  explicit LiveDomains(Fabric& fabric) : fabric_(fabric) {}

  [[nodiscard]] Pd* alloc(Context& context);
  // A further object of the domain with this handle.
  [[nodiscard]] Pd* import(Context& context, std::uint32_t handle);
  // EBUSY: something belongs to it still.
  [[nodiscard]] static int dealloc(Pd& pd);

 private:
  Fabric& fabric_;
};

}  // namespace turnout::hca
