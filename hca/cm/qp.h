// SPDX-License-Identifier: BSD-3-Clause
// Queue pairs of identifiers: the attributes a connection gives them, and their transitions.
// rdma_create_qp(3), rdma_init_qp_attr(3); required attributes: IBTA table 91 (11.2.5.2).
//
// All under state_lock(); errors are errno values.
#pragma once

#include "hca/cm/identifier.h"

namespace turnout::cm {

// Fills `attr` and `mask` for attr.qp_state. EINVAL for a state the connection is not ready for.
[[nodiscard]] int attributes(const Id& id, ibv_qp_attr& attr, int& mask);

// The identifier's queue pair, if it has one: a new one made ready to receive (UD: to send); one
// made able to send and receive once both ends are known; one ended.
[[nodiscard]] int prepare_qp(Id& id, ibv_qp* qp);
[[nodiscard]] int connect_qp(Id& id);
[[nodiscard]] int fail_qp(Id& id);

}  // namespace turnout::cm
