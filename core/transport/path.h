// SPDX-License-Identifier: BSD-3-Clause
// What all connections of this process share: the path through the device's port, the RNR timer,
// and how a queue pair changes its state. Any thread.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <string>

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

// A state, and which attributes the way to it takes besides (ibv_modify_qp(3)).
struct QpStep {
  ibv_qp_state state;
  int mask;
};

// Takes these steps; `attr` has the attributes of all. `object`: the queue pair, for the error.
[[nodiscard]] inline Status modify_qp(ibv_qp* qp, ibv_qp_attr attr, const char* object,
                                      std::initializer_list<QpStep> steps) {
  constexpr const char* kStates[] = {"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"};
  for (const auto& [state, mask] : steps) {
    attr.qp_state = state;
    if (const int error = ibv_modify_qp(qp, &attr, IBV_QP_STATE | mask); error != 0) {
      return verbs::failure((std::string("ibv_modify_qp to ") + kStates[state]).c_str(), object,
                            error);
    }
  }
  return {};
}

}  // namespace turnout
