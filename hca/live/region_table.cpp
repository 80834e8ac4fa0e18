// SPDX-License-Identifier: BSD-3-Clause
#include "hca/live/region_table.h"

#include <algorithm>

namespace turnout::hca {

std::uint32_t reserve_region(const Fabric& fabric) noexcept {
  Header& h = fabric.header();
  // Each process begins at a place of its own: neighbours in a cache line have one owner.
  const std::uint32_t start = 1 + slot_of(fabric.me()) * 64;
  for (std::uint32_t n = 0; n < kMaxMrs; ++n) {
    const std::uint32_t index = (start + n) % kMaxMrs;
    MrRecord& r = fabric.mr(index);
    if (index == 0 || r.owner.load(std::memory_order_acquire) != 0) continue;
    if (h.mr_high.load() < index + 1) h.mr_high.store(index + 1);
    r.owner.store(fabric.me(), std::memory_order_release);
    return index;
  }
  return kNone;
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
