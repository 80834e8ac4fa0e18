// SPDX-License-Identifier: BSD-3-Clause
// Domains: the protection domains of a world.
//
// A domain is its program's until dealloc(). Numbers are unique in the world. One thread.
#pragma once

#include "hca/device/objects.h"

namespace turnout::hca {

class Domains {
 public:
  [[nodiscard]] Pd* alloc(Context& context);
  // EBUSY: something belongs to it still.
  [[nodiscard]] int dealloc(Pd& pd);

 private:
  std::uint32_t next_ = 1;
};

}  // namespace turnout::hca
