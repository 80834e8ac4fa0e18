// SPDX-License-Identifier: BSD-3-Clause
// LinkedList: a doubly linked list through the members `next` and `previous` of its elements. O(1)
// everywhere; owns nothing and allocates nothing. An element is in one list at a time. One thread.
#pragma once

#include <cstddef>

namespace turnout {

template <class T>
class LinkedList {
 public:
  void push_back(T* item) noexcept { insert(last_, item, nullptr); }
  void push_front(T* item) noexcept { insert(nullptr, item, first_); }
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
  void insert(T* previous, T* item, T* next) noexcept {
    item->previous = previous;
    item->next = next;
    (previous != nullptr ? previous->next : first_) = item;
    (next != nullptr ? next->previous : last_) = item;
    ++size_;
  }
  T* first_ = nullptr;
  T* last_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace turnout
