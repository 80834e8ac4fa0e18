// SPDX-License-Identifier: BSD-3-Clause
// RputEngine: rendezvous rput: the receiver answers an RTS with a CTS that names its buffer, the
// sender writes there. Source: Takagi et al., EuroMPI 2013.
//
// The endpoint owns it; the thread that drives the endpoint calls it.
#pragma once

#include <deque>

#include "core/operations/fragment_engine.h"

namespace turnout {

class RputEngine : MessagingUser {
 public:
  RputEngine(EndpointState& state, Messaging& messaging, SendBacklog& backlog, RdmaEngine& rdma,
             FragmentEngine& fragments)
      : MessagingUser(state, messaging), backlog_(backlog), rdma_(rdma), fragments_(fragments) {}

  [[nodiscard]] bool asks_for_write(const Transfer& transfer, const IoVec& target) const noexcept;
  [[nodiscard]] Status ask_for_write(Transfer& transfer, const IoVec& target);
  void on_cts(Peer& peer, const wire::ControlMessage& message, const wire::Detail& detail);
  bool pump_rput_sends();
  void end_rput_send(Transfer& transfer);
  void on_written(Peer& peer, const wire::ControlMessage& message);
  [[nodiscard]] std::deque<SendOperation*>& rput_sends() noexcept { return rput_sends_; }

 private:
  void start_rput_send(SendOperation& operation);

  SendBacklog& backlog_;
  RdmaEngine& rdma_;
  FragmentEngine& fragments_;

  std::deque<SendOperation*> rput_sends_;  // have a CTS, but no transfer yet
};

}  // namespace turnout
