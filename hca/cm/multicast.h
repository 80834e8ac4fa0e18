// SPDX-License-Identifier: BSD-3-Clause
// Multicast groups: the MGID of an IP address, and joining. RFC 4391 4 (IPoIB),
// rdma_join_multicast(3).
//
// There is no subnet administrator: a group exists while it has members, and its LID is computed
// from its GID, identically in every process. All under state_lock().
#pragma once

#include "hca/cm/identifier.h"

namespace turnout::cm {

inline constexpr std::uint32_t kMulticastQpn = 0xffffff;
inline constexpr std::uint32_t kIpoibQkey = 0x0b1b;  // RFC 4391 leaves it to the group; opensm's

// Of datagram services in this port space.
[[nodiscard]] std::uint32_t qkey_of(rdma_port_space ps);
[[nodiscard]] ibv_gid group_gid(const Address& address, rdma_port_space ps);
[[nodiscard]] std::uint16_t group_lid(const ibv_gid& gid);

// The user is given the event of a join: attaches the queue pair, else makes it an error.
void deliver_join(Event& event);
// Leaves a group once its events are acknowledged: `lock` is released meanwhile. 0 or errno.
[[nodiscard]] int leave(Id& id, const Address& address, std::unique_lock<std::mutex>& lock);
// Takes the queue pair out of all groups; events the user has still refer to them.
void leave_all(Id& id);

}  // namespace turnout::cm
