// SPDX-License-Identifier: BSD-3-Clause
// LinkedList: a doubly linked list through the members `next` and `previous` of its elements. O(1)
// everywhere; owns nothing and allocates nothing. An element is in one list at a time. One thread.
#pragma once

#include <cstddef>

namespace turnout {

template <class T>
class LinkedList {
 public:
  void push_back(T* item) noexcept {
    item->previous = last_;
    item->next = nullptr;
    (last_ != nullptr ? last_->next : first_) = item;
    last_ = item;
    ++size_;
  }
  void push_front(T* item) noexcept {
    item->previous = nullptr;
    item->next = first_;
    (first_ != nullptr ? first_->previous : last_) = item;
    first_ = item;
    ++size_;
  }
  void remove(T* item) noexcept {
    (item->previous != nullptr ? item->previous->next : first_) = item->next;
    (item->next != nullptr ? item->next->previous : last_) = item->previous;
    item->previous = item->next = nullptr;
    --size_;
  }
  T* pop_front() noexcept {
    T* const item = first_;
    if (item != nullptr) remove(item);
    return item;
  }
  [[nodiscard]] T* first() const noexcept { return first_; }
  [[nodiscard]] T* last() const noexcept { return last_; }
  [[nodiscard]] bool empty() const noexcept { return first_ == nullptr; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }

 private:
  T* first_ = nullptr;
  T* last_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace turnout
