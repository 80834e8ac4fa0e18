// SPDX-License-Identifier: BSD-3-Clause
#include "core/connection/eviction.h"

namespace turnout {
namespace {
// How often the queue is served within a set-up time while a peer is queued.
constexpr Nanoseconds kLooks = 4;
}  // namespace

bool ConnectionEviction::wait(PeerEviction& peer, Nanoseconds now) {
  if (waiting_.size() >= slots_) return false;
  peer.waits_for_slot = true;
  peer.slot_requested_at = now;
  waiting_.push_back(&peer);
  ++report_.waited;
  next_service_ = std::min(next_service_, now + setup_time_ / kLooks);
  return true;
}

void ConnectionEviction::stop_waiting(PeerEviction& peer) noexcept {
  waiting_.remove(&peer);
  peer.waits_for_slot = false;
  peer.parked_qp_id = 0;
}

void ConnectionEviction::served(Nanoseconds now) noexcept {
  next_service_ = waiting_.empty() ? INT64_MAX : now + setup_time_ / kLooks;
}

std::size_t ConnectionEviction::slots_coming(std::size_t resetting,
                                             Nanoseconds now) const noexcept {
  std::size_t coming = resetting;
  for (const ConnectionUse* const use : victims_.connected()) {
    const auto& peer = static_cast<const PeerEviction&>(*use);
    if (peer.disconnecting && now - peer.disconnecting_since < slot_timeout()) ++coming;
  }
  return coming;
}

void ConnectionEviction::made(PeerEviction& peer, Nanoseconds now) {
  ++report_.made;
  if (!active()) return;
  peer.connected_at = now;
  victims_.add(peer, peer.cost > 0 ? peer.cost : static_cast<double>(setup_time_));
}

void ConnectionEviction::begin_disconnect(PeerEviction& peer, bool chosen,
                                          Nanoseconds now) noexcept {
  victims_.tear_down(peer, chosen);
  ++(chosen ? report_.tear_downs : report_.tear_downs_by_peers);
  peer.disconnecting = true;
  peer.chosen = chosen;
  peer.disconnecting_since = now;
}

Nanoseconds ConnectionEviction::gone(PeerEviction& peer) noexcept {
  const Nanoseconds chosen_at = peer.chosen ? peer.disconnecting_since : 0;
  peer.disconnecting = peer.chosen = false;
  victims_.remove(peer);
  return chosen_at;
}

void ConnectionEviction::freed(Nanoseconds chosen_at, Nanoseconds now) noexcept {
  const auto took = static_cast<std::uint64_t>(now - chosen_at);
  ++report_.freed;
  report_.time += took;
  report_.time_most = std::max(report_.time_most, took);
}

}  // namespace turnout
