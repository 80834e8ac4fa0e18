// SPDX-License-Identifier: BSD-3-Clause
// What the endpoints of a TestWorld tell of their connections.
#pragma once

#include <cstddef>

#include "core/report/report.h"
#include "tests/support/test_world.h"

namespace turnout {

// Of all endpoints together.
[[nodiscard]] inline ConnectionsReport connections(TestWorld& world) {
  ConnectionsReport all;
  for (std::size_t i = 0; i < world.size(); ++i) all.add(world[i].report().connections);
  return all;
}

// The channel that the pair's direction to `at` takes now.
[[nodiscard]] inline ChannelKind channel(TestWorld& world, std::size_t at, std::size_t from) {
  const PeerId id = world.peer(at, from);
  return world[at].report().peers[id].receive.spans.back().channel;
}

}  // namespace turnout
