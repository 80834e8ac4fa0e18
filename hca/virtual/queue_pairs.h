// SPDX-License-Identifier: BSD-3-Clause
// QueuePairs: creation, modification, queries and destruction of queue pairs.
//
// A queue pair is its program's until destroy(). Each call takes the time that the profile says.
// Errors: null and errno, or an errno value. One thread.
#pragma once

#include "hca/virtual/requester.h"
#include "hca/virtual/xrc.h"

namespace turnout::hca {

class QueuePairs : EngineParts {
 public:
  explicit QueuePairs(const EngineParts& parts) : EngineParts(parts) {}

  // dc: null for a kind of InfiniBand's own. asked.cap becomes what was given.
  [[nodiscard]] Qp* create(Context& context, ibv_qp_init_attr_ex& asked,
                           const mlx5dv_qp_init_attr* dc);
  [[nodiscard]] int modify(Qp& qp, const ibv_qp_attr& attr, int mask);
  [[nodiscard]] static int query(Qp& qp, ibv_qp_attr& attr, ibv_qp_init_attr& init);
  [[nodiscard]] int destroy(Qp& qp);

 private:
  std::uint32_t connections_ = 0;  // made so far
};

}  // namespace turnout::hca
