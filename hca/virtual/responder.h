// SPDX-License-Identifier: BSD-3-Clause
// Responder: the target's adapter: finding the queue pair, its receive, its memory; moving the
// data.
//
// A request that is refused for now (no receive: RNR; no DC context: NACK) comes again later, and
// what arrives behind it waits: order is kept. A target that is not there answers nothing, and the
// sender gives up when its retries are over. One thread.
#pragma once

#include "hca/virtual/work_queues.h"

namespace turnout::hca {

class Responder : EngineParts {
 public:
  explicit Responder(const EngineParts& parts) : EngineParts(parts) {}

  // A request, at the port.
  void arrive(Operation& operation);
  // Its data, in memory.
  void land(Operation& operation);
  // The data of a read, at the sender's adapter.
  void give_back(Operation& operation);

 private:
  // Null: nobody answers.
  [[nodiscard]] VirtualQp* target_of(const Operation& operation) noexcept;
  // xrc: the SRQ that an XRC request names, else null. False: more is to come before the answer.
  [[nodiscard]] bool land_rdma(VirtualQp& target, const VirtualSrq* xrc, Operation& operation);
  // The request comes again, or is sent again (RNR), after the wait; what follows waits behind it.
  void again(VirtualQp& qp, Operation& operation, Picoseconds wait, EventKind as);
  void receiver_not_ready(VirtualQp& qp, const VirtualQp& target, Operation& operation);
  // The target says no: nothing behind this request is executed.
  void refuse(Operation& operation, ibv_wc_status status);
  void no_answer(Operation& operation);
  void fail_target(VirtualQp& target, ibv_event_type event);
};

}  // namespace turnout::hca
