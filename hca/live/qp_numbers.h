// SPDX-License-Identifier: BSD-3-Clause
// QpNumbers: records for queue pairs, and numbers that are reserved without one.
//
// A number is 8 bits of the record's salt and its index. Any thread; takes table_lock.
#pragma once

#include <cerrno>
#include <mutex>
#include <unordered_set>

#include "hca/live/parts.h"

namespace turnout::hca {

class QpNumbers : LiveParts {
 public:
  explicit QpNumbers(const LiveParts& parts) : LiveParts(parts) {}

  // The index of a record, ours from now on; kNone: the table is full.
  [[nodiscard]] std::uint32_t reserve_index() noexcept {
    const TableGuard guard(fabric);
    const std::uint32_t index = fabric.find_free(&Tables::qp, kMaxQps, fabric.header().qp_high,
                                                 slot_of(fabric.me()) * 64, kFirstQp);
    if (index != kNone) fabric.qp(index).owner.store(fabric.me(), std::memory_order_release);
    return index;
  }
  // 0 or ENOMEM: a number that no queue pair will have until it is released.
  [[nodiscard]] int reserve(std::uint32_t& number) {
    const std::uint32_t index = reserve_index();
    if (index == kNone) return ENOMEM;
    QpRecord& r = fabric.qp(index);
    r.kind = QpKind::none;
    r.identity.store(static_cast<std::uint64_t>(QpPhase::free), std::memory_order_release);
    number = std::uint32_t{r.salt} << 16 | index;
    const std::lock_guard lock(mutex_);
    reserved_.insert(number);
    return 0;
  }
  // EINVAL: it was not reserved so.
  [[nodiscard]] int release(std::uint32_t number) {
    {
      const std::lock_guard lock(mutex_);
      if (reserved_.erase(number) == 0) return EINVAL;
    }
    QpRecord& r = fabric.qp(number & (kMaxQps - 1));
    ++r.salt;
    r.owner.store(0, std::memory_order_release);
    return 0;
  }

 private:
  std::mutex mutex_;
  std::unordered_set<std::uint32_t> reserved_;
};

}  // namespace turnout::hca
