// BufferPool: equally sized registered buffers, handed out and taken back in O(1).
//
// One registered allocation, made at once and accounted by the owner; never grows. Buffers are
// named by index. One thread.
#pragma once

#include <cstdint>
#include <vector>

#include "core/verbs/registered_memory.h"

namespace turnout {

inline constexpr std::uint32_t kNoBuffer = 0xffffffffu;

class BufferPool {
 public:
  BufferPool() = default;
  [[nodiscard]] static Result<BufferPool> create(const verbs::Device& device, std::uint32_t count,
                                                 std::uint32_t size) {
    auto memory =
        verbs::RegisteredMemory::create(device, std::size_t{count} * size, IBV_ACCESS_LOCAL_WRITE);
    if (!memory) return memory.status();
    BufferPool pool;
    pool.memory_ = std::move(memory).value();
    pool.size_ = size;
    pool.free_.reserve(count);
    for (std::uint32_t i = count; i-- > 0;) pool.free_.push_back(i);
    return pool;
  }

  [[nodiscard]] std::uint32_t take() noexcept {
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
  [[nodiscard]] std::size_t available() const noexcept { return free_.size(); }
  [[nodiscard]] std::uint32_t lkey() const noexcept { return memory_.lkey(); }

 private:
  verbs::RegisteredMemory memory_;
  std::vector<std::uint32_t> free_;
  std::uint32_t size_ = 0;
};

}  // namespace turnout
