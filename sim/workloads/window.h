// SPDX-License-Identifier: BSD-3-Clause
// Window: the requests of one rank under way, at most so many, the oldest first.
//
// Owner: a program's coroutine. The caller waits for pop() before it pushes into a full one.
#pragma once

#include <cstddef>
#include <vector>

#include "sim/runtime/rank.h"

namespace turnout::sim {

class Window {
 public:
  explicit Window(std::size_t most) : ring_(most) {}

  [[nodiscard]] bool full() const noexcept { return count_ == ring_.size(); }
  [[nodiscard]] bool empty() const noexcept { return count_ == 0; }
  void push(Request request) noexcept {
    ring_[(first_ + count_) % ring_.size()] = request;
    ++count_;
  }
  [[nodiscard]] Request pop() noexcept {
    const Request oldest = ring_[first_];
    first_ = (first_ + 1) % ring_.size();
    --count_;
    return oldest;
  }

 private:
  std::vector<Request> ring_;
  std::size_t first_ = 0, count_ = 0;
};

}  // namespace turnout::sim
