// SPDX-License-Identifier: BSD-3-Clause
// How many partners the processes of a run had, and the connections they would make under limits,
// as text for people: `turnout sim --limits`.
//
// Pure; any thread. Means are over processes. What victim_bound.h says of its counts holds here.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "sim/study.h"

namespace turnout::sim {

// Of every result of the study that kept its partners (Options::keep_partners).
[[nodiscard]] std::string format_partners(const Study& study,
                                          std::span<const std::uint64_t> limits);

}  // namespace turnout::sim
