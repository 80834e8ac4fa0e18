// SPDX-License-Identifier: BSD-3-Clause
// GrowingQueue: a queue in one block that doubles when it is full and never shrinks. An element
// that is taken out stays as it is until its place is used again. O(1); one thread.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <memory>
#include <utility>

namespace turnout {

template <class T>
class GrowingQueue {
 public:
  GrowingQueue() = default;
  // Grows only when it is to hold more than `expected`.
  explicit GrowingQueue(std::size_t expected)
      : capacity_(std::bit_ceil(expected)), items_(std::make_unique<T[]>(capacity_)) {}

  [[nodiscard]] bool empty() const noexcept { return head_ == tail_; }
  [[nodiscard]] std::size_t size() const noexcept { return tail_ - head_; }
  [[nodiscard]] T& operator[](std::size_t i) noexcept { return items_[place_of(head_ + i)]; }
  [[nodiscard]] const T& operator[](std::size_t i) const noexcept {
    return items_[place_of(head_ + i)];
  }
  void push_back(const T& item) { push_back() = item; }
  // A new last element, with what its place held before: all of it is to be written.
  [[nodiscard]] T& push_back() {
    if (size() == capacity_) [[unlikely]]
      grow();
    return items_[place_of(tail_++)];
  }
  void pop_front() noexcept { ++head_; }
  void clear() noexcept { head_ = tail_; }

 private:
  [[nodiscard]] std::size_t place_of(std::size_t position) const noexcept {
    return position & (capacity_ - 1);
  }
  [[gnu::noinline]] void grow() {
    const std::size_t capacity = std::max<std::size_t>(4, capacity_ * 2);
    auto items = std::make_unique<T[]>(capacity);
    for (std::size_t i = 0; i < size(); ++i) items[i] = std::move((*this)[i]);
    tail_ = size();
    head_ = 0;
    items_ = std::move(items);
    capacity_ = capacity;
  }
  std::size_t capacity_ = 0;  // a power of two, or 0
  std::unique_ptr<T[]> items_;
  std::size_t head_ = 0, tail_ = 0;
};

}  // namespace turnout
