// SPDX-License-Identifier: BSD-3-Clause
// Where queues lie, as rdma-core's mlx5 lets people ask for by MLX_CQ_ALLOC_TYPE, MLX_QP_ALLOC_TYPE
// and MLX_SRQ_ALLOC_TYPE (its README). Here they lie in the fabric's shared state, never on huge
// pages: who insists on these (HUGE) gets no queue, all other values change nothing.
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
