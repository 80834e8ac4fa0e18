// SPDX-License-Identifier: BSD-3-Clause
// ConnectionRecovery: connections that failed while both processes live: both ends find out what
// was lost and send it again over the default transport, in order and once.
//
// The endpoint owns it; the thread that drives the endpoint calls it.
#pragma once

#include "core/channels/channel_negotiator.h"

namespace turnout {

class ConnectionRecovery : MessagingUser {
 public:
  ConnectionRecovery(EndpointState& state, Messaging& messaging, RdmaEngine& rdma,
                     DecisionOutcomes& outcomes, RcPool& rc, ChannelNegotiator& negotiator)
      : MessagingUser(state, messaging),
        rdma_(rdma),
        outcomes_(outcomes),
        rc_(rc),
        negotiator_(negotiator) {}

  void fail_connection(Peer& peer, const ibv_wc* wc);
  void on_queue_pair_stopped(Peer& peer);
  void on_error(Peer& peer, const wire::ControlMessage& message);
  void on_replay(Peer& peer, const wire::ControlMessage& message);
  void on_resumed(Peer& peer, const wire::ControlMessage& message);
  bool pump_recovering();
  void end_recovery(Peer& peer);
  [[nodiscard]] bool send_lost(Peer& peer, Recovery& recovery, bool* moved);
  void give_up_lost(Recovery& recovery);
  void break_for_test(Peer& peer);
  [[nodiscard]] std::vector<Peer*>& recovering() noexcept { return recovering_; }

 private:
  void forget_changes(Peer& peer, Nanoseconds now);
  void requeue(Peer& peer, const std::vector<SendRecord>& records, const ibv_wc* wc);
  void restart_transfer(Transfer& transfer);
  void send_error(Peer& peer);
  bool go_on_recovering(Peer& peer);
  // Of a message; `copied` has room for an inline one.
  [[nodiscard]] static const std::byte* bytes_of(const Recovery& recovery, const SendRecord& record,
                                                 std::byte* copied) noexcept;
  [[nodiscard]] static wire::Header header_of(const Recovery& recovery,
                                              const SendRecord& record) noexcept;
  [[nodiscard]] bool replay_message(Peer& peer, Recovery& recovery, const SendRecord& lost);
  void replay_control(Peer& peer, const SendRecord& lost, const wire::Header& header);

  RdmaEngine& rdma_;
  DecisionOutcomes& outcomes_;
  RcPool& rc_;
  ChannelNegotiator& negotiator_;

  std::vector<Peer*> recovering_;  // whose connection failed
};

}  // namespace turnout
