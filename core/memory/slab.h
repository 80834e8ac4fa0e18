// Slab: fixed-size records from blocks that are accounted when they are allocated and kept until
// the slab ends. take() is O(1) and allocates only when a block is used up; it answers null when
// the budget refuses. `beside` are the bytes each record takes in tables of its owner. One thread.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "core/memory/account.h"

namespace turnout {

template <class T>
class Slab {
 public:
  Slab(MemoryAccount& account, MemoryKind kind, std::size_t beside = 0) noexcept
      : account_(account), kind_(kind), beside_(beside) {}
  Slab(const Slab&) = delete;
  Slab& operator=(const Slab&) = delete;

  // The next take() succeeds.
  [[nodiscard]] bool ready() { return !free_.empty() || grow(); }
  [[nodiscard]] T* take() {
    if (!ready()) return nullptr;
    T* const item = free_.back();
    free_.pop_back();
    ++in_use_;
    return item;
  }
  void give_back(T* item) {
    *item = T();  // what it owned (regions, copies) is freed now, not at reuse
    free_.push_back(item);
    --in_use_;
  }
  [[nodiscard]] std::size_t in_use() const noexcept { return in_use_; }

 private:
  // The first block is small: most endpoints of a large job have little under way.
  static constexpr std::size_t kFirst = 8, kMost = 64;
  bool grow() {
    const std::size_t count = blocks_.empty() ? kFirst : std::min(kMost, total_);
    Reservation reservation =
        Reservation::take(account_, kind_, count * (sizeof(T) + sizeof(T*) + beside_), 0, count);
    if (!reservation) return false;
    blocks_.push_back(std::make_unique<T[]>(count));
    reservations_.push_back(std::move(reservation));
    total_ += count;
    free_.reserve(total_);
    for (std::size_t i = count; i-- > 0;) free_.push_back(&blocks_.back()[i]);
    return true;
  }
  MemoryAccount& account_;
  MemoryKind kind_;
  std::size_t beside_;
  std::vector<std::unique_ptr<T[]>> blocks_;
  std::vector<Reservation> reservations_;
  std::vector<T*> free_;
  std::size_t in_use_ = 0;
  std::size_t total_ = 0;
};

}  // namespace turnout
