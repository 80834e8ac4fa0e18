// SPDX-License-Identifier: BSD-3-Clause
// Connections that give their place to others, where as many exist as may (max_conn, max_active_rc,
// rc_pool) or the budget has no room for one more: the policies that connect at a peer's first
// message.
//
// Who wants a connection stands in line, and for everyone there a connection is torn down, unless
// one is about to go already. Either end starts, or both at once: it says `leave`, and from then on
// each end returns the direction it receives to the start service as soon as that direction is
// steady, by the messages that every return takes (request, switched, closed). Nothing that is sent
// waits for that. When both directions have left the queue pair it is RESET and serves another.
//
// No cycle of endpoints holds places for ever, each waiting for the other's. A tear-down takes no
// place: its messages and the stream go over the start service, and what it waits for, messages
// under way and reads of them, ends without one. Who stands in line for a request of its own has
// sent nothing and holds no place for it. A request of the peer's, for which the peer does hold
// one, is kept in line only if as many connections stand here that can go, or are going, as are
// wanted, and refused at once otherwise, so when all connections here are being made: it waits for
// a tear-down, which waits for no place. An end that does not answer `leave` can keep a place for
// as long as it lives; a request is refused after slot_timeout() all the same, and another
// victim is chosen.
#include <fmt/format.h>

#include <algorithm>

#include "base/log.h"
#include "core/endpoint/endpoint_core.h"

namespace turnout {
namespace {
// The line is looked at so often in a set-up time while somebody stands there, whatever happens.
constexpr Nanoseconds kLooks = 4;
}  // namespace

void EndpointCore::limit_connections() {
  setup_time_ = std::max<Nanoseconds>(static_cast<Nanoseconds>(costs_.setup_rc_time.value), 1000);
  const bool on_demand = connects_on_demand(settings_.policy) && settings_.test_switch_every == 0;
  connects_first_ = on_demand;
  const std::uint64_t most = settings_.max_conn;
  const bool asked = most > 0 || settings_.is_given("eviction");
  if (most > 0) {
    if (on_demand && !settings_.is_given("max_active_rc")) settings_.max_active_rc = most;
    if (on_demand && !settings_.is_given("rc_pool")) settings_.rc_pool = most;
    settings_.max_active_rc = std::min(settings_.max_active_rc, most);
    settings_.rc_pool = std::min(settings_.rc_pool, most);
  }
  if (!on_demand || !asked || settings_.max_active_rc == 0) return;
  victims_ = Victims(victim_order_named(settings_.eviction).value_or(VictimOrder::none),
                     connection_slots());
  waits_for_connections_ =
      tears_down() && processor_ != nullptr && processor_->waits_for_connections();
}

// As want_rc() will find it.
bool EndpointCore::has_slot(const Peer& peer, bool with_ring) const noexcept {
  if (active_rc_ >= settings_.max_active_rc) return false;
  if (rc_pool_.empty() && !may_make_rc()) return false;
  const std::uint64_t bytes =
      (rc_pool_.empty() ? rc_bytes_ : 0) +
      (with_ring && !peer.ring ? settings_.ring_entries * settings_.ring_entry_size : 0);
  return bytes == 0 || account_.available() >= bytes + reserved_headroom();
}

// For a request of ours. No more stand in line than there are places: who came later would be
// served by connections that were made for those before and carried nothing worth their making.
// False: not in line, to ask again with the next message.
bool EndpointCore::request_slot(Peer& peer) {
  if (peer.waits_for_slot) return true;
  if (closing_ || slot_waiters_.size() >= connection_slots()) return false;
  const Nanoseconds now = clock_.now();
  peer.waits_for_slot = true;
  peer.slot_requested_at = now;
  peer.reason = "waiting for a connection slot";
  slot_waiters_.push_back(&peer);
  ++connections_.waited;
  next_slot_service_ = std::min(next_slot_service_, now + setup_time_ / kLooks);
  evict_for_waiters(now);
  return true;
}

// For a request of the peer's. False: nobody's place will be free for it.
bool EndpointCore::park(Peer& peer, std::uint32_t end) {
  std::size_t coming = slots_coming(clock_.now());
  for (const ConnectionUse* const use : victims_.connected()) {
    if (may_go(*use, INT64_MAX)) ++coming;  // as soon as it is old enough
  }
  // Asked first: to stand in line may tear a connection down.
  if (coming < slot_waiters_.size() + (peer.waits_for_slot ? 0 : 1) || !request_slot(peer))
    return false;
  peer.parked_end = end;
  return true;
}

void EndpointCore::stop_waiting_for_slot(Peer& peer) {
  slot_waiters_.remove(&peer);
  peer.waits_for_slot = false;
  peer.parked_end = 0;
}

// Whoever is first goes on when there is a place, or when it has waited too long: then it is
// refused in the words of what it lacks.
void EndpointCore::serve_slot_waiters() {
  if (slot_waiters_.empty() || closing_) {
    next_slot_service_ = INT64_MAX;
    return;
  }
  const Nanoseconds now = clock_.now();
  while (Peer* const first = slot_waiters_.first()) {
    Peer& peer = *first;
    const std::uint32_t parked = peer.parked_end;
    const bool late = now - peer.slot_requested_at >= slot_timeout();
    const ChannelKind to = first_channel(peer);
    if (!late && !peer.has_rc() && !has_slot(peer, parked == 0 && over_ring(to))) break;
    if (late) ++connections_.gave_up;
    stop_waiting_for_slot(peer);
    if (parked != 0) {
      take_request(peer, parked);
    } else if (peer.receive_kind == default_channel_ && !peer.leaving && over_rc(to)) {
      change_channel(peer, to, default_channel_,
                     std::string(selection::explain(selection::Reason::first_message)), 0);
    }
  }
  evict_for_waiters(now);
  next_slot_service_ = slot_waiters_.empty() ? INT64_MAX : now + setup_time_ / kLooks;
}

// Places that will be free without another tear-down.
std::size_t EndpointCore::slots_coming(Nanoseconds now) const noexcept {
  std::size_t coming = resetting_rc_;
  for (const ConnectionUse* const use : victims_.connected()) {
    const Peer& peer = *peers_[use->peer];
    if (peer.leaving && now - peer.leaving_since < slot_timeout()) ++coming;
  }
  return coming;
}

void EndpointCore::evict_for_waiters(Nanoseconds now) {
  if (slot_waiters_.empty()) return;
  for (std::size_t coming = slots_coming(now); coming < slot_waiters_.size(); ++coming) {
    ConnectionUse* const victim =
        victims_.choose([&](const ConnectionUse& use) { return may_go(use, now); });
    if (victim == nullptr) return;
    tear_down(*peers_[victim->peer], now);
  }
}

// No connection goes sooner than a set-up time after it was made, so that no more time is spent on
// making connections than they then serve; nor before it carried something, unless it has had twice
// that time to.
bool EndpointCore::may_go(const ConnectionUse& use, Nanoseconds now) const noexcept {
  const Peer& peer = *peers_[use.peer];
  const bool steady = peer.rc && peer.rc_job == nullptr &&
                      peer.receive_state == ReceiveState::steady &&
                      peer.send_state == SendState::steady &&
                      (over_rc(peer.receive_kind) || over_rc(peer.send_kind));
  return steady && !peer.leaving && !peer.lost && !peer.said_bye &&
         now - peer.connected_at >= (use.carried ? 1 : 2) * setup_time_;
}

// By our choice, or the peer's.
void EndpointCore::begin_leaving(Peer& peer, bool chosen, Nanoseconds now) {
  victims_.tear_down(peer.use, chosen);
  ++(chosen ? connections_.tear_downs : connections_.tear_downs_by_peers);
  peer.leaving = true;
  peer.chosen = chosen;
  peer.leaving_since = now;
}

void EndpointCore::tear_down(Peer& peer, Nanoseconds now) {
  begin_leaving(peer, true, now);
  wire::ControlMessage message;
  message.type = wire::Control::leave;
  message.qp_number = peer.rc->end();
  send_control(peer, Purpose::establishment, message);
  go_on_leaving(peer);
}

// Under any policy. Of a connection that is gone, or that is being made anew, it says nothing.
void EndpointCore::on_leave(Peer& peer, const wire::ControlMessage& message) {
  if (closing_ || !peer.rc || peer.rc->connected_to() != message.qp_number) return;
  if (!peer.leaving) begin_leaving(peer, false, clock_.now());
  go_on_leaving(peer);
  drop_rc_if_unused(peer);
}

// The direction that we receive; called whenever it may have become steady.
void EndpointCore::go_on_leaving(Peer& peer) {
  if (!peer.leaving || peer.lost || closing_ || peer.receive_state != ReceiveState::steady ||
      !over_rc(peer.receive_kind)) {
    return;
  }
  change_channel(peer, default_channel_, default_channel_, "another peer needs its connection slot",
                 0);
  // Messages that nobody waits for keep the ring they lie in.
  if (peer.ring && peer.withheld > 0) (void)relieve(peer);
}

void EndpointCore::connection_made(Peer& peer) {
  ++connections_.made;
  if (!tears_down()) return;
  peer.connected_at = clock_.now();
  victims_.add(peer.use, peer.use.cost > 0 ? peer.use.cost : static_cast<double>(setup_time_));
}

Nanoseconds EndpointCore::connection_gone(Peer& peer) noexcept {
  const Nanoseconds chosen_at = peer.chosen ? peer.leaving_since : 0;
  peer.leaving = peer.chosen = false;
  victims_.remove(peer.use);
  return chosen_at;
}

void EndpointCore::slot_freed(Nanoseconds chosen_at) noexcept {
  const auto took = static_cast<std::uint64_t>(clock_.now() - chosen_at);
  ++connections_.freed;
  connections_.time += took;
  connections_.time_most = std::max(connections_.time_most, took);
}

// A one-sided operation asks for a connection like a message that comes.
void EndpointCore::use_one_sided(Peer& peer) {
  if (tears_down()) victims_.touch(peer.use, peer.use.connected());
  if (peer.remote_index != wire::kUnknownIndex) {
    on_message_counted(peer);
  } else if (!peer.self) {
    introduce(peer);
  }
}

}  // namespace turnout
