// SPDX-License-Identifier: BSD-3-Clause
// Address handles: identical in both engines except for the peers they can reach.
//
// Owner: the protection domain counts them. Any thread. Source: ibv_create_ah(3).
#pragma once

#include "hca/device/objects.h"

namespace turnout::hca {

// Null with errno EINVAL when `attr` names a port or an entry of the GID table that is not there.
[[nodiscard]] Ah* make_address_handle(Pd& pd, const ibv_ah_attr& attr, bool reachable);
void destroy_address_handle(Ah& ah) noexcept;

}  // namespace turnout::hca
