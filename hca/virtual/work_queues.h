// SPDX-License-Identifier: BSD-3-Clause
// WorkQueues: the requests of a queue pair from the answer to their end: completion in order,
// errors and what they flush.
//
// Owns nothing: the queues are parts of the queue pairs. One thread.
#pragma once

#include "hca/virtual/adapter_contexts.h"
#include "hca/virtual/completions.h"
#include "hca/virtual/operations.h"
#include "hca/virtual/receives.h"

namespace turnout::hca {

class WorkQueues {
 public:
  WorkQueues(Kernel& kernel, const Profile& profile, Processes& processes, Operations& operations,
             AsyncEvents& events, Completions& completions, Receives& receives,
             AdapterContexts& contexts, Tracer& trace, NumberTable<VirtualQp*>& qps)
      : kernel_(kernel),
        profile_(profile),
        processes_(processes),
        operations_(operations),
        events_(events),
        completions_(completions),
        receives_(receives),
        contexts_(contexts),
        trace_(trace),
        qps_(qps) {}

  // The target's answer is at the sender's adapter.
  void answered(Operation& operation);
  // Schedules the completion of what is answered, in order.
  void settle(VirtualQp& qp);
  void complete(Operation& operation);
  // To `to` (sqe, err): everything not done ends with a flush entry.
  void fail(VirtualQp& qp, QpPhase to);
  // The operations vanish without completions; events that still name them find nobody.
  void drop(VirtualQp& qp);
  // Of a queue pair that no program can reach: as far as the adapter has it.
  void forget(VirtualQp& qp);

 private:
  void drop_done(VirtualQp& qp);

  Kernel& kernel_;
  const Profile& profile_;
  Processes& processes_;
  Operations& operations_;
  AsyncEvents& events_;
  Completions& completions_;
  Receives& receives_;
  AdapterContexts& contexts_;
  Tracer& trace_;
  NumberTable<VirtualQp*>& qps_;
};

}  // namespace turnout::hca
