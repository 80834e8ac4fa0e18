// SPDX-License-Identifier: BSD-3-Clause
// The seam between the exported functions and the engines: hca/abi calls what hca/engines defines,
// where the engine of a context is chosen. A C library has no main() that could hand one in.
//
// Any thread, except under the virtual clock, where one thread does everything.
#pragma once

#include <string>

#include "base/status.h"
#include "hca/device/objects.h"

namespace turnout::hca {

// Does a simulation's world (hca/virtual/world.h) serve the contexts that are opened now?
[[nodiscard]] bool has_virtual_clock() noexcept;

// Gives a fresh context its engine: sets objects, data_path, virtual_clock and what else of the
// context is the engine's. ObjectVerbs::close() ends it. fabric: empty for that of the settings.
// Returns the name of the fabric, empty under the virtual clock. Errors: those of Fabric::open and
// of the settings; the context is unchanged then.
[[nodiscard]] Result<std::string> open_adapter(Context& context, const std::string& fabric);

}  // namespace turnout::hca
