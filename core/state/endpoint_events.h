// SPDX-License-Identifier: BSD-3-Clause
// EndpointEvents: what a component says to components above it.
//
// A component holds references to those below it and calls them directly. What it has to say
// upwards, such as a lost peer or a finished transfer, it says here, and the endpoint hands it on
// (endpoint/endpoint_events.cpp). No method is virtual: a test of a component defines the methods
// itself.
//
// The endpoint owns it; only the thread that drives the endpoint calls it.
#pragma once

#include <fmt/format.h>

#include <string>

#include "core/state/peer_state.h"

namespace turnout {

struct EndpointParts;

// What a peer says of an operation of ours that it was announced.
struct Fin {
  std::uint64_t operation = 0;
  std::uint32_t status = 0;  // Code
  std::uint64_t read = 0;    // when it had been read; 0: not noted
  bool may_repeat = false;   // it may have been seen already
};

class EndpointEvents {
 public:
  explicit EndpointEvents(EndpointParts& parts) noexcept;

  [[nodiscard]] bool post_private_control(Peer& peer, wire::ControlMessage message,
                                          const wire::Detail* detail);
  void fall_back_to_fragments(Transfer& transfer);
  void end_rput_send(Transfer& transfer);
  void end_put(Transfer& transfer);
  [[nodiscard]] bool try_operation(SendOperation& operation);
  bool pump_backlog(Peer& peer);
  void abandon_rtr(RecvOperation& receive);
  [[nodiscard]] bool try_atomic(AtomicOperation& operation);
  void end_atomic(AtomicOperation& operation, Status status);
  [[nodiscard]] bool ask_segment(Transfer& transfer, std::uint64_t length);
  bool relieve(Peer& peer);
  void continue_disconnect(Peer& peer);
  void switch_sending(Peer& peer, ChannelKind to, std::uint32_t request,
                      wire::Refusal refusal = wire::Refusal::none);
  void on_flushed(Peer& peer);
  void refuse(Peer& peer, std::uint32_t request, wire::Refusal why);
  void finish_drain(Peer& peer);
  void take_request(Peer& peer, std::uint32_t qp_id);
  void answer_refusal(Peer& peer, wire::Refusal why);
  void target_failed(Peer& peer, const Status& status);
  void on_queue_pair_stopped(Peer& peer);
  void give_up_lost(Recovery& recovery);
  void send_xrc_replay(Peer& peer);
  void on_message_counted(Peer& peer);
  [[nodiscard]] ChannelKind first_channel(const Peer& peer);
  void request_failed(Peer& peer, const Status& status);
  void change_channel(Peer& peer, ChannelKind to, ChannelKind fallback, const std::string& reason,
                      double gain);
  [[nodiscard]] DataPath data_path(Peer& peer);
  [[nodiscard]] DataPath path_of_transfer(Peer& peer);
  void use_one_sided(Peer& peer);
  void retire(const SendRecord& record);
  void on_transfer_done(Transfer& transfer, Status status);
  void on_fin(Peer& peer, const Fin& fin);
  bool poll_receive_queue();
  bool poll_send_queue();
  [[nodiscard]] bool on_wireup_request(const wire::WireupRequest& wireup, PeerId* id);
  void take_ud_header(Peer& peer, const wire::Datagram& datagram);
  void reject(Peer& peer);
  void lose_peer(Peer& peer, const Status& why);
  // The peer sent what no endpoint sends; `what` follows its address in the log.
  void protocol_error(Peer& peer, std::string_view what) {
    lose_peer(peer, Status{Code::invalid, fmt::format("{}: {}", peer.address.to_string(), what)});
  }
  bool progress();

 private:
  EndpointParts& parts_;
};

}  // namespace turnout
