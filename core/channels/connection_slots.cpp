// SPDX-License-Identifier: BSD-3-Clause
// Eviction of connections, if as many exist as allowed (max_conn, max_active_rc, rc_pool) or the
// budget has no room for another one. For the policies that connect at a peer's first message.
//
// A peer that needs a connection is queued, and for each queued peer a connection is evicted,
// unless enough are being evicted already. Either end may start, or both: it sends `disconnect`.
// Each end then moves the direction that it receives to the default transport as soon as that
// direction is steady, with the same messages as any switch back (request, switched, closed). No
// message waits for this. When neither direction uses the queue pair it is RESET and reused.
//
// There is no deadlock between endpoints that hold slots and wait for each other's. A disconnect
// needs no slot: its messages and the stream use the default transport, and it waits only for
// messages and reads in flight. A peer queued for a request of ours has sent nothing and holds no
// slot. A request of the peer's, for which the peer does hold a slot, is queued only if as many
// connections here can be evicted, or are being evicted, as are needed; otherwise it is refused at
// once. So it waits only for disconnects. A peer that does not answer `disconnect` can keep a slot
// while it lives; a request is refused after slot_timeout() all the same, and another victim is
// chosen.
#include "core/channels/connection_slots.h"
#include "base/log.h"

namespace turnout {
void ConnectionSlots::limit_connections() {
  eviction_.set_setup_time(
      std::max<Nanoseconds>(static_cast<Nanoseconds>(context_.costs.setup_rc_time.value), 1000));
  const bool on_demand =
      connects_on_demand(context_.settings.policy) && context_.settings.test_switch_every == 0;
  context_.traits.connects_first = on_demand;
  const std::uint64_t most = context_.settings.max_conn;
  const bool asked = most > 0 || context_.settings.is_given("eviction");
  if (most > 0) {
    if (on_demand && !context_.settings.is_given("max_active_rc"))
      context_.settings.max_active_rc = most;
    if (on_demand && !context_.settings.is_given("rc_pool")) context_.settings.rc_pool = most;
    context_.settings.max_active_rc = std::min(context_.settings.max_active_rc, most);
    context_.settings.rc_pool = std::min(context_.settings.rc_pool, most);
  }
  if (!on_demand || !asked || context_.settings.max_active_rc == 0) return;
  eviction_.configure(victim_order_named(context_.settings.eviction).value_or(VictimOrder::none),
                      rc_.connection_slots());
  context_.traits.waits_for_connections = eviction_.active() &&
                                          context_.simulation.policy != nullptr &&
                                          context_.simulation.policy->waits_for_connections;
}

// What want_rc() will find.
bool ConnectionSlots::has_slot(const Peer& peer, bool with_ring) const noexcept {
  if (rc_.active_rc() >= context_.settings.max_active_rc) return false;
  if (resources_.rc_pool.empty() && !rc_.may_make_rc()) return false;
  const std::uint64_t bytes =
      (resources_.rc_pool.empty() ? context_.rc_bytes : 0) +
      (with_ring && !peer.state->rx.ring ? peer_table_.ring_shape().bytes() : 0);
  return bytes == 0 || context_.account.available() >= bytes + peer_table_.reserved_headroom();
}

// For a request of ours. False: not queued; retried with the next message.
bool ConnectionSlots::request_slot(Peer& peer) {
  if (peer.connection->eviction.waits_for_slot) return true;
  const Nanoseconds now = context_.clock.now();
  if (context_.closing || !eviction_.wait(peer.connect().eviction, now)) return false;
  peer.change.make().reason = "waiting for a connection slot";
  evict_for_waiters(now);
  return true;
}

// For a request of the peer's. False: no slot will be free for it.
bool ConnectionSlots::park(Peer& peer, std::uint32_t qp_id) {
  const auto can = [this](const PeerEviction& eviction) { return can_go(eviction); };
  // Checked first: queueing may evict a connection.
  if (!eviction_.can_park(peer.connection->eviction, rc_.resetting_rc(), context_.clock.now(),
                          can) ||
      !request_slot(peer))
    return false;
  peer.connect().eviction.parked_qp_id = qp_id;
  return true;
}

// Serves the first of the queue when a slot is free, or refuses it after the timeout.
void ConnectionSlots::serve_slot_waiters() {
  if (!eviction_.has_waiting() || context_.closing) return eviction_.no_service();
  const Nanoseconds now = context_.clock.now();
  while (PeerEviction* const first = eviction_.first_waiting()) {
    Peer& peer = peer_table_.peers()[first->peer];
    const std::uint32_t parked = first->parked_qp_id;
    const bool late = eviction_.is_late(*first, now);
    const ChannelKind to = events_.first_channel(peer);
    if (!late && !peer.connection->has_rc() && !has_slot(peer, parked == 0 && over_ring(to))) break;
    if (late) eviction_.count_late();
    eviction_.stop_waiting(*first);
    if (parked != 0) {
      events_.take_request(peer, parked);
    } else if (peer.rx.kind == context_.default_channel && !first->disconnecting && over_rc(to)) {
      events_.change_channel(peer, to, context_.default_channel,
                             std::string(selection::explain(selection::Reason::first_message)), 0);
    }
  }
  evict_for_waiters(now);
  eviction_.served(now);
}

void ConnectionSlots::evict_for_waiters(Nanoseconds now) {
  if (!eviction_.has_waiting()) return;
  for (std::size_t coming = eviction_.slots_coming(rc_.resetting_rc(), now);
       coming < eviction_.waiting(); ++coming) {
    PeerEviction* const victim =
        eviction_.choose(now, [this](const PeerEviction& eviction) { return can_go(eviction); });
    if (victim == nullptr) return;
    tear_down(peer_table_.peers()[victim->peer], now);
  }
}

bool ConnectionSlots::can_go(const PeerEviction& eviction) const noexcept {
  const Peer& peer = peer_table_.peers()[eviction.peer];
  const bool steady = peer.connection->rc && peer.connection->rc_job == nullptr &&
                      peer.rx.state == ReceiveState::steady && peer.tx.state == SendState::steady &&
                      (over_rc(peer.rx.kind) || over_rc(peer.tx.kind));
  return steady && !eviction.disconnecting && !peer.lost && !peer.shut_down;
}

void ConnectionSlots::tear_down(Peer& peer, Nanoseconds now) {
  eviction_.begin_disconnect(peer.connect().eviction, true, now);
  control_.send_control(peer, Purpose::establishment,
                        {.type = wire::Control::disconnect, .qp_id = peer.connection->rc->qp_id()});
  continue_disconnect(peer);
}

// Under any policy. Ignored if it names an earlier connection.
void ConnectionSlots::on_disconnect(Peer& peer, const wire::ControlMessage& message) {
  if (context_.closing || !peer.connection->rc ||
      peer.connection->rc->connected_to() != message.qp_id)
    return;
  if (!peer.connection->eviction.disconnecting)
    eviction_.begin_disconnect(peer.connect().eviction, false, context_.clock.now());
  continue_disconnect(peer);
  rc_.drop_rc_if_unused(peer);
}

// For the direction that we receive; called whenever it may have become steady.
void ConnectionSlots::continue_disconnect(Peer& peer) {
  if (!peer.connection->eviction.disconnecting || peer.lost || context_.closing ||
      peer.rx.state != ReceiveState::steady || !over_rc(peer.rx.kind)) {
    return;
  }
  events_.change_channel(peer, context_.default_channel, context_.default_channel,
                         "another peer needs its connection slot", 0);
  // Unexpected messages keep their ring in use.
  if (peer.state->rx.ring && peer.rx.retained > 0) (void)unexpected_.relieve(peer);
}

}  // namespace turnout
