// SPDX-License-Identifier: BSD-3-Clause
// ChannelNegotiator: changes the channel of one direction while messages flow: request, accept or
// refuse, ready, switched, closed (steps J1 to J5). No message overtakes another, and none is lost.
//
// The endpoint owns it; the thread that drives the endpoint calls it.
#pragma once

#include "core/channels/connection_slots.h"
#include "core/channels/decision_outcomes.h"
#include "core/channels/ring_pool.h"
#include "core/channels/xrc_connections.h"

namespace turnout {

class ChannelNegotiator : MessagingUser {
 public:
  ChannelNegotiator(EndpointState& state, Messaging& messaging, DecisionOutcomes& outcomes,
                    RcPool& rc, RingPool& ring_pool, ConnectionSlots& slots,
                    XrcConnections& xrc_nodes)
      : MessagingUser(state, messaging),
        outcomes_(outcomes),
        rc_(rc),
        ring_pool_(ring_pool),
        slots_(slots),
        xrc_nodes_(xrc_nodes) {}

  [[nodiscard]] Status request_channel(Peer& peer, ChannelKind to, ChannelKind fallback);
  void request_switch_back(Peer& peer, ChannelKind to);
  void on_request(Peer& peer, const wire::ControlMessage& message);
  void switch_sending(Peer& peer, ChannelKind to, std::uint32_t request,
                      wire::Refusal refusal = wire::Refusal::none);
  void on_flushed(Peer& peer);
  void on_accept(Peer& peer, const wire::ControlMessage& message);
  void on_ready(Peer& peer, const wire::ControlMessage& message);
  void on_switched(Peer& peer, const wire::ControlMessage& message);
  [[nodiscard]] static bool excludes(const Peer& peer, ChannelKind to) noexcept;
  void on_refuse(Peer& peer, const wire::ControlMessage& message);
  void on_closed(Peer& peer);
  void refuse(Peer& peer, std::uint32_t request, wire::Refusal why);
  void switch_receiving(Peer& peer, ChannelKind to);
  void drop_new_ring(Peer& peer);
  void finish_drain(Peer& peer);
  void take_request(Peer& peer, std::uint32_t qp_id);
  void answer_refusal(Peer& peer, wire::Refusal why);
  bool pump_jobs();
  void target_failed(Peer& peer, const Status& status);
  [[nodiscard]] std::uint64_t refusals() const noexcept { return refusals_; }

 private:
  void switch_after_flush(Peer& peer, ChannelKind to, std::uint32_t request);
  [[nodiscard]] static bool awaits_answer(const Peer& peer) noexcept;
  void wait_before_asking(Peer& peer, wire::Refusal why, std::string_view instead);
  void send_closed(Peer& peer);
  void send_request(Peer& peer);
  void send_accept(Peer& peer);
  void send_ready(Peer& peer);
  void advance_rc(Peer& peer);
  void begin_sending_over_rc(Peer& peer);
  void rc_failed(Peer& peer, const Status& status);
  void end_ring_job(RingJob& job);
  void end_job(RcJob& job);

  DecisionOutcomes& outcomes_;
  RcPool& rc_;
  RingPool& ring_pool_;
  ConnectionSlots& slots_;
  XrcConnections& xrc_nodes_;

  std::uint64_t refusals_ = 0;
};

}  // namespace turnout
