// SPDX-License-Identifier: BSD-3-Clause
// Receives: posting to receive queues, taking from them, flushing them in error.
//
// The queues are parts of queue pairs and SRQs. A receive that was taken is its operation's. One
// thread.
#pragma once

#include "hca/virtual/completions.h"
#include "hca/virtual/srqs.h"

namespace turnout::hca {

class Receives : WorldParts {
 public:
  Receives(const WorldParts& parts, AsyncEvents& events, Completions& completions,
           const SharedReceiveQueues& srqs)
      : WorldParts(parts), events_(events), completions_(completions), srqs_(srqs) {}

  // 0, or errno with *bad; a queue in error completes what is posted at once.
  [[nodiscard]] int post(Qp& qp, ibv_recv_wr* wr, ibv_recv_wr** bad);
  [[nodiscard]] int post_shared(Srq& srq, ibv_recv_wr* wr, ibv_recv_wr** bad);
  // srq: null: the queue pair's own receives. False: there is none.
  [[nodiscard]] bool take(VirtualQp& target, VirtualSrq* srq, Operation& operation);
  // The message will not come: its receive serves another, or is flushed with the others.
  void put_back(Operation& operation);
  void flush(VirtualQp& qp);

 private:
  AsyncEvents& events_;
  Completions& completions_;
  const SharedReceiveQueues& srqs_;
};

}  // namespace turnout::hca
