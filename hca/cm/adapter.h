// SPDX-License-Identifier: BSD-3-Clause
// The adapter that identifiers are bound to, opened once per process, with the default protection
// domain and XRC domain of rdma_create_qp(3).
//
// Public verbs only: the first device of libibverbs.so.1. Open until the process ends, as in
// rdma_get_devices(3). All calls under state_lock().
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

namespace turnout::cm {

inline constexpr std::uint8_t kPort = 1;
// IBTA 9.7.6.1.3, exponents of 4.096 us: the subnet's packet life time, here an SA's answer, and
// the local ACK timeout that the IB CM derives from it (a round trip, and no delay in the adapter).
inline constexpr std::uint8_t kPacketLifeTime = 16;
inline constexpr std::uint8_t kAckTimeout = kPacketLifeTime + 1;

struct Adapter {
  ibv_context* verbs = nullptr;
  ibv_pd* pd = nullptr;      // made by default_pd()
  ibv_xrcd* xrcd = nullptr;  // made by default_xrcd()
  ibv_gid gid{};
  __be16 pkey = 0;
  std::uint16_t lid = 0;
  ibv_mtu mtu = IBV_MTU_256;
  std::uint8_t max_responder_resources = 0, max_initiator_depth = 0;
};

// Null and errno when there is none: ENODEV, or what ibv_open_device says.
[[nodiscard]] Adapter* adapter();
[[nodiscard]] ibv_pd* default_pd(Adapter& adapter);
[[nodiscard]] ibv_xrcd* default_xrcd(Adapter& adapter);

}  // namespace turnout::cm
