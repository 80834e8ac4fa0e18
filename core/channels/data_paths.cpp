// SPDX-License-Identifier: BSD-3-Clause
#include "core/channels/data_paths.h"
#include "base/log.h"

namespace turnout {

// A one-sided operation requests a connection, as a received message does.
void DataPaths::use_one_sided(Peer& peer) {
  count_use(eviction_, peer, peer.connection->eviction.connected());
  if (peer.remote_index != wire::kUnknownIndex) {
    selector_.on_message_counted(peer);
  } else if (!peer.self) {
    sender_.send_wireup(peer);
  }
}

DataPath DataPaths::data_path(Peer& peer) {
  if (peer.connection->recovery && !peer.lost) return DataPath::wait;
  if (!context_.over_datagrams()) return DataPath::dc;
  if (peer.lost) return DataPath::wait;  // the caller handles it
  // The queue pair can be used until `closed` is sent, also during a switch back; but no new
  // transfer starts on a connection that is being evicted.
  if (peer.connection->rc && peer.rx.kind == ChannelKind::rc_rdma &&
      !peer.connection->eviction.disconnecting)
    return DataPath::rc;
  // Operations of ACTS wait for their connection, see PolicyOverride::waits_for_connections.
  const DataPath without_slot =
      context_.traits.waits_for_connections ? DataPath::wait : DataPath::fragments;
  if (peer.connection->eviction.disconnecting || peer.connection->eviction.waits_for_slot)
    return without_slot;
  // The connection failed, and messages in the ring may wait for this one to be received.
  if (peer.rx.state == ReceiveState::draining) return DataPath::fragments;
  // The peer may queue a request for a slot.
  const DataPath meanwhile = eviction_.active() ? without_slot : DataPath::wait;
  if (peer.rx.state != ReceiveState::steady) return meanwhile;
  if (peer.self || context_.closing || context_.traits.never_connects) return DataPath::fragments;
  // A simulation may exclude a connection with this peer.
  if (eviction_.active() && !over_rc(selector_.first_channel(peer))) return DataPath::fragments;
  if (peer.change->refused_until != 0 && context_.clock.now() < peer.change->refused_until)
    return DataPath::fragments;
  if (!eviction_.active() && !peer.connection->has_rc() &&
      rc_.active_rc() >= context_.settings.max_active_rc) {
    return DataPath::fragments;
  }
  if (peer.remote_index == wire::kUnknownIndex) {
    sender_.send_wireup(peer);
    return DataPath::wait;
  }
  if (eviction_.active() && !slots_.may_have_slot(peer, true)) {
    (void)slots_.request_slot(peer);
    return without_slot;
  }
  selector_.change_channel(peer, ChannelKind::rc_rdma, context_.default_channel,
                           "large messages and one-sided operations", 0);
  return peer.rx.state == ReceiveState::steady ? DataPath::fragments : meanwhile;
}

}  // namespace turnout
