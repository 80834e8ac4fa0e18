// SPDX-License-Identifier: BSD-3-Clause
// LiveSrqs: shared receive queues, basic and XRC.
//
// A queue is its program's until destroy(). Errors: null and errno, or an errno value. Any thread.
#pragma once

#include "hca/live/hazards.h"
#include "hca/live/receives.h"

namespace turnout::hca {

class LiveSrqs {
 public:
  LiveSrqs(Fabric& fabric, LocalObjects& objects, LiveEvents& events, Hazards& hazards,
           LiveReceives& receives)
      : fabric_(fabric),
        objects_(objects),
        events_(events),
        hazards_(hazards),
        receives_(receives) {}

  // xrcd, cq: both or neither.
  [[nodiscard]] Srq* create(Pd& pd, ibv_srq_init_attr& attr, Xrcd* xrcd, Cq* cq);
  [[nodiscard]] int modify(Srq& srq, const ibv_srq_attr& attr, int mask);
  [[nodiscard]] int query(Srq& srq, ibv_srq_attr& attr);
  [[nodiscard]] int destroy(Srq& srq);

 private:
  Fabric& fabric_;
  LocalObjects& objects_;
  LiveEvents& events_;
  Hazards& hazards_;
  LiveReceives& receives_;
};

}  // namespace turnout::hca
