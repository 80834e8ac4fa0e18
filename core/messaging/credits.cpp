// SPDX-License-Identifier: BSD-3-Clause
#include "core/messaging/credits.h"
#include "base/log.h"

namespace turnout {

void Credits::send_credits(Peer& peer) {
  if ((peer.rx.grant.unreported == 0 && peer.state->rx.unreported_ring == 0) ||
      peer.remote_index == wire::kUnknownIndex)
    return;
  wire::ControlMessage message{
      .type = wire::Control::credit,
      .request = peer.state->rx.ring_request,
      .ring_entries = peer.state->rx.returned_ring + peer.state->rx.unreported_ring,
      .credits = static_cast<std::uint16_t>(peer.rx.grant.unreported)};
  peer.rx.grant.unreported = 0;
  if (peer.state->rx.unreported_ring > 0) {
    PeerRxState& rx = peer.state.ref().rx;
    rx.returned_ring = message.ring_entries;
    rx.unreported_ring = 0;
  }
  ++credit_messages_;
  control_.send_control(peer, Purpose::credit, message);
}

bool Credits::write_ring_credits(Peer& peer) {
  const PeerConnection& connection = *peer.connection;
  if (connection.credits_rkey == 0 || peer.rx.kind != ChannelKind::rc_rdma ||
      peer.rx.state != ReceiveState::steady || peer.lost || peer.shut_down || context_.closing)
    return false;
  RcQueue* const rc = connection.rc.get();
  if (rc == nullptr || rc->full() || !rc->takes_inline(sizeof(std::uint64_t))) return false;
  PeerRxState& rx = peer.state.ref().rx;
  rx.returned_ring += std::exchange(rx.unreported_ring, 0);
  context_.profile.count_sent(Traffic::control, sizeof(std::uint64_t));
  context_.charge(Work::post, 1);
  if (Status status = rc->write_credits(CreditWord::value(rx.ring_request, rx.returned_ring),
                                        connection.credits_at, connection.credits_rkey, peer.id);
      !status.ok()) {
    events_.lose_peer(peer, status);
  }
  return true;
}

void Credits::repeat_ring_credits(Peer& peer) {
  const PeerRxState& rx = peer.state->rx;
  if (peer.lost || !rx.ring || rx.returned_ring == 0) return;
  ++credit_messages_;
  control_.send_control(peer, Purpose::credit,
                        {.type = wire::Control::credit,
                         .request = rx.ring_request,
                         .ring_entries = rx.returned_ring});
}

void Credits::return_credit(Peer& peer) {
  if (peer.lost) return;
  if (flow_.returned(peer.rx.grant)) send_credits(peer);
  serve_credit_waiters();
}

// `few`: more credits may not be returned.
void Credits::serve_credit_waiters(bool few) {
  while (flow_.has_waiting()) {
    CreditGrant* const grant = flow_.serve(few);
    if (grant == nullptr) return;
    send_credits(peer_table_.peers()[grant->peer]);
  }
}

void Credits::sweep_credits(Nanoseconds now) {
  flow_.sweep(peer_table_.peers().size(),
              [this](std::size_t i) -> CreditGrant& { return peer_table_.peers()[i].rx.grant; });
  serve_credit_waiters(true);
  flow_.end_sweep(now);
}

void Credits::take_credits(Peer& peer, const wire::Header& header) {
  if (header.credits > 0) {
    peer.tx.credits = std::min(peer.tx.credits + header.credits, wire::kMostCredits);
  }
  if ((header.flags & wire::kPrivateCredits) != 0) [[unlikely]] {
    if (header.ring == static_cast<std::uint8_t>(peer.state->tx.private_queue.request)) {
      on_private_credits(peer, peer.state->tx.private_queue.request, header.ring_credits);
    }
    return;
  }
  // Late credits of an earlier ring are ignored.
  if (header.ring_credits > 0 && over_ring(peer.tx.kind) &&
      header.ring == static_cast<std::uint8_t>(peer.state->tx.ring.request)) {
    peer.state.ref().tx.ring.give_credits(header.ring_credits);
  }
}

// At the sender. Those of receives that are gone may come late.
void Credits::on_private_credits(Peer& peer, std::uint32_t request,
                                 std::uint32_t credits) noexcept {
  if (request == 0 || request != peer.state->tx.private_queue.request) return;
  PrivateSender& sender = peer.state.ref().tx.private_queue;
  sender.credits = std::min(sender.credits + credits, wire::kMostCredits);
}

}  // namespace turnout
