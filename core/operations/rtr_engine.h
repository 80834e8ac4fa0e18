// SPDX-License-Identifier: BSD-3-Clause
// RtrEngine: the receiver's part of rendezvous put and putnr: which posted receives are announced
// to the sender (RTR), how their messages are found in memory, and how an RTR is cancelled. Source:
// Takagi et al., EuroMPI 2013.
//
// The endpoint owns it; the thread that drives the endpoint calls it.
#pragma once

#include "core/operations/fragment_engine.h"
#include "core/operations/send_engine.h"

namespace turnout {

class RtrEngine : MessagingUser {
 public:
  RtrEngine(EndpointState& state, Messaging& messaging, PostedReceives& posted,
            SendBacklog& backlog, RdmaEngine& rdma, FragmentEngine& fragments,
            SendEngine& send_engine)
      : MessagingUser(state, messaging),
        posted_(posted),
        backlog_(backlog),
        rdma_(rdma),
        fragments_(fragments),
        send_engine_(send_engine) {}

  void send_rtr(RecvOperation& receive, Peer& peer);
  [[nodiscard]] bool wants_rtr(const RecvRequest& request, const Peer& peer) const noexcept {
    const bool sends_rtrs = context_.rendezvous == Rendezvous::put ||
                            context_.rendezvous == Rendezvous::putnr ||
                            context_.rendezvous == Rendezvous::automatic;
    return sends_rtrs && may_want_rtr(request, peer);
  }
  void abandon_rtr(RecvOperation& receive);
  void fetch_instead(Transfer& transfer);
  // `of`: only its RTRs.
  bool poll_last_bytes(const Peer* of = nullptr);
  [[nodiscard]] bool put_completed(Peer& peer, const wire::Rts& rts);
  void on_put_completion(Peer& peer, const wire::Header& header, const std::byte* payload);
  void on_rtr_cancelled(Peer& peer, std::uint64_t transfer);
  // Whether random sentinels are written to buffers before their RTR, and the seed of these.
  void configure(bool sets_sentinels, std::uint64_t seed) noexcept {
    sets_sentinels_ = sets_sentinels;
    sentinels_ = SplitMix64(seed);
  }
  [[nodiscard]] std::uint64_t rtrs_sent() const noexcept { return rtrs_sent_; }

 private:
  [[nodiscard]] bool may_want_rtr(const RecvRequest& request, const Peer& peer) const noexcept;
  [[nodiscard]] bool may_send_rtr(const RecvOperation& receive, Peer& peer);
  void close_rtr(Transfer& transfer, bool taken);
  void end_rtr_recv(Transfer& transfer, const Completion& completion, const Status& status);

  PostedReceives& posted_;
  SendBacklog& backlog_;
  RdmaEngine& rdma_;
  FragmentEngine& fragments_;
  SendEngine& send_engine_;

  std::uint32_t open_rtrs_ = 0;
  bool sets_sentinels_ = false;
  SplitMix64 sentinels_{0};  // random sentinels, if they are set
  std::uint64_t rtrs_sent_ = 0;
};

}  // namespace turnout
