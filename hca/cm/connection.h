// SPDX-License-Identifier: BSD-3-Clause
// The connection protocol: the effect of messages, closed sockets and deadlines on an identifier,
// and the steps of the user's calls. IBTA 12.9; events as in rdma_get_cm_event(3).
//
// connection.cpp handles events from peers, steps.cpp the user's calls. All under state_lock();
// errors are errno values.
#pragma once

#include "hca/cm/identifier.h"

namespace turnout::cm {

// Works off what has arrived for `id`, or the requests at a listener. May free identifiers in
// State::silent, this one included.
void work(Id& id);
// Its deadline has passed. Likewise.
void expire(Id& id);

// The request is ready: sends it, now or when there is a listener with room for it.
[[nodiscard]] int try_connect(Id& id);
[[nodiscard]] int connect(Id& id, const rdma_conn_param* param);
[[nodiscard]] int accept(Id& id, const rdma_conn_param* param);
[[nodiscard]] int reject(Id& id, const void* data, std::uint8_t length, Reason reason);
[[nodiscard]] int establish(Id& id);
[[nodiscard]] int disconnect(Id& id);

}  // namespace turnout::cm
