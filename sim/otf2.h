// SPDX-License-Identifier: BSD-3-Clause
// OTF2 archives (Score-P) as traces.
//
// Needs libotf2 (Debian: libotf2-trace-dev) when Turnout is built; a build without it answers
// `unsupported`. Point-to-point messages become events, the time between two regions of MPI
// computing; what waited for a nonblocking operation is a wait where its completion is recorded.
// Collective operations have no messages in an archive: they are left out and counted in
// Trace::source. Ranks are those of MPI_COMM_WORLD, threads beside a rank's own are left out.
// One call at a time in a process: libotf2 has one handler of errors.
#pragma once

#include <string>

#include "base/status.h"
#include "sim/trace.h"

namespace turnout::sim {

// `anchor` is the archive's .otf2 file. Errors: invalid (no archive, no MPI in it, an event out of
// range; names the location), unsupported, system.
[[nodiscard]] Result<Trace> read_otf2_file(const std::string& anchor,
                                           const TraceLimits& limits = {});

}  // namespace turnout::sim
