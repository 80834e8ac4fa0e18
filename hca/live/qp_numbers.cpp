// SPDX-License-Identifier: BSD-3-Clause
#include "hca/live/qp_numbers.h"

#include <cerrno>

namespace turnout::hca {

std::uint32_t QpNumbers::reserve_index() noexcept {
  const TableGuard guard(fabric_);
  const std::uint32_t index = fabric_.find_free(&Tables::qp, kMaxQps, fabric_.header().qp_high,
                                                slot_of(fabric_.me()) * 64, kFirstQp);
  if (index != kNone) fabric_.qp(index).owner.store(fabric_.me(), std::memory_order_release);
  return index;
}

int QpNumbers::reserve(std::uint32_t& number) {
  const std::uint32_t index = reserve_index();
  if (index == kNone) return ENOMEM;
  QpRecord& r = fabric_.qp(index);
  r.kind = QpKind::none;
  r.identity.store(static_cast<std::uint64_t>(QpPhase::free), std::memory_order_release);
  number = std::uint32_t{r.salt} << 16 | index;
  const std::lock_guard lock(mutex_);
  reserved_.insert(number);
  return 0;
}

int QpNumbers::release(std::uint32_t number) {
  {
    const std::lock_guard lock(mutex_);
    if (reserved_.erase(number) == 0) return EINVAL;
  }
  QpRecord& r = fabric_.qp(number & (kMaxQps - 1));
  ++r.salt;
  r.owner.store(0, std::memory_order_release);
  return 0;
}

}  // namespace turnout::hca
