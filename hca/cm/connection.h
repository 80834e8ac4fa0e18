// SPDX-License-Identifier: BSD-3-Clause
// The connection protocol: the effect of messages, closed sockets and deadlines on an identifier,
// and the steps of the user's calls. IBTA 12.9; events as in rdma_get_cm_event(3).
//
// connection.cpp handles events from peers and what ends a connection, steps.cpp the user's calls.
// All under state_lock(); errors are errno values.
#pragma once

#include <chrono>
#include <cstring>

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

// What both sides of the protocol share.

// A peer may be busy with other things for long; its end is noticed at once by other means.
inline constexpr std::chrono::seconds kPatience{60};

// A message with what every message of this identifier says.
[[nodiscard]] Message message_of(const Id& id, Kind kind, std::uint32_t status = 0);

// Where a queue pair's packets begin to count.
[[nodiscard]] std::uint32_t random_psn();

void close_socket(Id& id);
// Nothing more comes of this connection.
void finish(Id& id);

// Each ends the connection and tells the user.
void report_disconnected(Id& id, int status = 0);
void report_rejected(Id& id, std::uint32_t reason, const Message* message = nullptr);
void report_unreachable(Id& id, int status);

// What the user of the peer gave, in a field of the size that the CM's message has: the rest is
// zero, rdma_get_cm_event(3).
template <class Param>
void fill_private(Event& event, Param& param, const Message& m) {
  const std::uint8_t size = private_limit(m.kind, m.source);
  std::memcpy(event.private_data, m.private_data, m.private_length);
  param.private_data = event.private_data;
  param.private_data_len = size;
}

}  // namespace turnout::cm
