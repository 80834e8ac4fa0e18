// SPDX-License-Identifier: BSD-3-Clause
// PutEngine: the sender's part of rendezvous put and putnr: which RTR of a peer a message takes,
// the write, and messages that wait a short while for an RTR. The receiver's part is RtrEngine.
// Source: Takagi et al., EuroMPI 2013.
//
// The endpoint owns it; the thread that drives the endpoint calls it.
#pragma once

#include "core/operations/rdma_engine.h"

namespace turnout {

class PutEngine : Component {
 public:
  static constexpr std::size_t kNoRtr = SIZE_MAX;
  PutEngine(EndpointState& state, SendBacklog& backlog, RdmaEngine& rdma)
      : Component(state), backlog_(backlog), rdma_(rdma) {}

  void on_rtr(Peer& peer, const wire::Detail& detail);
  [[nodiscard]] std::size_t find_rtr(const Peer& peer, bool tagged,
                                     std::uint64_t tag) const noexcept;
  void consume_rtr(Peer& peer, std::size_t at) noexcept;
  [[nodiscard]] bool may_put(const Peer& peer, const IoVec& iov, const wire::Detail& rtr);
  [[nodiscard]] Status put(Peer& peer, const SendRequest& request, const IoVec& iov,
                           const wire::Detail& rtr, SendOperation* deferred = nullptr);
  [[nodiscard]] bool may_defer(Peer& peer);
  void defer(SendOperation& operation);
  void release_deferred(Peer& peer);
  void end_put(Transfer& transfer);
  void on_rtr_cancel(Peer& peer, std::uint64_t transfer);
  bool pump_rtr_cancels();
  [[nodiscard]] std::vector<Peer*>& rtr_cancels() noexcept { return rtr_cancels_; }
  // Deferred messages are looked at again then, or sooner; by nobody until the next is deferred.
  void look_at(Nanoseconds time) noexcept {
    deferred_until_ = std::min(deferred_until_, time);
    context_.pending.add(Pending::deferred_messages);
  }
  void look_no_more() noexcept { deferred_until_ = INT64_MAX; }
  [[nodiscard]] Nanoseconds deferred_until() const noexcept { return deferred_until_; }
  [[nodiscard]] std::uint64_t puts() const noexcept { return puts_; }
  [[nodiscard]] std::uint64_t put_completions() const noexcept { return put_completions_; }
  void count_rendezvous() noexcept { ++rendezvous_count_; }
  [[nodiscard]] std::uint64_t rendezvous_count() const noexcept { return rendezvous_count_; }

 private:
  void put_deferred(Peer& peer);
  [[nodiscard]] SendOperation* make_put_completion(const Transfer& transfer);

  SendBacklog& backlog_;
  RdmaEngine& rdma_;

  std::vector<Peer*> rtr_cancels_;          // peers that wait for a reply
  Nanoseconds deferred_until_ = INT64_MAX;  // when the first deferred message is sent by RTS
  std::uint64_t puts_ = 0;             // puts_: messages written to RTRs; with a put completion
  std::uint64_t put_completions_ = 0;  // puts_: messages written to RTRs; with a put completion
  std::uint64_t rendezvous_count_ = 0;
};

}  // namespace turnout
