// SPDX-License-Identifier: BSD-3-Clause
// UdTransport: the default transport over UD: what makes datagrams reliable and ordered. It stamps
// sequence numbers and acknowledgements, keeps what is not acknowledged, and sends it again when a
// timer is up (UdReliability has the rules of one peer).
//
// The endpoint owns it; the thread that drives the endpoint calls it. Times are nanoseconds. A peer
// that stays silent for too long is reported by EndpointEvents::peer_failed.
#pragma once

#include "core/messaging/control_sender.h"

namespace turnout {

// Send buffers that wait for an acknowledgement, by number.
struct KeptBuffer {
  std::uint32_t posted = 0;  // requests that still read it
  bool acknowledged = false;
};

class UdTransport : Component {
 public:
  UdTransport(EndpointState& state, ControlSender& control_sender)
      : Component(state), control_sender_(control_sender) {}

  // False: it was dropped, and its buffer reposted.
  [[nodiscard]] bool data_came(Peer& peer, const wire::Header& header, std::uint32_t buffer);
  void stamp(Peer& peer, wire::DatagramKind kind, wire::Datagram* datagram);
  void owe_ack(Peer& peer, bool at_once);
  void send_ack(Peer& peer);
  void keep_until_acknowledged(Peer& peer, std::uint32_t sequence, const SendRecord& record);
  void release_kept(std::uint32_t buffer);
  void send_control_over_ud(Peer& peer, Purpose purpose, const wire::ControlMessage& message);
  [[nodiscard]] bool transmit_control(Peer& peer);
  [[nodiscard]] bool post_ud_control(Peer& peer, std::size_t at);
  bool pump_ud_blocked();
  void resend_data(Peer& peer, const UdReliability::Sent& message);
  void send_probe(Peer& peer);
  void arm(Peer& peer, Nanoseconds now);
  void service_ud_timers(Nanoseconds now);
  void drop_ud(Peer& peer);
  // There are so many send buffers.
  void configure(std::size_t send_buffers) { kept_.resize(send_buffers); }
  // A request that reads this kept buffer is done.
  void retire_kept(std::uint32_t buffer);
  [[nodiscard]] const std::vector<Peer*>& ud_pending() const noexcept { return ud_pending_; }
  [[nodiscard]] bool ud_blocked() const noexcept { return ud_blocked_; }
  [[nodiscard]] Nanoseconds next_ud_timer() const noexcept { return next_ud_timer_; }

 private:
  void list_ud(Peer& peer, Nanoseconds at);
  void on_ud_timeout(Peer& peer, Nanoseconds now);
  [[nodiscard]] bool ud_settled() const noexcept;
  [[nodiscard]] Nanoseconds silence_of_the_lost() const noexcept;

  ControlSender& control_sender_;

  std::vector<KeptBuffer> kept_;
  std::vector<Peer*> ud_pending_;  // peers with something unacknowledged, or an ack owed
  bool ud_blocked_ = false;        // one of them found a queue full
  Nanoseconds next_ud_timer_ = INT64_MAX;
};

}  // namespace turnout
