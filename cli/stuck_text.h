// SPDX-License-Identifier: BSD-3-Clause
// What `turnout stuck` prints of a job: for people, why it hangs, in one screen; and as JSON, all.
//
// Pure functions, any thread. What reports say becomes printable ASCII.
#pragma once

#include <span>
#include <string>

#include "cli/stuck_model.h"

namespace turnout::cli {

// Cycles first, then who is waited for, then the other waits, the oldest first, as far as there is
// room. At most kStuckLines lines of at most kStuckColumns columns.
inline constexpr std::size_t kStuckLines = 40, kStuckColumns = 110;
[[nodiscard]] std::string stuck_text(const StuckJob& job, double least);
[[nodiscard]] std::string stuck_json(std::span<const StuckJob> jobs);

}  // namespace turnout::cli
