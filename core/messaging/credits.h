// SPDX-License-Identifier: BSD-3-Clause
// Credits: flow control of the default transport. It returns to peers the credits of receives that
// are free again, and takes those that peers return (SrqFlowControl decides how many).
//
// The endpoint owns it; the thread that drives the endpoint calls it.
#pragma once

#include <algorithm>
#include <span>

#include "core/messaging/control_plane.h"

namespace turnout {

class Credits : Component {
 public:
  Credits(EndpointState& state, ControlPlane& control) : Component(state), control_(control) {}

  void on_private_credits(Peer& peer, std::uint32_t request, std::uint32_t credits) noexcept;
  void credits_given(Peer& peer, const wire::Header& header) {
    if ((header.credits | header.ring_credits) != 0) take_credits(peer, header);
  }
  // A message has left its receive; returns the credit.
  void return_credit(Peer& peer);
  void serve_credit_waiters(bool few = false);
  void sweep_credits(Nanoseconds now);
  void send_credits(Peer& peer);
  // Of ring entries, at least; without a message if it can.
  void return_ring(Peer& peer) {
    if (!write_ring_credits(peer)) send_credits(peer);
  }
  // These requests end with their queue pair: writes of credits among them may be lost.
  void repeat_lost(Peer& peer, std::span<const SendRecord> requests) {
    if (std::ranges::find(requests, SendRecord::Kind::credit, &SendRecord::kind) != requests.end())
      repeat_ring_credits(peer);
  }
  void repeat_ring_credits(Peer& peer);
  void count_credit_message() noexcept { ++credit_messages_; }
  [[nodiscard]] std::uint64_t credit_messages() const noexcept { return credit_messages_; }

 private:
  void take_credits(Peer& peer, const wire::Header& header);
  // False: nothing was written.
  [[nodiscard]] bool write_ring_credits(Peer& peer);

  ControlPlane& control_;

  std::uint64_t credit_messages_ = 0;
};

}  // namespace turnout
