// SPDX-License-Identifier: BSD-3-Clause
// The measurements of `turnout calibrate` on an adapter, with all endpoints in this process.
#pragma once

#include <cstdint>
#include <string>

#include "base/settings.h"
#include "core/selection/calibration.h"

namespace turnout::cli {

// On the adapter of `settings`; `device` becomes its name. One thread. Errors: of the endpoints.
[[nodiscard]] Result<selection::Measurements> measure_live(const Settings& settings,
                                                           std::uint32_t rounds,
                                                           std::string* device);

}  // namespace turnout::cli
