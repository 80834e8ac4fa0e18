// SPDX-License-Identifier: BSD-3-Clause
// The choice of the engine: the virtual clock's while a world exists, else the live one.
#include "hca/device/open_adapter.h"

#include "hca/device/export.h"
#include "hca/live/engine.h"
#include "hca/virtual/engine.h"

namespace turnout::hca {

bool has_virtual_clock() noexcept {
  return VirtualEngine::present() != nullptr;
}

Result<std::string> open_adapter(Context& context, const std::string& fabric) {
  if (VirtualEngine* world = VirtualEngine::present(); world != nullptr) {
    world->open(context);
    return std::string();
  }
  auto engine = LiveEngine::open(context, fabric);
  if (!engine) return engine.status();
  return engine.value()->fabric_name();
}

}  // namespace turnout::hca

// See hca/virtual/world.h.
TURNOUT_EXPORT turnout::hca::World* turnout_create_world(
    const turnout::hca::WorldOptions& options) {
  return new turnout::hca::VirtualEngine(options);
}
