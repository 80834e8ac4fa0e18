// SPDX-License-Identifier: BSD-3-Clause
// What the components of the virtual engine stand on, without an engine: two nodes with a process
// each, their contexts, and queue pairs that no verb made.
#pragma once

#include <memory>
#include <vector>

#include "hca/virtual/engine_parts.h"

namespace turnout::hca::test {

struct AdapterParts {
  AdapterParts() {
    for (std::uint32_t node = 0; node < 2; ++node) {
      contexts[node].process = processes.add(
          node,
          [](void* self, std::uint64_t process) {
            static_cast<AdapterParts*>(self)->woken.push_back(static_cast<ProcessIndex>(process));
          },
          this);
    }
  }
  // A queue pair of this process, ready to send.
  VirtualQp& add_qp(ProcessIndex process, QpKind kind = QpKind::rc) {
    owned.push_back(std::make_unique<VirtualQp>());
    VirtualQp& qp = *owned.back();
    qp.verbs.qp_base.context = &contexts[process].verbs.context;
    qp.kind = kind;
    qp.process = process;
    qp.phase = QpPhase::rts;
    qp.max_recv_wr = 4;
    qp.max_recv_sge = 1;
    qp.number = qps.reserve();
    qps[qp.number] = &qp;
    return qp;
  }
  // The next event, null object: there is none.
  Event next() {
    Event event;
    return kernel.next(event) ? event : Event{};
  }

  Profile profile;
  Kernel kernel{1};
  Processes processes{kernel, profile, 2};
  NumberTable<VirtualQp*> qps{kFirstQp, 1024};
  WorldParts world{kernel, profile, processes, qps};
  Operations operations{kernel};
  AsyncEvents events{kernel, profile};
  Regions regions{world};
  SharedReceiveQueues srqs{processes, events};
  Tracer trace{kernel, qps, srqs};
  Completions completions{world, events};
  Receives receives{world, events, completions, srqs};
  AdapterContexts adapter_contexts{world, trace};
  Network network{world};
  DataMover data{regions};
  EngineParts engine{world,       operations, events,           regions, srqs, trace,
                     completions, receives,   adapter_contexts, network, data};
  Context contexts[2];
  std::vector<ProcessIndex> woken;
  std::vector<std::unique_ptr<VirtualQp>> owned;
};

}  // namespace turnout::hca::test
