// SPDX-License-Identifier: BSD-3-Clause
// PrivateReceiveQueues: the receive queues of queue pairs that share none (policy ardma-sr): their
// buffers, growth and credits, and where a buffer goes when its message has left it.
//
// The endpoint owns it; the thread that drives the endpoint calls it.
#pragma once

#include "core/messaging/credits.h"

namespace turnout {

class PrivateReceiveQueues : Component {
 public:
  PrivateReceiveQueues(EndpointState& state, ControlPlane& control, Credits& credits)
      : Component(state), control_(control), credits_(credits) {}

  [[nodiscard]] Status ready_private_receives(Peer& peer);
  void post_private_receives(Peer& peer);
  void unpost_private_receives(const RcQueue& queue);
  void close_private_receives(Peer& peer, const RcQueue& queue);
  void release_private_receives(RcQueue& queue);
  [[nodiscard]] static Status check_private_sender(const Peer& peer, const wire::Parsed& parsed);
  void return_private_receive(std::uint32_t buffer);
  void grow_private_receives(Peer& peer);
  // Whether to return credits to the peer now.
  void report_private_credits(Peer& peer);
  void send_private_credits(Peer& peer);
  [[nodiscard]] bool post_private_control(Peer& peer, wire::ControlMessage message,
                                          const wire::Detail* detail);
  static constexpr std::uint32_t kMaxCreditsInHeader = 255;
  // Credits that a header hands back, of as many as fit; see wire::Header.
  struct HandedBack {
    std::uint8_t credits = 0, ring_credits = 0, flags = 0, ring = 0;
  };
  [[nodiscard, gnu::always_inline]] static HandedBack hand_back(Peer& peer) noexcept;
  [[nodiscard]] UnexpectedMessage::Storage storage_of(std::uint32_t buffer) const noexcept {
    return resources_.receive_pool.is_private(buffer) ? UnexpectedMessage::Storage::private_receive
                                                      : UnexpectedMessage::Storage::buffer;
  }
  // For a message that is dropped, as rejected or duplicate.
  void free_receive(std::uint32_t buffer) {
    if (resources_.receive_pool.is_private(buffer)) [[unlikely]] {
      return_private_receive(buffer);
    } else {
      post_again(buffer);
    }
  }
  void count_control() noexcept { ++private_report_.controls; }
  [[nodiscard]] const PrivateReceivesReport& private_report() const noexcept {
    return private_report_;
  }

 private:
  [[nodiscard]] Status add_private_receives(Peer& peer, std::uint32_t count);
  void post_private_receives(Peer& peer, ReceivePool::PrivateChunk& chunk, std::uint32_t buffer);

  ControlPlane& control_;
  Credits& credits_;

  std::uint32_t private_count_ = 0;  // receives that exist
  PrivateReceivesReport private_report_;
};

inline PrivateReceiveQueues::HandedBack PrivateReceiveQueues::hand_back(Peer& peer) noexcept {
  const auto most = [](std::uint32_t credits) {
    return static_cast<std::uint8_t>(std::min(credits, kMaxCreditsInHeader));
  };
  HandedBack back{.credits = most(peer.rx.grant.unreported)};
  peer.rx.grant.unreported -= back.credits;
  const PeerRxState& rx = peer.state->rx;
  // The peer knows its credits by the time it sends over RC.
  if (rx.private_queue.unreported > 0 && over_rc(peer.rx.kind)) [[unlikely]] {
    PrivateReceives& receives = peer.state.ref().rx.private_queue;
    back.flags = wire::kPrivateCredits;
    back.ring_credits = most(receives.unreported);
    back.ring = static_cast<std::uint8_t>(receives.request);
    receives.unreported -= back.ring_credits;
    receives.granted += back.ring_credits;
    return back;
  }
  back.ring = static_cast<std::uint8_t>(rx.ring_request);
  back.ring_credits = most(rx.unreported_ring);
  if (back.ring_credits > 0) peer.state.ref().rx.unreported_ring -= back.ring_credits;
  return back;
}

}  // namespace turnout
