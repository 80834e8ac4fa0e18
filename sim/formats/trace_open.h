// SPDX-License-Identifier: BSD-3-Clause
// Opens a trace of any format, chosen by the path: a folder of recordings, an OTF2 archive
// (*.otf2), a GOAL schedule (*.goal), otherwise a trace.
//
// Errors: those of the reader. Any thread.
#pragma once

#include <string>

#include "sim/formats/trace.h"

namespace turnout::sim {

[[nodiscard]] Result<Trace> open_trace(const std::string& path);

}  // namespace turnout::sim
