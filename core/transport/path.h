// SPDX-License-Identifier: BSD-3-Clause
// What all connections of this process share: the path through the device's port, and the RNR
// timer. Pure.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>

#include "core/verbs/device.h"

namespace turnout {

// RNR waits: code 1 is 10 us (IBTA 1.2.1 table 45): the shared queue is refilled as soon as the
// target's process makes progress.
inline constexpr std::uint8_t kMinRnrTimer = 1;

inline constexpr std::uint8_t kHopLimit = 64;  // routers on the way, where there are any

[[nodiscard]] inline ibv_ah_attr path_to(const verbs::Device& device, std::uint16_t lid,
                                         const std::array<std::uint8_t, 16>& gid) noexcept {
  ibv_ah_attr path{};
  path.dlid = lid;
  path.port_num = device.port_number();
  if (device.global_addressing()) {
    path.is_global = 1;
    path.grh.hop_limit = kHopLimit;
    path.grh.sgid_index = device.gid_index();
    std::memcpy(path.grh.dgid.raw, gid.data(), gid.size());
  }
  return path;
}

}  // namespace turnout
