// SPDX-License-Identifier: BSD-3-Clause
// A port's state in words.
#pragma once

#include <infiniband/verbs.h>

#include <string_view>

namespace turnout::cli {

constexpr std::string_view port_state(ibv_port_state state) {
  switch (state) {
    case IBV_PORT_DOWN:
      return "down";
    case IBV_PORT_INIT:
      return "initializing";
    case IBV_PORT_ARMED:
      return "armed";
    case IBV_PORT_ACTIVE:
      return "active";
    case IBV_PORT_ACTIVE_DEFER:
      return "active, deferred";
    default:
      return "in an unknown state";
  }
}

}  // namespace turnout::cli
