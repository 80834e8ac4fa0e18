// SPDX-License-Identifier: BSD-3-Clause
#include "hca/live/region_table.h"

#include <algorithm>

namespace turnout::hca {

std::uint32_t reserve_region(const Fabric& fabric) noexcept {
  const std::uint32_t index = fabric.find_free(&Tables::mr, kMaxMrs, fabric.header().mr_high,
                                               1 + slot_of(fabric.me()) * 64, 1);
  if (index != kNone) fabric.mr(index).owner.store(fabric.me(), std::memory_order_release);
  return index;
}

bool has_windows(const Fabric& fabric, std::uint32_t region) noexcept {
  const std::uint32_t high = std::min(fabric.header().mr_high.load(), kMaxMrs);
  for (std::uint32_t i = 1; i < high; ++i) {
    const MrRecord& r = fabric.mr(i);
    if (r.owner.load(std::memory_order_relaxed) == fabric.me() && r.window != 0 &&
        r.bound_to == region && r.key.load(std::memory_order_relaxed) != 0) {
      return true;
    }
  }
  return false;
}

}  // namespace turnout::hca
