// SPDX-License-Identifier: BSD-3-Clause
// ConnectionEviction: which connections are torn down for which peers, where as many exist as may
// (max_conn, max_active_rc, rc_pool) or the budget has no room for one more: policies that connect
// at a peer's first message [ACTS].
//
// A peer that needs a connection waits for a slot, in line. For every one that waits a connection
// is evicted, unless one is about to go already. Which one Victims says. What a connection's state
// allows, and the messages of a tear-down, are the endpoint's (connection/tear_down.cpp).
//
// The endpoint owns it and calls it from its thread; it keeps one PeerEviction for each peer, at a
// fixed address. Times are nanoseconds. No errors.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "core/connection/victims.h"
#include "core/report/report.h"
#include "core/time/clock.h"
#include "core/types/linked_list.h"

namespace turnout {

struct PeerEviction : ConnectionUse {
  Nanoseconds connected_at = 0;         // if it has a connection
  Nanoseconds disconnecting_since = 0;  // if that is being torn down
  Nanoseconds slot_requested_at = 0;    // if it waits
  PeerEviction* next = nullptr;         // in the line of those that wait
  PeerEviction* previous = nullptr;
  std::uint32_t parked_qp_id = 0;  // waits for the peer's request, with this end; 0: for ours
  bool disconnecting = false;      // the connection is being torn down
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
  // A tear-down takes the steps of a set-up backwards, so a slot comes after about one set-up time,
  // for each of a few that wait. Later, whoever asked had better go on as it is, and ask again if
  // it still wants to.
  [[nodiscard]] Nanoseconds slot_timeout() const noexcept { return 8 * setup_time_; }

  // The hot path: the peer was sent to or heard.
  void touch(PeerEviction& peer, bool over_connection) noexcept {
    if (active()) victims_.touch(peer, over_connection);
  }

  [[nodiscard]] bool has_waiting() const noexcept { return !waiting_.empty(); }
  [[nodiscard]] std::size_t waiting() const noexcept { return waiting_.size(); }
  [[nodiscard]] PeerEviction* first_waiting() const noexcept { return waiting_.first(); }
  // Puts the peer in line. No more wait than there are slots: who came later would be served by
  // connections that were made for those before and carried nothing worth their making. False: it
  // does not wait.
  [[nodiscard]] bool wait(PeerEviction& peer, Nanoseconds now);
  void stop_waiting(PeerEviction& peer) noexcept;
  // It has waited too long.
  [[nodiscard]] bool is_late(const PeerEviction& peer, Nanoseconds now) const noexcept {
    return now - peer.slot_requested_at >= slot_timeout();
  }
  void count_late() noexcept { ++report_.gave_up; }
  // When the line is to be looked at; INT64_MAX: nobody waits.
  [[nodiscard]] Nanoseconds next_service() const noexcept { return next_service_; }
  void served(Nanoseconds now) noexcept;
  void no_service() noexcept { next_service_ = INT64_MAX; }

  // Slots that will be free without another eviction; `resetting` queue pairs become free anyway.
  [[nodiscard]] std::size_t slots_coming(std::size_t resetting, Nanoseconds now) const noexcept;
  // Whether there will be a slot for a request of the peer's: as many connections can go, or are
  // going, as are waited for. `can_go`: whether a connection's state allows it.
  template <class CanGo>
  [[nodiscard]] bool can_park(const PeerEviction& peer, std::size_t resetting, Nanoseconds now,
                              CanGo&& can_go) const {
    std::size_t coming = slots_coming(resetting, now);
    for (const ConnectionUse* const use : victims_.connected()) {
      if (can_go(static_cast<const PeerEviction&>(*use))) ++coming;
    }
    return coming >= waiting_.size() + (peer.waits_for_slot ? 0 : 1);
  }
  // The connection to evict next; null: none may go. No connection goes sooner than a set-up time
  // after it was made, so that no more time is spent on making connections than they then serve;
  // nor before it carried something, unless it has had twice that time to.
  template <class CanGo>
  [[nodiscard]] PeerEviction* choose(Nanoseconds now, CanGo&& can_go) const {
    return static_cast<PeerEviction*>(victims_.choose([&](const ConnectionUse& use) {
      const auto& peer = static_cast<const PeerEviction&>(use);
      return can_go(peer) && now - peer.connected_at >= (peer.carried ? 1 : 2) * setup_time_;
    }));
  }

  void made(PeerEviction& peer, Nanoseconds now);
  void begin_disconnect(PeerEviction& peer, bool chosen, Nanoseconds now) noexcept;
  // The connection is gone. When it was chosen for eviction; 0: it was not.
  [[nodiscard]] Nanoseconds gone(PeerEviction& peer) noexcept;
  // Its slot is free.
  void freed(Nanoseconds chosen_at, Nanoseconds now) noexcept;

  [[nodiscard]] ConnectionsReport& report() noexcept { return report_; }
  [[nodiscard]] const ConnectionsReport& report() const noexcept { return report_; }

 private:
  Victims victims_;
  std::uint64_t slots_ = 0;
  Nanoseconds setup_time_ = 0;  // of a connection, as the costs have it
  LinkedList<PeerEviction> waiting_;
  Nanoseconds next_service_ = INT64_MAX;
  ConnectionsReport report_;
};

}  // namespace turnout
