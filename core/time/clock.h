// SPDX-License-Identifier: BSD-3-Clause
// Clock and Processor: how time, the cost of the processor's work and the size of what the
// adapter's driver allocates reach the messaging core (design.md, seam 4). The core never reads a
// clock, sleeps or spins by itself.
//
// Live: Clock reads CLOCK_MONOTONIC and no Processor is set, which costs one predictable branch. In
// virtual time both are the simulator's. Both outlive the endpoint that was given them; called only
// from the thread that drives the endpoint.
#pragma once

#include <cstdint>

#include "core/types/channel_kind.h"

namespace turnout {

using Nanoseconds = std::int64_t;

class Clock {
 public:
  virtual ~Clock() = default;
  [[nodiscard]] virtual Nanoseconds now() noexcept = 0;
};

// What the core's processor does; the amount is bytes for copy, a number of entries otherwise.
enum class Work : std::uint8_t { post, doorbell, poll_cq, poll_ring, copy, match, register_memory };

// What the adapter's driver allocates. A pool is initiators of one purpose with their targets: its
// objects are the initiators.
enum class Object : std::uint8_t {
  rc_queue_pair,
  dc_data_pool,
  dc_credit_pool,
  dc_establishment_pool,
  ud_queue_pair,
  cq_entry,
  srq_entry,
};

class Processor {
 public:
  virtual ~Processor() = default;
  virtual void charge(Work work, std::uint64_t amount) noexcept = 0;
  // Bytes that `count` objects take together; `computed`: by the driver's own rules.
  [[nodiscard]] virtual std::uint64_t object_bytes(Object, std::uint64_t /*count*/,
                                                   std::uint64_t computed) const noexcept {
    return computed;
  }
  // The channel that `destination` asks for at the first message of `source` (both Address::id),
  // and at later ones while it has none. A simulation that compares maps chooses here; else it is
  // what the policy says.
  [[nodiscard]] virtual ChannelKind first_channel(std::uint64_t /*source*/,
                                                  std::uint64_t /*destination*/,
                                                  ChannelKind of_policy) const noexcept {
    return of_policy;
  }
  // Where the number of connections is limited: one-sided operations wait for theirs, as ACTS's do,
  // instead of travelling as messages meanwhile. A simulation of ACTS says so.
  [[nodiscard]] virtual bool waits_for_connections() const noexcept { return false; }
};

// CLOCK_MONOTONIC of this machine; any thread.
[[nodiscard]] Clock& live_clock() noexcept;

}  // namespace turnout
