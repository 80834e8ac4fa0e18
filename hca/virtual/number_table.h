// SPDX-License-Identifier: BSD-3-Clause
// NumberTable: numbers for objects, and the object of a number. A number that was released comes
// back as late as can be, so that what still names it finds nothing.
//
// The entry of a number stays as its user leaves it. 24 bits, as a queue pair has. One thread.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "hca/device/fifo.h"

namespace turnout::hca {

template <class T>
class NumberTable {
 public:
  // first: the smallest number, not 0. rested: numbers come back while more than these are free.
  NumberTable(std::uint32_t first, std::size_t rested) : items_(first), rested_(rested) {
    assert(first > 0);
  }
  // 0: all are in use.
  [[nodiscard]] std::uint32_t reserve() {
    if (free_.size() > rested_) {
      const std::uint32_t number = free_.front();
      free_.pop_front();
      return number;
    }
    if (items_.size() > kLargest) return 0;
    items_.emplace_back();
    return static_cast<std::uint32_t>(items_.size() - 1);
  }
  void release(std::uint32_t number) {
    assert(number > 0 && number < items_.size());
    free_.push_back(number);
  }
  [[nodiscard]] T& operator[](std::uint32_t number) noexcept {
    assert(number < items_.size());
    return items_[number];
  }
  // The entry of any number; null: there is no such one.
  [[nodiscard]] const T* entry(std::uint32_t number) const noexcept {
    return number < items_.size() ? &items_[number] : nullptr;
  }
  // Of a table of pointers: the object, null: there is none.
  [[nodiscard]] T find(std::uint32_t number) const noexcept {
    return number < items_.size() ? items_[number] : T{};
  }
  [[nodiscard]] auto begin() const noexcept { return items_.begin(); }
  [[nodiscard]] auto end() const noexcept { return items_.end(); }

 private:
  static constexpr std::size_t kLargest = 0xffffff;
  std::vector<T> items_;
  std::size_t rested_;
  Fifo<std::uint32_t> free_;
};

}  // namespace turnout::hca
