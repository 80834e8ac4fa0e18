// SPDX-License-Identifier: BSD-3-Clause
#include "hca/live/qp_numbers.h"

#include <cerrno>

namespace turnout::hca {

std::uint32_t QpNumbers::reserve_index() noexcept {
  const TableGuard guard(fabric_);
  Header& h = fabric_.header();
  for (std::uint32_t n = 0; n < kMaxQps; ++n) {
    const std::uint32_t at = (slot_of(fabric_.me()) * 64 + n) % kMaxQps;
    if (at < kFirstQp || fabric_.qp(at).owner.load(std::memory_order_acquire) != 0) continue;
    if (h.qp_high.load() < at + 1) h.qp_high.store(at + 1);
    fabric_.qp(at).owner.store(fabric_.me(), std::memory_order_release);
    return at;
  }
  return kNone;
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
