// SPDX-License-Identifier: BSD-3-Clause
// The claims E1 to E6 [SC'06] beside what the experiment eager measured.
//
// Pure; any thread.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "sim/experiments/claims.h"
#include "sim/experiments/eager_runs.h"

namespace turnout::sim::eager {

using Ratios = std::map<std::string, double>;  // ardma-sr against srq, by program
// What the claims need beside the runs.
struct Measured {
  Ratios paper, source;
  std::vector<double> flood;  // low-watermark events of a process, by kBurstSizes
  double slower = 0;          // E6, picoseconds
};

// `runs` has the designs srq and ardma-srq at least; bytes of a ring.
[[nodiscard]] std::vector<Claim> claims_of(const Runs& runs, const Measured& measured,
                                           double ring_bytes);

}  // namespace turnout::sim::eager
