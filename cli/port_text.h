// SPDX-License-Identifier: BSD-3-Clause
// A port's state and addresses in words. Pure; any thread.
#pragma once

#include <fmt/format.h>
#include <infiniband/verbs.h>

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace turnout::cli {

[[nodiscard]] inline std::string_view port_state(ibv_port_state state) {
  constexpr std::array<std::string_view, 6> kStates = {
      "in an unknown state", "down", "initializing", "armed", "active", "active, deferred"};
  return static_cast<std::size_t>(state) < kStates.size() ? kStates[state] : kStates[0];
}

// Eight groups of four digits.
[[nodiscard]] inline std::string gid_text(std::span<const std::uint8_t, 16> gid) {
  std::string text;
  for (std::size_t i = 0; i < gid.size(); i += 2) {
    text += fmt::format("{}{:02x}{:02x}", i == 0 ? "" : ":", gid[i], gid[i + 1]);
  }
  return text;
}

}  // namespace turnout::cli
