// SPDX-License-Identifier: BSD-3-Clause
// AdapterContexts: the contexts that an adapter has of queue pairs and of DC initiators: what a use
// costs, and whether there is room for one more.
//
// Caches and tables are those of the nodes. Costs are picoseconds of the profile (cost-model.md).
// One thread.
#pragma once

#include <algorithm>

#include "hca/virtual/engine_parts.h"
#include "hca/virtual/tracer.h"

namespace turnout::hca {

class AdapterContexts : EngineParts {
 public:
  // Names the context of a DC initiator at its target's adapter.
  static constexpr std::uint64_t kResponder = std::uint64_t{1} << 32;

  explicit AdapterContexts(const EngineParts& parts) : EngineParts(parts) {}

  // The adapter's time for a use of a context. first_miss: that of the side which asks. *latency
  // grows by what the use waits for.
  [[nodiscard]] Picoseconds cost(Node& node, std::uint64_t context, Picoseconds first_miss,
                                 Picoseconds* latency) {
    switch (node.contexts.use(context)) {
      case ContextCache::Found::first:
        return 0;
      case ContextCache::Found::second:
        ++kernel.statistics().first_misses;
        return first_miss;
      case ContextCache::Found::memory:
        break;
    }
    ++kernel.statistics().second_misses;
    const auto fetcher = std::min_element(node.fetches.begin(), node.fetches.end());
    *fetcher = std::max(*fetcher, kernel.now()) + profile.cache_second_miss;
    *latency += *fetcher - kernel.now();
    return first_miss;
  }
  // A context for the initiator `qp` at the adapter of its target, which `operation` uses until
  // leave(). False: refused for now; qp.nack_wait says how long.
  [[nodiscard]] bool admit(Node& node, VirtualQp& qp, Operation& operation) {
    auto found = node.responders.find(qp.number);
    if (found == node.responders.end()) {
      const auto limit = static_cast<std::size_t>(profile.dc_responder_contexts);
      bool room = limit == 0 || node.responders.size() < limit;
      if (!room) {  // one whose initiator waits for nothing is given up
        const std::uint32_t idle = first_idle(node);
        room = idle != 0;
        if (room) node.contexts.forget(kResponder | idle);
        node.responders.erase(idle);
      }
      if (!room || kernel.chance(profile.fault_nack)) {
        ++kernel.statistics().dc_nacks;
        trace.note(Trace::Kind::nack, qp, operation.target, 0);
        qp.nack_wait = qp.nack_wait == 0 ? profile.dc_nack_wait : qp.nack_wait * 2;
        if (profile.dc_nack_wait_most > 0) {
          qp.nack_wait = std::min(qp.nack_wait, profile.dc_nack_wait_most);
        }
        return false;
      }
      found = node.responders.emplace(qp.number, 0).first;
      // Made here by the connect, not fetched.
      if (profile.cache_by_initiator != 0) (void)node.contexts.use(kResponder | qp.number);
    }
    ++found.value();
    operation.at_responder = true;
    return true;
  }
  void leave(Operation& operation) {
    if (!operation.at_responder) return;
    operation.at_responder = false;
    const VirtualQp* const target = qps.find(operation.target);
    if (target == nullptr) return;
    Node& node = processes.node_of(*target);
    const auto found = node.responders.find(operation.source);
    if (found != node.responders.end() && found->second > 0) --found.value();
  }
  // The target's adapter need not keep a context for this initiator any more.
  void release(VirtualQp& qp) {
    if (qp.connected == 0) return;
    if (const VirtualQp* target = qps.find(qp.connected); target != nullptr) {
      Node& node = processes.node_of(*target);
      node.responders.erase(qp.number);
      node.contexts.forget(kResponder | qp.number);
    }
  }

 private:
  // The smallest number of an initiator that waits for nothing; 0: there is none.
  [[nodiscard]] static std::uint32_t first_idle(const Node& node) noexcept {
    std::uint32_t least = 0;
    for (const auto& [initiator, operations] : node.responders) {
      if (operations == 0 && (least == 0 || initiator < least)) least = initiator;
    }
    return least;
  }
};

}  // namespace turnout::hca
