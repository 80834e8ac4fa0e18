// SPDX-License-Identifier: BSD-3-Clause
// AtomicEngine: atomic operations, and one-sided operations as messages where there is no
// connection: requests, their execution at the target, responses.
//
// The endpoint owns it; the thread that drives the endpoint calls it.
#pragma once

#include "core/operations/send_engine.h"

namespace turnout {

class AtomicEngine : MessagingUser {
 public:
  AtomicEngine(EndpointState& state, Messaging& messaging, SendBacklog& backlog, RdmaEngine& rdma,
               PutEngine& put)
      : MessagingUser(state, messaging), backlog_(backlog), rdma_(rdma), put_(put) {}

  [[nodiscard]] Status atomic_now(const AtomicRequest& request);
  [[nodiscard]] bool try_atomic(AtomicOperation& operation);
  void end_atomic(AtomicOperation& operation, Status status);
  void end_atomics(Peer& peer);
  [[nodiscard]] bool may_answer(Peer& peer);
  void on_request(Peer& peer, const wire::Header& header, const std::byte* payload);
  bool pump_answers();
  void on_answer(Peer& peer, const wire::Header& header, const std::byte* payload);
  [[nodiscard]] Status take_for_messages(Transfer& transfer, const IoVec& iov, bool inject);
  [[nodiscard]] bool ask_segment(Transfer& transfer, std::uint64_t length);
  [[nodiscard]] std::vector<Peer*>& answering() noexcept { return answering_; }

 private:
  [[nodiscard]] bool make_atomics(Peer& peer);
  [[nodiscard]] Status take_atomic(Peer& peer, const wire::Header& header,
                                   const std::byte* payload);
  [[nodiscard]] Code carry_out(const wire::Atomic& request, const std::byte* values,
                               std::byte* fetched) noexcept;
  void send_answers(Peer& peer);
  [[nodiscard]] static std::size_t fill_segment(const AtomicOperation& operation,
                                                wire::Segment* segment, IoVec* parts) noexcept;
  [[nodiscard]] Status take_segment(Peer& peer, const wire::Header& header,
                                    const std::byte* payload);

  SendBacklog& backlog_;
  RdmaEngine& rdma_;
  PutEngine& put_;

  std::vector<Peer*> answering_;  // peers with answers that could not be sent yet
};

}  // namespace turnout
