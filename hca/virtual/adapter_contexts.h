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

class AdapterContexts {
 public:
  // Names the context of a DC initiator at its target's adapter.
  static constexpr std::uint64_t kResponder = std::uint64_t{1} << 32;

  AdapterContexts(Kernel& kernel, const Profile& profile, Processes& processes,
                  const NumberTable<VirtualQp*>& qps, Tracer& trace)
      : kernel_(kernel), profile_(profile), processes_(processes), qps_(qps), trace_(trace) {}

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
  Kernel& kernel_;
  const Profile& profile_;
  Processes& processes_;
  const NumberTable<VirtualQp*>& qps_;
  Tracer& trace_;
};

}  // namespace turnout::hca
