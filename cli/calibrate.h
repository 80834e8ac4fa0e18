// SPDX-License-Identifier: BSD-3-Clause
// `turnout calibrate`: measures the costs of a device and writes a file for the setting `costs`.
//
// add_calibrate() declares the options; run_calibrate() executes the command and returns the exit
// code: 0, or 1 with the reason on standard error.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

#include "core/selection/calibration.h"

namespace turnout::cli {

struct CalibrateOptions {
  std::string device, profile, default_transport, output;
  std::uint32_t rounds = 9;
  std::uint32_t most_queue_pairs = 16384;
  std::uint64_t seed = 1;
};

CLI::App* add_calibrate(CLI::App& app, CalibrateOptions* options);
int run_calibrate(const CalibrateOptions& options);

// On the adapter of `settings`, with all endpoints in this process. `device` becomes its name.
// Errors: of the endpoints.
[[nodiscard]] Result<selection::Measurements> measure_live(const Settings& settings,
                                                           std::uint32_t rounds,
                                                           std::string* device);

}  // namespace turnout::cli
