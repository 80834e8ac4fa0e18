// SPDX-License-Identifier: BSD-3-Clause
// A valid Address of an endpoint that nobody has.
#pragma once

#include <cstdint>

#include "core/types/address.h"

namespace turnout::testing {

inline Address made_up(std::uint64_t id) {
  Address address;
  address.id = id;
  address.counts = 4 | 2 << 4 | 2 << 6;
  address.set_sizes(4096, 4, false);
  address.seal();
  return address;
}

}  // namespace turnout::testing
