// SPDX-License-Identifier: BSD-3-Clause
// GrowingQueue: a queue in one block that doubles when it is full and never shrinks. An element
// that is taken out stays as it is until its place is used again. O(1); one thread.
#pragma once

#include <bit>
#include <cstddef>
#include <utility>
#include <vector>

namespace turnout {

template <class T>
class GrowingQueue {
 public:
  GrowingQueue() = default;
  // Grows only when it is to hold more than `expected`.
  explicit GrowingQueue(std::size_t expected) : items_(std::bit_ceil(expected)) {}

  [[nodiscard]] bool empty() const noexcept { return head_ == tail_; }
  [[nodiscard]] std::size_t size() const noexcept { return tail_ - head_; }
  [[nodiscard]] T& operator[](std::size_t i) noexcept {
    return items_[(head_ + i) & (items_.size() - 1)];
  }
  [[nodiscard]] const T& operator[](std::size_t i) const noexcept {
    return items_[(head_ + i) & (items_.size() - 1)];
  }
  void push_back(const T& item) { push_back() = item; }
  // A new last element, with what its place held before: all of it is to be written.
  [[nodiscard]] T& push_back() {
    if (size() == items_.size()) [[unlikely]]
      grow();
    return items_[tail_++ & (items_.size() - 1)];
  }
  void pop_front() noexcept { ++head_; }
  void clear() noexcept { head_ = tail_; }

 private:
  [[gnu::noinline]] void grow() {
    std::vector<T> items(items_.empty() ? 4 : items_.size() * 2);
    for (std::size_t i = 0; i < size(); ++i) items[i] = (*this)[i];
    tail_ = size();
    head_ = 0;
    items_ = std::move(items);
  }
  std::vector<T> items_;  // as many as a power of two
  std::size_t head_ = 0, tail_ = 0;
};

}  // namespace turnout
