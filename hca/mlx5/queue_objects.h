// SPDX-License-Identifier: BSD-3-Clause
// The queues of one command file, each with what its program calls it: made by queue_maker.h, kept
// by the command or the firmware's object (devx_commands.h) that asked for it.
//
// The lock of the command file guards them, except what QueueTold says of itself.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

#include "hca/mlx5/doorbells.h"
#include "hca/mlx5/send_queue.h"

namespace turnout::hca {

// What its program calls an object, and how many of its events it has read. The context pointer of
// the engine's object: once that has ended no event is counted any more.
struct QueueTold {
  explicit QueueTold(std::uint64_t handle) noexcept : user_handle(handle) {}
  std::uint64_t user_handle;
  std::atomic<std::uint32_t> completions{0}, events{0};
};

struct CqObject {
  explicit CqObject(std::uint64_t handle) noexcept : told(handle) {}
  QueueTold told;
  Cq* cq = nullptr;
  Mlx5Cq doorbell;
};

struct SrqObject {
  explicit SrqObject(std::uint64_t handle) noexcept : told(handle) {}
  QueueTold told;
  Srq* srq = nullptr;
};

struct QpObject {
  explicit QpObject(std::uint64_t handle) noexcept : told(handle) {}
  QueueTold told;
  Qp* qp = nullptr;
  std::optional<Mlx5SendQueue> queue;
  struct {
    std::uint32_t entries = 0, max_sge = 0;
  } receives;  // as they lie in the program's memory
};

}  // namespace turnout::hca
