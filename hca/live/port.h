// SPDX-License-Identifier: BSD-3-Clause
// The one port of the adapter, as address vectors name it. Any thread.
#pragma once

#include "hca/device/objects.h"

namespace turnout::hca {

[[nodiscard]] bool names_this_port(const ibv_ah_attr& attr, const Context& context) noexcept;

}  // namespace turnout::hca
