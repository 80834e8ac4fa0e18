// SPDX-License-Identifier: BSD-3-Clause
// SentLog: the bytes of inline messages whose delivery a queue pair has not confirmed.
//
// The adapter copies the bytes of such a message with its request, so there is no other copy; when
// the queue pair fails they are sent again from here (channels/connection_recovery.cpp). A FIFO in
// one block that doubles as it fills, accounted as send buffers; if the budget has no room,
// messages use send buffers instead. Owner: its queue pair, then the recovery; one thread.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "core/memory/account.h"

namespace turnout {

class SentLog {
 public:
  explicit SentLog(MemoryAccount& account) noexcept : account_(&account) {}
  SentLog(SentLog&& other) noexcept;
  SentLog& operator=(SentLog&&) = delete;
  ~SentLog() { clear(); }

  // Whether so many bytes more can be kept.
  [[nodiscard]] bool has_room(std::size_t bytes) noexcept {
    return bytes <= capacity_ - (tail_ - head_) || grow(bytes);
  }
  // Returns where they are; has_room().
  std::uint64_t append(const ibv_sge* sges, int count) noexcept;
  void copy_out(std::uint64_t position, std::size_t bytes, std::byte* to) const noexcept;
  // The oldest are needed no more.
  void pop(std::size_t bytes) noexcept { head_ += bytes; }
  // Gives its block back to the budget.
  void clear() noexcept;
  [[nodiscard]] std::size_t capacity() const noexcept { return capacity_; }

 private:
  [[nodiscard]] bool grow(std::size_t bytes) noexcept;
  void put(std::uint64_t position, const std::byte* bytes, std::size_t count) noexcept;

  MemoryAccount* account_;
  std::unique_ptr<std::byte[]> block_;
  std::size_t capacity_ = 0;  // 0 or a power of two
  std::uint64_t head_ = 0, tail_ = 0;
};

}  // namespace turnout
