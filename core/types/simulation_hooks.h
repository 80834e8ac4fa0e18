// SPDX-License-Identifier: BSD-3-Clause
// SimulationHooks: what a simulation gives an endpoint beside the clock (core/time/clock.h). Each
// hook is one concern: the CPU's cost, the size of the driver's objects, a choice of channels
// instead of the policy's, and a store of statistics instead of the core's.
//
// Live all are null and there is no rank, which costs one predictable branch. The simulation owns
// what they point to, which outlives the endpoint; called only from the thread that drives the
// endpoint.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "base/status.h"
#include "core/types/channel_kind.h"

namespace turnout {

namespace selection {
class Statistics;
}

// What the core does; the amount is bytes for copy, a number of entries otherwise.
enum class Work : std::uint8_t { post, doorbell, poll_cq, poll_ring, copy, match, register_memory };

class Processor {
 public:
  virtual ~Processor() = default;
  virtual void charge(Work work, std::uint64_t amount) noexcept = 0;
};

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

class ObjectSizes {
 public:
  virtual ~ObjectSizes() = default;
  // Bytes that `count` objects take together; `computed`: by the driver's own rules.
  [[nodiscard]] virtual std::uint64_t bytes(Object object, std::uint64_t count,
                                            std::uint64_t computed) const noexcept = 0;
};

struct PolicyOverride {
  // The channel that `destination` requests at the first message of `source` (both Address::id),
  // and at later ones while it has none. Empty: the policy's. Does not throw.
  std::function<ChannelKind(std::uint64_t source, std::uint64_t destination, ChannelKind of_policy)>
      first_channel;
  // Where the number of connections is limited: one-sided operations wait for theirs, as ACTS's do,
  // instead of travelling as messages meanwhile.
  bool waits_for_connections = false;
  // Channels are set up as under the policy `turnout`, whatever the policy, to measure what that
  // costs. The policies of papers do as the papers describe.
  bool prepares = false;
  // The same of flow control: credits of rings are written (credit_words.h), and the shared receive
  // queue is that of the job (decision 052).
  bool flow_control = false;
};

// Made with the first interval that has messages. `max_bytes`: the budget of the process.
using StatisticsFactory =
    std::function<Result<std::unique_ptr<selection::Statistics>>(std::uint64_t max_bytes)>;

struct SimulationHooks {
  Processor* processor = nullptr;  // not null: time is virtual
  const ObjectSizes* object_sizes = nullptr;
  const PolicyOverride* policy = nullptr;
  const StatisticsFactory* statistics = nullptr;
  int rank = -1, ranks = -1;  // of the process in the simulated job; its endpoint's id ends with it
};

}  // namespace turnout
