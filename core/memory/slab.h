// SPDX-License-Identifier: BSD-3-Clause
// Slab: fixed-size records in blocks that are accounted when allocated and kept until the slab
// ends. take() is O(1) and allocates only when a block is full; it returns null if the budget
// refuses. A number of records can be guaranteed: the budget never refuses these, and they take no
// memory before use. `beside` is the size of each record's entries in tables of the owner. A record
// that is given back is a new one, or what its reset() makes of it. One thread.
#pragma once

#include <algorithm>
#include <cassert>
#include <memory>
#include <type_traits>
#include <vector>

#include "core/memory/account.h"

namespace turnout {

template <class T>
class Slab {
 public:
  Slab(MemoryAccount& account, MemoryKind kind, std::size_t beside = 0) noexcept
      : account_(account), kind_(kind), beside_(beside) {}
  ~Slab() { account_.release(kind_, total_ * each(), total_); }
  Slab(const Slab&) = delete;
  Slab& operator=(const Slab&) = delete;

  // So many records in all are never refused. False: the budget has no room for them. Once, before
  // the first is taken.
  [[nodiscard]] bool promise(std::size_t count) noexcept {
    assert(total_ == 0 && promised_ == 0);
    if (!account_.promise(count * each())) return false;
    promised_ = count;
    return true;
  }
  // Of the first block.
  [[nodiscard]] std::size_t first_bytes() const noexcept { return kFirst * each(); }
  // The next take() succeeds.
  [[nodiscard]] bool ready() { return free_count_ > 0 || grow(); }
  [[nodiscard]] T* take() {
    if (!ready()) return nullptr;
    return free_[--free_count_];
  }
  void give_back(T* item) {
    // What it owned (regions, copies) is freed now, not at reuse.
    if constexpr (requires { item->reset(); }) {
      item->reset();
    } else {
      static_assert(std::is_nothrow_default_constructible_v<T>);
      std::destroy_at(item);
      std::construct_at(item);
    }
    assert(free_count_ < total_);
    free_[free_count_++] = item;
  }
  [[nodiscard]] std::size_t in_use() const noexcept { return total_ - free_count_; }
  // Calls `call` with every record. One that is not in use is as made.
  template <class Call>
  void for_each(const Call& call) {
    for (const Block& block : blocks_)
      for (std::size_t i = 0; i < block.count; ++i) call(block.records[i]);
  }

 private:
  // The first block is small: most endpoints of a large job have little under way.
  static constexpr std::size_t kFirst = 8, kMost = 64;
  struct Block {
    std::unique_ptr<T[]> records;
    std::size_t count;
  };

  [[nodiscard]] std::size_t each() const noexcept { return sizeof(T) + sizeof(T*) + beside_; }
  bool grow() {
    std::size_t count = blocks_.empty() ? kFirst : std::min(kMost, total_);
    if (promised_ > 0) {
      count = std::min(count, promised_);
      account_.reserve_promised(kind_, count * each(), count);
      promised_ -= count;
    } else {
      while (!account_.reserve(kind_, count * each(), 0, count)) {
        if ((count /= 2) == 0) return false;
      }
    }
    blocks_.push_back({std::make_unique<T[]>(count), count});
    total_ += count;
    free_.resize(total_);
    for (std::size_t i = count; i-- > 0;) free_[free_count_++] = &blocks_.back().records[i];
    return true;
  }
  MemoryAccount& account_;
  MemoryKind kind_;
  std::size_t beside_;
  std::vector<Block> blocks_;
  std::vector<T*> free_;  // room for all; the first `free_count_`
  std::size_t free_count_ = 0;
  std::size_t total_ = 0;
  std::size_t promised_ = 0;
};

}  // namespace turnout
