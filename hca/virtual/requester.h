// SPDX-License-Identifier: BSD-3-Clause
// Requester: the sender's adapter: the order of a queue's requests, its send side, DC's
// connections.
//
// A DCI serves one target at a time: before it turns to another it waits for the last answer of the
// present one and disconnects; the first operation to the new one connects (cost-model.md, DC
// switching between destinations). One thread.
#pragma once

#include "hca/virtual/data_mover.h"
#include "hca/virtual/network.h"
#include "hca/virtual/work_queues.h"

namespace turnout::hca {

class Requester {
 public:
  Requester(Kernel& kernel, const Profile& profile, Processes& processes, Operations& operations,
            AdapterContexts& contexts, Network& network, DataMover& data, WorkQueues& work_queues,
            Tracer& trace, const NumberTable<VirtualQp*>& qps)
      : kernel_(kernel),
        profile_(profile),
        processes_(processes),
        operations_(operations),
        contexts_(contexts),
        network_(network),
        data_(data),
        work_queues_(work_queues),
        trace_(trace),
        qps_(qps) {}

  // Lets go what may go, in order.
  void start(VirtualQp& qp);
  // The target had no receive for it: it is sent once more.
  void send_again(Operation& operation);

 private:
  // False: the request must wait; start() is called again.
  [[nodiscard]] bool depart(VirtualQp& qp, Operation& operation);
  void depart_datagram(VirtualQp& qp, Operation& operation, Picoseconds arrival);
  // A request with its data.
  [[nodiscard]] Stream leave(const VirtualQp& qp, Operation& operation, Picoseconds at);

  Kernel& kernel_;
  const Profile& profile_;
  Processes& processes_;
  Operations& operations_;
  AdapterContexts& contexts_;
  Network& network_;
  DataMover& data_;
  WorkQueues& work_queues_;
  Tracer& trace_;
  const NumberTable<VirtualQp*>& qps_;
};

}  // namespace turnout::hca
