// Clock and Processor: how time and the cost of the processor's work reach the messaging core
// (design.md, seam 4). The core never reads a clock, sleeps or spins by itself.
//
// Live: Clock reads CLOCK_MONOTONIC and no Processor is set, which costs one predictable branch. In
// virtual time both are the simulator's. Both outlive the endpoint that was given them; called only
// from the thread that drives the endpoint.
#pragma once

#include <cstdint>

namespace turnout {

using Nanoseconds = std::int64_t;

class Clock {
 public:
  virtual ~Clock() = default;
  [[nodiscard]] virtual Nanoseconds now() noexcept = 0;
};

// What the core's processor does; the amount is bytes for copy, a number of entries otherwise.
enum class Work : std::uint8_t { post, doorbell, poll_cq, poll_ring, copy, match, register_memory };

class Processor {
 public:
  virtual ~Processor() = default;
  virtual void charge(Work work, std::uint64_t amount) noexcept = 0;
};

// CLOCK_MONOTONIC of this machine; any thread.
[[nodiscard]] Clock& live_clock() noexcept;

}  // namespace turnout
