// SPDX-License-Identifier: BSD-3-Clause
// Makes the world of a simulation: loads the virtual adapter's library and starts its virtual
// clock.
//
// One world at a time in a process; one thread. Errors: no_device (the library is not found),
// version (it has no virtual clock), invalid (a setting of the environment).
#pragma once

#include <memory>

#include "base/settings.h"
#include "base/status.h"
#include "hca/virtual/world.h"

namespace turnout::sim {

// Defaults with the virtual adapter as the device. Of the environment only the folder of the
// adapter's library counts: it follows from the installation, not from the experiment.
[[nodiscard]] Result<Settings> virtual_settings();

[[nodiscard]] Result<std::unique_ptr<hca::World>> create_world(const hca::WorldOptions& options,
                                                               const Settings& settings);

}  // namespace turnout::sim
