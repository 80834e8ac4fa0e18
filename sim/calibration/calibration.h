// SPDX-License-Identifier: BSD-3-Clause
// `turnout calibrate --profile`: the micro-benchmarks of core/selection/calibration.h as programs
// on a modelled adapter, in virtual time. The result is what a user of that device would measure,
// not the profile's values.
//
// Deterministic: equal profiles and seeds give equal files. One thread. Errors: those of
// sim::run(), with the name of the benchmark; internal if a benchmark's messages used a wrong
// channel.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/status.h"
#include "core/selection/calibration.h"
#include "sim/formats/profile_file.h"
#include "sim/study/study.h"

namespace turnout::sim {

struct CalibrationOptions {
  ProfileFile profile;
  std::uint64_t seed = 1;
  bool datagrams = false;  // as if the device had no DC: UD in its place
  std::uint32_t rounds = 9;
  std::uint32_t most_queue_pairs = 16384;                      // of the context cache's benchmark
  std::function<void(const std::string& benchmark)> progress;  // may be empty
};

// The costs with device and provenance.
[[nodiscard]] Result<selection::CostsFile> calibrate(const CalibrationOptions& options,
                                                     const Runner& runner);

}  // namespace turnout::sim
