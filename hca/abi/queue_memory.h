// SPDX-License-Identifier: BSD-3-Clause
// The location of queues as set by MLX_CQ_ALLOC_TYPE, MLX_QP_ALLOC_TYPE and MLX_SRQ_ALLOC_TYPE of
// rdma-core's mlx5 (its README). Here queues are in the fabric's shared memory, never on huge
// pages: HUGE makes the creation of a queue fail, all other values have no effect.
#pragma once

#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace turnout::hca {

// 0, or ENOMEM.
[[nodiscard]] inline int check_queue_memory(const char* variable) noexcept {
  const char* kind = std::getenv(variable);
  return kind != nullptr && std::strcmp(kind, "HUGE") == 0 ? ENOMEM : 0;
}

}  // namespace turnout::hca
