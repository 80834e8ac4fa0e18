// SPDX-License-Identifier: BSD-3-Clause
// Mlx5SendQueue: a queue pair's requests in the program's memory, and how far they were taken.
//
// The doorbell record counts the blocks that the program has posted, so a doorbell tells only that
// it is worth looking. The memory is the program's until the queue pair ends; what lies there may
// be anything. Takes the queue pair's sq_lock. Any thread.
#pragma once

#include <atomic>
#include <cstdint>

#include "hca/device/mlx5_format.h"

namespace turnout::hca {

class Mlx5SendQueue {
 public:
  struct Place {
    std::uint64_t buffer = 0;    // 0: it has no send queue (a DCT, an XRC target)
    std::uint32_t blocks = 0;    // power of two
    std::uint64_t doorbell = 0;  // of the queue pair: the second word is the send queue's
    std::uint32_t user_index = 0;
  };
  Mlx5SendQueue(Qp& qp, const Place& place) noexcept : qp_(qp), place_(place) {}

  // Executes what was posted and not yet taken; nothing before the queue pair may send.
  void run() noexcept;
  // It is in RESET, where the program counts from 0 again.
  void restart() noexcept;
  [[nodiscard]] Qp& qp() const noexcept { return qp_; }
  [[nodiscard]] const Place& place() const noexcept { return place_; }

 private:
  Qp& qp_;
  Place place_;
  std::uint16_t taken_ = 0;  // blocks; under sq_lock
};

}  // namespace turnout::hca
