// SPDX-License-Identifier: BSD-3-Clause
// What the sender of a direction measures of its side and tells the receiver, who chooses the
// channel: the policy `turnout`. One comparison and some increments a message; one small message to
// a peer at most in an interval, when something changed by more than a fifth.
#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "core/endpoint/endpoint_core.h"

namespace turnout {
namespace {

// Shares differ if they do by a fifth, and by more than what noise makes of small ones.
bool changed(std::uint16_t from, std::uint16_t to) noexcept {
  const int difference = std::abs(int{to} - int{from});
  return difference > 20 && 5 * difference > std::max(int{from}, int{to});
}
bool changed(std::uint32_t from, std::uint32_t to) noexcept {
  return 5 * (from > to ? from - to : to - from) > std::max(from, to);
}

std::uint16_t thousandths(double share) noexcept {
  return static_cast<std::uint16_t>(std::lround(std::clamp(share, 0.0, 1.0) * wire::kWhole));
}

}  // namespace

// Messages over RC count as if they had gone over the peer's initiator, so that a hint says what
// going back would cost.
void EndpointCore::count_sent(Peer& peer) noexcept {
  ++peer.sent_now;
  ++sent_now_;
  PeerId& target = dci_targets_[peer.data_queue];
  if (target == peer.id || over_datagrams()) return;
  target = peer.id;
  ++peer.switched_now;
  ++switched_now_;
}

// At the end of an interval.
void EndpointCore::tell_hints() {
  std::uint64_t received = 0;
  for (const auto& peer : peers_) received += peer->window;
  busy_ = selection::busy_share(costs_, sent_now_, switched_now_, received,
                                static_cast<double>(interval_));
  const std::uint16_t busy = thousandths(busy_);
  const bool full = !tears_down() && room_for_channels() < rc_bytes_;
  std::map<NodeKey, std::uint32_t> on_node;  // processes that we sent to
  if (may_use_xrc()) {
    for (const auto& peer : peers_) {
      if (peer->sent_now > 0 && !peer->lost && !peer->self)
        ++on_node[{peer->address.lid, peer->address.gid}];
    }
  }
  for (const auto& pointer : peers_) {
    Peer& peer = *pointer;
    const std::uint32_t sent = std::exchange(peer.sent_now, 0);
    const std::uint32_t turned = std::exchange(peer.switched_now, 0);
    if (sent == 0 || peer.lost || peer.self || peer.remote_index == wire::kUnknownIndex) continue;
    const std::uint16_t switched = thousandths(static_cast<double>(turned) / sent);
    const auto node = on_node.find({peer.address.lid, peer.address.gid});
    // One process alone shares nothing.
    const std::uint32_t here = node == on_node.end() || node->second < 2 ? 0 : node->second;
    if (!changed(peer.told_busy, busy) && !changed(peer.told_switched, switched) &&
        !changed(peer.told_rc, active_rc_) && !changed(peer.told_here, here) &&
        peer.told_full == full) {
      continue;
    }
    peer.told_here = here;
    peer.told_full = full;
    peer.told_busy = busy;
    peer.told_switched = switched;
    peer.told_rc = active_rc_;
    wire::ControlMessage message;
    message.type = wire::Control::hint;
    message.refusal = full ? wire::Refusal::budget : wire::Refusal::none;
    message.credits = busy;
    message.ring_credits = switched;
    message.ring_entries = std::min(active_rc_, wire::kMostQueuePairs);
    message.qp_number = std::min(here, wire::kMostQueuePairs);
    send_control(peer, Purpose::credit, message);
  }
  sent_now_ = switched_now_ = 0;
}

void EndpointCore::on_hint(Peer& peer, const wire::ControlMessage& message) noexcept {
  const auto share = [](std::uint16_t thousandths) {
    return static_cast<float>(thousandths) / static_cast<float>(wire::kWhole);
  };
  peer.hint.busy = share(message.credits);
  peer.hint.switched = share(message.ring_credits);
  peer.hint.active_rc = message.ring_entries;
  peer.hint.here =
      static_cast<std::uint16_t>(std::min<std::uint32_t>(message.qp_number, UINT16_MAX));
  peer.hint.full = message.refusal == wire::Refusal::budget;
}

}  // namespace turnout
