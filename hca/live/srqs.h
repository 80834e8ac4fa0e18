// SPDX-License-Identifier: BSD-3-Clause
// LiveSrqs: shared receive queues, basic and XRC.
//
// A queue is its program's until destroy(). Errors: null and errno, or an errno value. Any thread.
#pragma once

#include "hca/live/parts.h"

namespace turnout::hca {

class LiveSrqs : LiveParts {
 public:
  explicit LiveSrqs(const LiveParts& parts) : LiveParts(parts) {}

  // xrcd, cq: both or neither.
  [[nodiscard]] Srq* create(Pd& pd, ibv_srq_init_attr& attr, Xrcd* xrcd, Cq* cq);
  [[nodiscard]] int modify(Srq& srq, const ibv_srq_attr& attr, int mask);
  [[nodiscard]] int query(Srq& srq, ibv_srq_attr& attr);
  [[nodiscard]] int destroy(Srq& srq);
};

}  // namespace turnout::hca
