// SPDX-License-Identifier: BSD-3-Clause
// BufferPool: registered buffers of equal size, taken and returned in O(1).
//
// One registered allocation of fixed size, accounted by the owner. Buffers are named by index. The
// last few can be reserved for operations that must not wait. One thread.
#pragma once

#include <cstdint>
#include <vector>

#include "core/verbs/registered_memory.h"

namespace turnout {

inline constexpr std::uint32_t kNoBuffer = 0xffffffffu;

class BufferPool {
 public:
  BufferPool() = default;
  // `kept` of the `count` are given by take_kept() only.
  [[nodiscard]] static Result<BufferPool> create(const verbs::Device& device, std::uint32_t count,
                                                 std::uint32_t size, std::uint32_t kept = 0) {
    auto memory =
        verbs::RegisteredMemory::create(device, std::size_t{count} * size, IBV_ACCESS_LOCAL_WRITE);
    if (!memory) return memory.status();
    BufferPool pool;
    pool.memory_ = std::move(memory).value();
    pool.size_ = size;
    pool.kept_ = kept;
    pool.free_.reserve(count);
    for (std::uint32_t i = count; i-- > 0;) pool.free_.push_back(i);
    return pool;
  }

  [[nodiscard]] std::uint32_t take() noexcept {
    return free_.size() > kept_ ? take_kept() : kNoBuffer;
  }
  [[nodiscard]] std::uint32_t take_kept() noexcept {
    if (free_.empty()) return kNoBuffer;
    const std::uint32_t index = free_.back();
    free_.pop_back();
    return index;
  }
  void give_back(std::uint32_t index) noexcept { free_.push_back(index); }

  [[nodiscard]] std::byte* data(std::uint32_t index) const noexcept {
    return memory_.data() + std::size_t{index} * size_;
  }
  [[nodiscard]] std::uint32_t size() const noexcept { return size_; }
  [[nodiscard]] std::size_t available() const noexcept {
    return free_.size() > kept_ ? free_.size() - kept_ : 0;
  }
  [[nodiscard]] std::uint32_t lkey() const noexcept { return memory_.lkey(); }

 private:
  verbs::RegisteredMemory memory_;
  std::vector<std::uint32_t> free_;
  std::uint32_t size_ = 0;
  std::uint32_t kept_ = 0;
};

}  // namespace turnout
