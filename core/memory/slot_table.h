// SPDX-License-Identifier: BSD-3-Clause
// SlotTable: maps the numbers that we gave to a peer to objects. A number is slot | generation, so
// a released number is never valid again. Owns nothing; O(1); one thread.
#pragma once

#include <cstdint>
#include <vector>

namespace turnout {

template <class T>
class SlotTable {
 public:
  // Never 0.
  [[nodiscard]] std::uint64_t add(T* item) {
    std::uint32_t slot;
    if (free_.empty()) {
      slot = static_cast<std::uint32_t>(slots_.size());
      slots_.emplace_back();
    } else {
      slot = free_.back();
      free_.pop_back();
    }
    slots_[slot] = {item, generation_};
    return std::uint64_t{generation_++} << 32 | slot;
  }
  [[nodiscard]] T* find(std::uint64_t number) const noexcept {
    const auto slot = static_cast<std::uint32_t>(number);
    return slot < slots_.size() && slots_[slot].generation == number >> 32 ? slots_[slot].item
                                                                           : nullptr;
  }
  // It was added.
  void remove(std::uint64_t number) {
    const auto slot = static_cast<std::uint32_t>(number);
    slots_[slot] = {};
    free_.push_back(slot);
  }
  [[nodiscard]] std::size_t size() const noexcept { return slots_.size(); }
  // By slot, below size(); null: free.
  [[nodiscard]] T* at(std::size_t slot) const noexcept { return slots_[slot].item; }

 private:
  struct Slot {
    T* item = nullptr;
    std::uint32_t generation = 0;
  };
  std::vector<Slot> slots_;
  std::vector<std::uint32_t> free_;
  std::uint32_t generation_ = 1;
};

}  // namespace turnout
