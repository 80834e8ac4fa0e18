// SPDX-License-Identifier: BSD-3-Clause
// How many operations of the program an endpoint takes before it answers `again`, as far as its
// budget tells: what is promised whatever else takes memory, which fi_getinfo tells as the size of
// a context, and how many may wait at most. Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>

namespace turnout {

struct OperationLimits {
  std::size_t promised;  // of each direction
  std::size_t waiting;   // sends, and as many atomic operations
};

// Promised are `wanted`, or kContextSize if it is 0, as far as a sixteenth of the budget (bytes)
// holds them; it leaves as much again of the eighth that rings and queue pairs leave to operations
// and unexpected messages. What waits may take a quarter of the budget: else one peer that does not
// receive would leave nothing to the channels of the others.
[[nodiscard]] OperationLimits operation_limits(std::uint64_t budget,
                                               std::size_t wanted = 0) noexcept;

// What libfabric 1.17's providers shm and udp tell (fi_info -v); tcp tells 256.
inline constexpr std::size_t kContextSize = 1024;

}  // namespace turnout
