// SPDX-License-Identifier: BSD-3-Clause
// LiveQueuePairs: creation, modification, queries and destruction of queue pairs.
//
// A queue pair is its program's until destroy(). Errors: null and errno, or an errno value. Any
// thread; takes sq_lock.
#pragma once

#include "hca/live/send_queues.h"
#include "hca/live/xrc.h"

namespace turnout::hca {

class LiveQueuePairs {
 public:
  LiveQueuePairs(Fabric& fabric, LocalObjects& objects, LiveEvents& events, Hazards& hazards,
                 LiveCompletions& completions, LiveReceives& receives, LiveSendQueues& send_queues,
                 LiveXrc& xrc, QpNumbers& numbers)
      : fabric_(fabric),
        objects_(objects),
        events_(events),
        hazards_(hazards),
        completions_(completions),
        receives_(receives),
        send_queues_(send_queues),
        xrc_(xrc),
        numbers_(numbers) {}

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

  Fabric& fabric_;
  LocalObjects& objects_;
  LiveEvents& events_;
  Hazards& hazards_;
  LiveCompletions& completions_;
  LiveReceives& receives_;
  LiveSendQueues& send_queues_;
  LiveXrc& xrc_;
  QpNumbers& numbers_;
};

}  // namespace turnout::hca
