// Control messages that no endpoint of ours would send, for tests of what their receiver makes of
// them.
#pragma once

#include "core/endpoint_core.h"
#include "tests/core/test_world.h"

namespace turnout {

struct ForgedMessages {
  static void send(TestWorld& world, std::size_t from, std::size_t to,
                   const wire::ControlMessage& message) {
    auto& core = static_cast<EndpointCore&>(world[from]);
    core.send_control(*core.find_peer(world.peer(from, to)), EndpointCore::Purpose::establishment,
                      message);
  }
};

}  // namespace turnout
