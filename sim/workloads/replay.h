// SPDX-License-Identifier: BSD-3-Clause
// Replay: the messages of a trace, in each rank's order, with its computing between them.
//
// A receive that named no source takes the message it took when the trace was recorded, so that a
// replay always ends and its counts are the trace's. Messages of a rank to itself do not reach the
// library. Errors: invalid (the ranks are no multiple of the trace's; see check_trace).
#pragma once

#include <memory>

#include "sim/formats/trace.h"
#include "sim/workloads/workload.h"

namespace turnout::sim {

// A trace ready to be played by `ranks` ranks: repeated side by side if they are more, with tags
// that the simulation takes.
[[nodiscard]] Result<std::shared_ptr<const Trace>> prepare_replay(Trace trace, std::uint32_t ranks);
[[nodiscard]] Instance make_replay(std::shared_ptr<const Trace> trace);

}  // namespace turnout::sim
