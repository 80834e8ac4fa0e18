// SPDX-License-Identifier: BSD-3-Clause
// OneSided: one-sided operations of the caller (fi_read, fi_write): checked, split, and given to
// RDMA, to messages where there is no connection, or carried out at once where the target is this
// process.
//
// The endpoint owns it; the thread that drives the endpoint calls it. Errors: of the request's
// fields, of the budget.
#pragma once

#include "core/operations/atomic_engine.h"

namespace turnout {

class OneSided : Component {
 public:
  OneSided(EndpointState& state, RdmaEngine& rdma, AtomicEngine& atomic_engine)
      : Component(state), rdma_(rdma), atomic_engine_(atomic_engine) {}

  [[nodiscard]] Status rma_now(const RmaRequest& request);

 private:
  [[nodiscard]] Status rma_to_self(const RmaRequest& request, const IoVec& iov);

  RdmaEngine& rdma_;
  AtomicEngine& atomic_engine_;
};

}  // namespace turnout
