// SPDX-License-Identifier: BSD-3-Clause
// How many operations an endpoint accepts before it returns `again`, given its budget: a guaranteed
// number, which fi_getinfo reports as the context size, and the maximum that may be queued. Pure;
// any thread.
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
