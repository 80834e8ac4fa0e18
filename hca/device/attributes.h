// SPDX-License-Identifier: BSD-3-Clause
// What the device and its port say about themselves (ibv_query_device(3), ibv_query_port(3)).
//
// Pure functions of a context and of the process's identity. Any thread.
#pragma once

#include <infiniband/verbs.h>

#include "hca/device/objects.h"

namespace turnout::hca {

inline constexpr int kGids = 8;                 // of the port's table; the first is there
inline constexpr __be16 kDefaultPkey = 0xffff;  // IBTA 10.9.2: default partition, full member

// The port's GUID, host order: the same for all processes of one user on one host and fabric only.
[[nodiscard]] std::uint64_t port_guid();
// Of the node's adapter, network order: nodes of one world are one device to its processes.
[[nodiscard]] std::uint64_t node_guid(const Context& context) noexcept;
[[nodiscard]] ibv_device_attr device_attributes(const Context& context) noexcept;
[[nodiscard]] ibv_device_attr_ex extended_attributes(const Context& context) noexcept;
[[nodiscard]] ibv_port_attr port_attributes(const Context& context) noexcept;

}  // namespace turnout::hca
