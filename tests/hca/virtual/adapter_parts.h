// SPDX-License-Identifier: BSD-3-Clause
// What the components of the virtual engine stand on, without an engine: two nodes with a process
// each, their contexts, and queue pairs that no verb made.
#pragma once

#include <memory>
#include <vector>

#include "hca/virtual/queue_pairs.h"

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
  EngineParts engine{kernel,  profile, processes,   qps,         operations, events,
                     regions, srqs,    trace,       completions, receives,   adapter_contexts,
                     network, data,    work_queues, requester,   xrc,        queue_pairs};
  Operations operations{kernel};
  AsyncEvents events{engine};
  Regions regions{engine};
  SharedReceiveQueues srqs{engine};
  Tracer trace{engine};
  Completions completions{engine};
  Receives receives{engine};
  AdapterContexts adapter_contexts{engine};
  Network network{engine};
  DataMover data{engine};
  WorkQueues work_queues{engine};
  Requester requester{engine};
  XrcDomains xrc{engine};
  QueuePairs queue_pairs{engine};
  Context contexts[2];
  std::vector<ProcessIndex> woken;
  std::vector<std::unique_ptr<VirtualQp>> owned;
};

}  // namespace turnout::hca::test
