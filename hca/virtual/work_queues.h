// SPDX-License-Identifier: BSD-3-Clause
// WorkQueues: the requests of a queue pair from the answer to their end: completion in order,
// errors and what they flush.
//
// Owns nothing: the queues are parts of the queue pairs. One thread.
#pragma once

#include "hca/virtual/adapter_contexts.h"
#include "hca/virtual/data_mover.h"
#include "hca/virtual/network.h"
#include "hca/virtual/operations.h"
#include "hca/virtual/receives.h"

namespace turnout::hca {

class WorkQueues : EngineParts {
 public:
  explicit WorkQueues(const EngineParts& parts) : EngineParts(parts) {}

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
  // All operations of the queue pair, which begins anew.
  [[nodiscard]] Fifo<Operation*> take_operations(VirtualQp& qp);
  // The queue pair has nothing to do with it any more; the last event that names it frees it.
  void let_go(Operation& operation);
};

}  // namespace turnout::hca
