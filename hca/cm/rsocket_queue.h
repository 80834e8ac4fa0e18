// SPDX-License-Identifier: BSD-3-Clause
// The completion queue of an rsocket, with the channel that wakes who waits for it.
//
// Owns both. Under the mutex of its socket. Errors are errno values.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace turnout::cm {

class RsocketQueue {
 public:
  RsocketQueue() = default;
  RsocketQueue(const RsocketQueue&) = delete;
  RsocketQueue& operator=(const RsocketQueue&) = delete;
  ~RsocketQueue();

  [[nodiscard]] int create(ibv_context* context, std::uint32_t entries);
  [[nodiscard]] ibv_cq* verbs() const noexcept { return cq_; }
  // Readable once a completion has come after arm().
  [[nodiscard]] int descriptor() const noexcept { return channel_->fd; }
  [[nodiscard]] bool arm();

 private:
  ibv_comp_channel* channel_ = nullptr;
  ibv_cq* cq_ = nullptr;
  bool armed_ = false;
};

// First in, first out; of a size that is set once.
template <class T>
class Fifo {
 public:
  void set_capacity(std::size_t most) { entries_.resize(most); }
  [[nodiscard]] bool empty() const noexcept { return count_ == 0; }
  [[nodiscard]] bool full() const noexcept { return count_ == entries_.size(); }
  [[nodiscard]] std::size_t size() const noexcept { return count_; }
  void push(T value) noexcept { entries_[(first_ + count_++) % entries_.size()] = value; }
  [[nodiscard]] T pop() noexcept {
    const T value = entries_[first_];
    first_ = (first_ + 1) % entries_.size();
    --count_;
    return value;
  }

 private:
  std::vector<T> entries_;
  std::size_t first_ = 0, count_ = 0;
};

}  // namespace turnout::cm
