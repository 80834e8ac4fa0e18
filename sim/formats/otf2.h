// SPDX-License-Identifier: BSD-3-Clause
// OTF2 archives (Score-P) as traces.
//
// Needs libotf2 (Debian: libotf2-trace-dev) at build time; without it, `unsupported`.
// Point-to-point messages become events, and the time between two MPI regions becomes computation;
// a wait for a nonblocking operation is placed where its completion is recorded. An archive has no
// messages of collective operations: these are left out and counted in Trace::source. Ranks are
// those of MPI_COMM_WORLD; other threads of a rank are left out. One call at a time in a process:
// libotf2 has a single error handler.
#pragma once

#include <string>

#include "base/status.h"
#include "sim/formats/trace.h"

namespace turnout::sim {

// `anchor` is the archive's .otf2 file. Errors: invalid (no archive, no MPI in it, an event out of
// range; names the location), unsupported, system.
[[nodiscard]] Result<Trace> read_otf2_file(const std::string& anchor,
                                           const TraceLimits& limits = {});

}  // namespace turnout::sim
