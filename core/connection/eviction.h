// SPDX-License-Identifier: BSD-3-Clause
// ConnectionEviction: which connections are evicted for which peers, if as many exist as allowed
// (max_conn, max_active_rc, rc_pool) or the budget has no room for another one. For the policies
// that connect at a peer's first message [ACTS].
//
// A peer that needs a connection slot is queued. For each queued peer a connection is evicted,
// unless enough are being evicted already. Victims selects it. The endpoint decides what a
// connection's state allows and sends the messages (channels/connection_slots.cpp).
//
// The endpoint owns it and calls it from its thread; it keeps one PeerEviction for each peer, at a
// fixed address. Times are nanoseconds. No errors.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstdint>

#include "core/connection/victims.h"
#include "core/report/report.h"
#include "core/time/clock.h"
#include "core/types/linked_list.h"

namespace turnout {

struct PeerEviction : ConnectionUse {
  Nanoseconds connected_at = 0;         // if it has a connection
  Nanoseconds disconnecting_since = 0;  // if it is being evicted
  Nanoseconds slot_requested_at = 0;    // if it is queued
  PeerEviction* next = nullptr;         // in the queue
  PeerEviction* previous = nullptr;
  std::uint32_t parked_qp_id = 0;  // queued for the peer's request with this QP id; 0: for ours
  bool disconnecting = false;      // the connection is being evicted
  bool chosen = false;             // by us
  bool waits_for_slot = false;
};

class ConnectionEviction {
 public:
  // `slots`: connections that may exist.
  void configure(VictimOrder order, std::uint64_t slots) noexcept {
    victims_ = Victims(order, slots);
    slots_ = slots;
  }
  void set_setup_time(Nanoseconds time) noexcept { setup_time_ = time; }
  // Whether connections are evicted at all.
  [[nodiscard]] bool active() const noexcept { return victims_.order() != VictimOrder::none; }
  [[nodiscard]] Nanoseconds setup_time() const noexcept { return setup_time_; }
  // A disconnect takes about as long as a set-up, so a slot is free after about one set-up time for
  // each of a few queued peers. After that a peer continues without a connection and may request
  // one again.
  [[nodiscard]] Nanoseconds slot_timeout() const noexcept { return 8 * setup_time_; }

  // Hot path: a message was sent to the peer or received from it.
  void touch(PeerEviction& peer, bool over_connection) noexcept {
    assert(active());
    victims_.touch(peer, over_connection);
  }

  [[nodiscard]] bool has_waiting() const noexcept { return !waiting_.empty(); }
  [[nodiscard]] std::size_t waiting() const noexcept { return waiting_.size(); }
  [[nodiscard]] PeerEviction* first_waiting() const noexcept { return waiting_.first(); }
  // Queues the peer. At most as many are queued as there are slots: a later one would evict a
  // connection that was made for an earlier one and has hardly been used. False: not queued.
  [[nodiscard]] bool wait(PeerEviction& peer, Nanoseconds now) {
    if (waiting_.size() >= slots_) return false;
    peer.waits_for_slot = true;
    peer.slot_requested_at = now;
    waiting_.push_back(&peer);
    ++report_.waited;
    next_service_ = std::min(next_service_, now + setup_time_ / kLooks);
    return true;
  }
  void stop_waiting(PeerEviction& peer) noexcept {
    waiting_.remove(&peer);
    peer.waits_for_slot = false;
    peer.parked_qp_id = 0;
  }
  // It has been queued for too long.
  [[nodiscard]] bool is_late(const PeerEviction& peer, Nanoseconds now) const noexcept {
    return now - peer.slot_requested_at >= slot_timeout();
  }
  void count_late() noexcept { ++report_.gave_up; }
  // When the queue is to be served; INT64_MAX: it is empty.
  [[nodiscard]] Nanoseconds next_service() const noexcept { return next_service_; }
  void served(Nanoseconds now) noexcept {
    next_service_ = waiting_.empty() ? INT64_MAX : now + setup_time_ / kLooks;
  }
  void no_service() noexcept { next_service_ = INT64_MAX; }

  // Slots that will be free without another eviction; `resetting` queue pairs become free anyway.
  [[nodiscard]] std::size_t slots_coming(std::size_t resetting, Nanoseconds now) const noexcept {
    std::size_t coming = resetting;
    for (const ConnectionUse* const use : victims_.connected()) {
      const auto& peer = static_cast<const PeerEviction&>(*use);
      if (peer.disconnecting && now - peer.disconnecting_since < slot_timeout()) ++coming;
    }
    return coming;
  }
  // Whether there will be a slot for a request of the peer's: as many connections can be evicted,
  // or are being evicted, as peers are queued. `can_go`: whether a connection's state allows it.
  template <class CanGo>
  [[nodiscard]] bool can_park(const PeerEviction& peer, std::size_t resetting, Nanoseconds now,
                              CanGo&& can_go) const {
    std::size_t coming = slots_coming(resetting, now);
    for (const ConnectionUse* const use : victims_.connected()) {
      if (can_go(static_cast<const PeerEviction&>(*use))) ++coming;
    }
    return coming >= waiting_.size() + (peer.waits_for_slot ? 0 : 1);
  }
  // The connection to evict next; null: none. No connection is evicted within one set-up time after
  // it was made, so that connections serve at least as long as their set-up takes; an unused one
  // not within two set-up times.
  template <class CanGo>
  [[nodiscard]] PeerEviction* choose(Nanoseconds now, CanGo&& can_go) const {
    return static_cast<PeerEviction*>(victims_.choose([&](const ConnectionUse& use) {
      const auto& peer = static_cast<const PeerEviction&>(use);
      return can_go(peer) && now - peer.connected_at >= (peer.carried ? 1 : 2) * setup_time_;
    }));
  }

  void made(PeerEviction& peer, Nanoseconds now) {
    ++report_.made;
    if (!active()) return;
    peer.connected_at = now;
    victims_.add(peer, peer.cost > 0 ? peer.cost : static_cast<double>(setup_time_));
  }
  void begin_disconnect(PeerEviction& peer, bool chosen, Nanoseconds now) noexcept {
    victims_.tear_down(peer, chosen);
    ++(chosen ? report_.tear_downs : report_.tear_downs_by_peers);
    peer.disconnecting = true;
    peer.chosen = chosen;
    peer.disconnecting_since = now;
  }
  // The connection was closed. Returns when it was chosen for eviction; 0: it was not.
  [[nodiscard]] Nanoseconds gone(PeerEviction& peer) noexcept {
    const Nanoseconds chosen_at = peer.chosen ? peer.disconnecting_since : 0;
    peer.disconnecting = peer.chosen = false;
    victims_.remove(peer);
    return chosen_at;
  }
  // Its slot is free.
  void freed(Nanoseconds chosen_at, Nanoseconds now) noexcept {
    const auto took = static_cast<std::uint64_t>(now - chosen_at);
    ++report_.freed;
    report_.time += took;
    report_.time_most = std::max(report_.time_most, took);
  }

  [[nodiscard]] ConnectionsReport& report() noexcept { return report_; }
  [[nodiscard]] const ConnectionsReport& report() const noexcept { return report_; }

 private:
  // How often the queue is served within a set-up time while a peer is queued.
  static constexpr Nanoseconds kLooks = 4;

  Victims victims_;
  std::uint64_t slots_ = 0;
  Nanoseconds setup_time_ = 0;  // of a connection, from the costs file
  LinkedList<PeerEviction> waiting_;
  Nanoseconds next_service_ = INT64_MAX;
  ConnectionsReport report_;
};

}  // namespace turnout
