// SPDX-License-Identifier: BSD-3-Clause
// Fifo: a queue that allocates nothing before its first element and keeps its memory.
//
// A ring that doubles when full, moving the elements. Unlike std::deque it takes 24 bytes while
// empty: there are several per queue pair and millions of queue pairs in a virtual world.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

namespace turnout::hca {

template <class T>
class Fifo {
 public:
  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  // Elements by age, the oldest is 0. Undefined beyond size().
  [[nodiscard]] T& operator[](std::size_t i) noexcept { return items_[(head_ + i) & mask()]; }
  [[nodiscard]] const T& operator[](std::size_t i) const noexcept {
    return items_[(head_ + i) & mask()];
  }
  [[nodiscard]] T& front() noexcept { return (*this)[0]; }
  [[nodiscard]] T& back() noexcept { return (*this)[size_ - 1]; }
  void push_back(T item) {
    if (size_ == capacity_) grow();
    items_[(head_ + size_) & mask()] = std::move(item);
    ++size_;
  }
  void pop_front() noexcept {
    head_ = static_cast<std::uint32_t>((head_ + 1) & mask());
    --size_;
  }
  void clear() noexcept { head_ = size_ = 0; }

 private:
  [[nodiscard]] std::size_t mask() const noexcept { return std::size_t{capacity_} - 1; }
  void grow() {
    const std::uint32_t capacity = capacity_ == 0 ? 4 : capacity_ * 2;
    auto items = std::make_unique<T[]>(capacity);
    for (std::uint32_t i = 0; i < size_; ++i) items[i] = std::move((*this)[i]);
    items_ = std::move(items);
    capacity_ = capacity;
    head_ = 0;
  }
  std::unique_ptr<T[]> items_;
  std::uint32_t head_ = 0, size_ = 0, capacity_ = 0;
};

}  // namespace turnout::hca
