// SPDX-License-Identifier: BSD-3-Clause
// Requester: the sender's adapter: the order of a queue's requests, its send side, DC's
// connections.
//
// A DCI serves one target at a time: before it turns to another it waits for the last answer of the
// present one and disconnects; the first operation to the new one connects (cost-model.md, DC
// switching between destinations). One thread.
#pragma once

#include "hca/virtual/work_queues.h"

namespace turnout::hca {

class Requester : EngineParts {
 public:
  explicit Requester(const EngineParts& parts) : EngineParts(parts) {}

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
};

}  // namespace turnout::hca
