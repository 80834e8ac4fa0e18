// SPDX-License-Identifier: BSD-3-Clause
// AdapterContexts: the contexts that an adapter has of queue pairs and of DC initiators: what a use
// costs, and whether there is room for one more.
//
// Caches and tables are those of the nodes. Costs are picoseconds of the profile (cost-model.md).
// One thread.
#pragma once

#include "hca/virtual/processes.h"
#include "hca/virtual/tracer.h"

namespace turnout::hca {

class AdapterContexts : WorldParts {
 public:
  // Names the context of a DC initiator at its target's adapter.
  static constexpr std::uint64_t kResponder = std::uint64_t{1} << 32;

  AdapterContexts(const WorldParts& parts, Tracer& trace) : WorldParts(parts), trace_(trace) {}

  // The adapter's time for a use of a context. first_miss: that of the side which asks. *latency
  // grows by what the use waits for.
  [[nodiscard]] Picoseconds cost(Node& node, std::uint64_t context, Picoseconds first_miss,
                                 Picoseconds* latency);
  // A context for the initiator `qp` at the adapter of its target, which `operation` uses until
  // leave(). False: refused for now; qp.nack_wait says how long.
  [[nodiscard]] bool admit(Node& node, VirtualQp& qp, Operation& operation);
  void leave(Operation& operation);
  // The target's adapter need not keep a context for this initiator any more.
  void release(VirtualQp& qp);

 private:
  Tracer& trace_;
};

}  // namespace turnout::hca
