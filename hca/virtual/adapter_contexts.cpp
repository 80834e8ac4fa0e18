// SPDX-License-Identifier: BSD-3-Clause
#include "hca/virtual/adapter_contexts.h"

#include <algorithm>

namespace turnout::hca {

Picoseconds AdapterContexts::cost(Node& node, std::uint64_t context, Picoseconds first_miss,
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

// A context for the initiator at the target's adapter; false: refused for now.
bool AdapterContexts::admit(Node& node, VirtualQp& qp, Operation& operation) {
  auto found = node.responders.find(qp.number);
  if (found == node.responders.end()) {
    const auto limit = static_cast<std::size_t>(profile.dc_responder_contexts);
    bool room = limit == 0 || node.responders.size() < limit;
    if (!room) {  // one whose initiator waits for nothing is given up
      for (auto idle = node.responders.begin(); idle != node.responders.end(); ++idle) {
        if (idle->second != 0) continue;
        node.contexts.forget(kResponder | idle->first);
        node.responders.erase(idle);
        room = true;
        break;
      }
    }
    if (!room || kernel.chance(profile.fault_nack)) {
      ++kernel.statistics().dc_nacks;
      trace_.note(Trace::Kind::nack, qp, operation.target, 0);
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
  ++found->second;
  operation.at_responder = true;
  return true;
}

void AdapterContexts::leave(Operation& operation) {
  if (!operation.at_responder) return;
  operation.at_responder = false;
  const VirtualQp* const target = qps.find(operation.target);
  if (target == nullptr) return;
  Node& node = processes.node_of(*target);
  const auto found = node.responders.find(operation.source);
  if (found != node.responders.end() && found->second > 0) --found->second;
}

// The former target's adapter need not keep a context for this initiator any more.
void AdapterContexts::release(VirtualQp& qp) {
  if (qp.connected == 0) return;
  if (const VirtualQp* target = qps.find(qp.connected); target != nullptr) {
    Node& node = processes.node_of(*target);
    node.responders.erase(qp.number);
    node.contexts.forget(kResponder | qp.number);
  }
}

}  // namespace turnout::hca
