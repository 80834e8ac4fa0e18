// SPDX-License-Identifier: BSD-3-Clause
// What the emulated mlx5's firmware says of itself (QUERY_HCA_CAP, QUERY_HCA_VPORT_CONTEXT).
//
// Fills answers behind their head; what is not told is zero, that is, not there. Any thread.
#pragma once

#include "hca/device/objects.h"
#include "hca/mlx5/prm.h"

namespace turnout::hca {

// `group` of the capabilities (prm::cap). False: the device has no such group.
[[nodiscard]] bool tell_capabilities(const Context& context, std::uint32_t group,
                                     prm::Out capabilities);
void tell_port(const Context& context, prm::Out port);

}  // namespace turnout::hca
