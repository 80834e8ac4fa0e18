// SPDX-License-Identifier: BSD-3-Clause
// The table of regions and windows on the fabric, as far as both need it.
//
// Any thread; locks are named.
#pragma once

#include "hca/live/fabric.h"

namespace turnout::hca {

// A free record, ours from now on; kNone: the table is full. table_lock held.
[[nodiscard]] std::uint32_t reserve_region(const Fabric& fabric) noexcept;
// Is a window bound to this region of ours?
[[nodiscard]] bool has_windows(const Fabric& fabric, std::uint32_t region) noexcept;

}  // namespace turnout::hca
