// SPDX-License-Identifier: BSD-3-Clause
// Opening whatever a trace can come from, told by the path: a folder of recordings, an OTF2 archive
// (*.otf2), a GOAL schedule (*.goal), else a trace.
//
// Errors: those of the reader. Any thread.
#pragma once

#include <string>

#include "sim/trace.h"

namespace turnout::sim {

[[nodiscard]] Result<Trace> open_trace(const std::string& path);

}  // namespace turnout::sim
