// SPDX-License-Identifier: BSD-3-Clause
// QpNumbers: records for queue pairs, and numbers that are reserved without one.
//
// A number is 8 bits of the record's salt and its index. Any thread; takes table_lock.
#pragma once

#include <mutex>
#include <unordered_set>

#include "hca/live/fabric.h"

namespace turnout::hca {

class QpNumbers {
 public:
  explicit QpNumbers(Fabric& fabric) : fabric_(fabric) {}

  // The index of a record, ours from now on; kNone: the table is full.
  [[nodiscard]] std::uint32_t reserve_index() noexcept;
  // 0 or ENOMEM: a number that no queue pair will have until it is released.
  [[nodiscard]] int reserve(std::uint32_t& number);
  // EINVAL: it was not reserved so.
  [[nodiscard]] int release(std::uint32_t number);

 private:
  Fabric& fabric_;
  std::mutex mutex_;
  std::unordered_set<std::uint32_t> reserved_;
};

}  // namespace turnout::hca
