// SPDX-License-Identifier: BSD-3-Clause
// The number of partners of the processes of a run, and the connections they would make under
// limits, as text: `turnout sim --limits`.
//
// Pure; any thread. Means are over processes. See victim_bound.h for the definition of its counts.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "sim/study/study.h"

namespace turnout::sim {

// Of every result of the study that kept its partners (Options::keep_partners).
[[nodiscard]] std::string format_partners(const Study& study,
                                          std::span<const std::uint64_t> limits);

}  // namespace turnout::sim
