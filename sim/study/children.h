// SPDX-License-Identifier: BSD-3-Clause
// Work in several processes. The virtual adapter allows one world per process, so parallel runs are
// child processes, one for each; their memory is free again when they end. What they find they
// write to files. The caller has one thread and no world.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>

#include "base/status.h"

namespace turnout::sim {

// Pieces of work that have ended; shared with the children.
using Finished = std::atomic<std::uint32_t>;

// Does work(0) to work(count - 1), so many at a time; one at a time: in this process, in order. No
// piece begins after one that failed. Errors: that of a piece in this process, which says why a
// child's failed before it returns; system; internal (a child failed, or ended early).
[[nodiscard]] Status in_children(
    std::size_t count, std::uint32_t jobs,
    const std::function<Status(std::size_t index, Finished& finished)>& work);

}  // namespace turnout::sim
