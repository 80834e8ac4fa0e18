// SPDX-License-Identifier: BSD-3-Clause
// LiveQueuePairs: creation, modification, queries and destruction of queue pairs.
//
// A queue pair is its program's until destroy(). Errors: null and errno, or an errno value. Any
// thread; takes sq_lock.
#pragma once

#include "hca/live/send_queues.h"
#include "hca/live/xrc.h"

namespace turnout::hca {

class LiveQueuePairs : LiveParts {
 public:
  explicit LiveQueuePairs(const LiveParts& parts) : LiveParts(parts) {}

  // dc: null for a kind of InfiniBand's own. attr.cap becomes what was given.
  [[nodiscard]] Qp* create(Context& context, ibv_qp_init_attr_ex& attr,
                           const mlx5dv_qp_init_attr* dc);
  [[nodiscard]] int modify(Qp& qp, const ibv_qp_attr& attr, int mask);
  [[nodiscard]] int query(Qp& qp, ibv_qp_attr& attr, ibv_qp_init_attr& init);
  [[nodiscard]] int destroy(Qp& qp);

 private:
  // Of a kind that is not shared between processes.
  [[nodiscard]] Qp* create_own(Context& context, ibv_qp_init_attr_ex& attr, QpKind kind,
                               const mlx5dv_qp_init_attr* dc);
  // Nobody reaches it any more: waits for those who did, and forgets its requests. With sq_lock.
  // `from`: the phase that it was in.
  void clear(Qp& qp, QpPhase from) noexcept;
};

}  // namespace turnout::hca
