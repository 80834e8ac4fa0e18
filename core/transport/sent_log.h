// SPDX-License-Identifier: BSD-3-Clause
// SentLog: the bytes of inline messages whose delivery a queue pair has not confirmed.
//
// The adapter copies the bytes of such a message with its request, so there is no other copy; when
// the queue pair fails they are sent again from here (channels/connection_recovery.cpp). A FIFO in
// one block that doubles as it fills, accounted as send buffers; if the budget has no room,
// messages use send buffers instead. Owner: its queue pair, then the recovery; one thread.
#pragma once

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <utility>

#include "core/memory/account.h"

namespace turnout {

class SentLog {
 public:
  explicit SentLog(MemoryAccount& account) noexcept : account_(&account) {}
  SentLog(SentLog&& other) noexcept
      : account_(other.account_),
        block_(std::move(other.block_)),
        capacity_(std::exchange(other.capacity_, 0)),
        head_(std::exchange(other.head_, 0)),
        tail_(std::exchange(other.tail_, 0)) {}
  SentLog& operator=(SentLog&&) = delete;
  ~SentLog() { clear(); }

  // Whether so many bytes more can be kept.
  [[nodiscard]] bool has_room(std::size_t bytes) noexcept {
    return bytes <= capacity_ - (tail_ - head_) || grow(bytes);
  }
  // Where append() puts the next ones, for who writes them there before; null: in two pieces.
  // has_room().
  [[nodiscard]] std::byte* place_of_next(std::size_t bytes) const noexcept {
    const std::size_t at = tail_ & (capacity_ - 1);
    return bytes <= capacity_ - at ? block_.get() + at : nullptr;
  }
  // Returns where they are; has_room().
  std::uint64_t append(const std::byte* bytes, std::size_t count) noexcept {
    const std::uint64_t position = tail_;
    assert(!has(bytes) || bytes == place_of_next(count));
    if (!has(bytes)) put(position, bytes, count);
    tail_ += count;
    return position;
  }
  void copy_out(std::uint64_t position, std::size_t bytes, std::byte* to) const noexcept {
    if (bytes == 0) return;
    const std::size_t at = position & (capacity_ - 1);
    const std::size_t first = std::min(bytes, capacity_ - at);
    std::memcpy(to, block_.get() + at, first);
    std::memcpy(to + first, block_.get(), bytes - first);
  }
  // The oldest are needed no more.
  void pop(std::size_t bytes) noexcept { head_ += bytes; }
  // Gives its block back to the budget.
  void clear() noexcept {
    if (capacity_ > 0) account_->release(MemoryKind::send_buffers, capacity_);
    block_.reset();
    capacity_ = 0;
    head_ = tail_ = 0;
  }
  [[nodiscard]] std::size_t capacity() const noexcept { return capacity_; }

 private:
  // They were written to place_of_next().
  [[nodiscard]] bool has(const std::byte* bytes) const noexcept {
    return reinterpret_cast<std::uintptr_t>(bytes) -
               reinterpret_cast<std::uintptr_t>(block_.get()) <
           capacity_;
  }
  static constexpr std::size_t kFirstCapacity = 1024;
  // Left to operations and messages nobody waits for, as of all that channels take.
  static constexpr std::uint64_t kSpareShare = 8;

  [[nodiscard]] bool grow(std::size_t bytes) noexcept {
    const std::size_t capacity = std::max(kFirstCapacity, std::bit_ceil(tail_ - head_ + bytes));
    // Both blocks exist while one is copied to the other.
    if (!account_->reserve(MemoryKind::send_buffers, capacity, account_->budget() / kSpareShare)) {
      return false;
    }
    std::unique_ptr<std::byte[]> block(new (std::nothrow) std::byte[capacity]);
    if (!block) {
      account_->release(MemoryKind::send_buffers, capacity);
      return false;
    }
    // Positions stay what they are: each byte moves to where its position is in the new block.
    const std::size_t kept = tail_ - head_;
    if (kept > 0) {
      const std::size_t at = head_ & (capacity - 1);
      const std::size_t first = std::min(kept, capacity - at);
      copy_out(head_, first, block.get() + at);
      if (kept > first) copy_out(head_ + first, kept - first, block.get());
    }
    if (capacity_ > 0) account_->release(MemoryKind::send_buffers, capacity_);
    block_ = std::move(block);
    capacity_ = capacity;
    return true;
  }
  void put(std::uint64_t position, const std::byte* bytes, std::size_t count) noexcept {
    if (count == 0) return;  // there may be no block
    const std::size_t at = position & (capacity_ - 1);
    const std::size_t first = std::min(count, capacity_ - at);
    std::memcpy(block_.get() + at, bytes, first);
    std::memcpy(block_.get(), bytes + first, count - first);
  }

  MemoryAccount* account_;
  std::unique_ptr<std::byte[]> block_;
  std::size_t capacity_ = 0;  // 0 or a power of two
  std::uint64_t head_ = 0, tail_ = 0;
};

}  // namespace turnout
