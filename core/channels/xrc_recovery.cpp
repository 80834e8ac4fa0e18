// SPDX-License-Identifier: BSD-3-Clause
// Recovery of XRC connections (channels/xrc_connections.cpp). A failure of one process of a node
// breaks the connection of every sender that was writing to it, which also serves all other
// processes of that node. No message of theirs is lost or duplicated.
//
// As connection_recovery.cpp for the connection of a pair, but for one direction. The sender
// reports the failure to all processes that it wrote to over the connection (`xrc_error`). Each
// puts the target, which they share, into the error state, so that nothing arrives any more; stops
// polling its ring; and reports its position (`xrc_replay`). The sender rewrites the missing
// messages over DC into the same entries, and the ring continues over DC (`xrc_resumed`) until the
// policy connects again.
//
// Establishment messages are ordered: channel messages that the receiver sent before it knew of the
// failure are void.
#include "core/channels/xrc_recovery.h"
#include "base/log.h"

namespace turnout {

void XrcRecovery::fail_xrc_connection(XrcConnection& link, const ibv_wc& wc) {
  TURNOUT_LOG(connection, info,
              "XRC connection failed: node with LID {}: {}; resending lost messages",
              link.node.first, ibv_wc_status_str(wc.status));
  ++eviction_.report().failed;
  std::shared_ptr<const SentLog> log;
  const std::vector<SendRecord> records = link.queue->take_all(&log);
  const std::vector<Peer*> users = std::exchange(link.users, {});
  xrc_nodes_.discard_xrc_connection(link);
  for (Peer* const peer : users) peer->connection->xrc->link = nullptr;
  for (Peer* const peer : users) {
    PeerXrc& xrc = *peer->connection->xrc;
    if (peer->tx.state == SendState::preparing || peer->tx.state == SendState::accepted) {
      xrc_nodes_.refuse_xrc(*peer, wire::Refusal::error);
      XrcConnections::drop_if_idle(*peer);
      continue;
    }
    xrc.lost = std::make_unique<Recovery>();
    xrc.lost->log = log;
    xrc_nodes_.xrc_lost().push_back(peer);
    context_.pending.add(Pending::xrc_recoveries);
    peer->tx.state = SendState::error;
    peer->tx.flush_posted = false;
    if (over_xrc(peer->tx.kind)) {
      peer->send_on(ChannelKind::dc_rdma, context_.age());
    }
  }
  for (const SendRecord& record : records) {
    Peer& peer = peer_table_.peers()[record.peer];
    if (record.kind == SendRecord::Kind::message && !peer.lost && peer.connection->xrc &&
        peer.connection->xrc->lost) {
      peer.connection->xrc->lost->records.push_back(record);
    } else {
      events_.retire(record);
    }
  }
  for (Peer* const peer : users) {
    if (peer->lost || !peer->connection->xrc || !peer->connection->xrc->lost) continue;
    control_.send_control(*peer, Purpose::establishment,
                          {.type = wire::Control::xrc_error, .own_index = peer->id});
  }
}

// At the receiver.
void XrcRecovery::on_xrc_error(Peer& peer, const wire::ControlMessage& message) {
  if (peer.remote_index == wire::kUnknownIndex) peer.remote_index = message.own_index;
  // It has switched back already, and reports its position all the same.
  if (!peer.connection->xrc) peer.connect().xrc = std::make_unique<PeerXrc>();
  PeerXrc& xrc = *peer.connection->xrc;
  if (std::exchange(xrc.failed, true))
    return events_.protocol_error(peer, "node error message: sent twice for one connection");
  const Nanoseconds now = context_.clock.now();
  if (peer.change->decision != 0) outcomes_.decided(peer, "not done: the connection failed");
  rc_.wait_after_failure(peer, now);
  // The ring is still to be drained.
  if (peer.rx.state != ReceiveState::draining) {
    negotiator_.drop_new_ring(peer);
    peer.rx.state = ReceiveState::error;
  }
  ChannelChange& change = peer.change.make();
  change.requested_at = now;
  change.final_channel = context_.default_channel;
  xrc.bytes = Reservation();
  if (xrc.job != nullptr) {  // of a void request
    xrc.job->peer = nullptr;
    xrc.job = nullptr;
  }
  if (!xrc.target) return send_xrc_replay(peer);
  auto job = std::make_unique<XrcTargetJob>(&peer, XrcTargetJob::Step::fail);
  job->target = std::move(xrc.target);
  xrc_nodes_.start_target_job(std::move(job));
}

// Nothing arrives any more.
void XrcRecovery::send_xrc_replay(Peer& peer) {
  if (peer.lost) return;
  PeerXrc& xrc = *peer.connection->xrc;
  xrc.reported = true;
  if (over_ring(peer.rx.kind)) {
    rings_.remove(peer);
    xrc.ring_unlisted = true;
  }
  control_.send_control(peer, Purpose::establishment,
                        {.type = wire::Control::xrc_replay, .last_sequence = peer.rx.sequence - 1});
}

// At the sender.
void XrcRecovery::on_xrc_replay(Peer& peer, const wire::ControlMessage& message) {
  Recovery* const lost = peer.connection->xrc ? peer.connection->xrc->lost.get() : nullptr;
  const std::uint32_t from = message.last_sequence + 1;
  if (lost == nullptr || lost->asked)
    return events_.protocol_error(peer, "node replay request: no failed connection to recover");
  if (before(peer.tx.sequence, from)) {
    return events_.protocol_error(
        peer, "node replay request: last_sequence names a message that was not sent yet");
  }
  lost->asked = true;
  lost->from = context_.settings.break_rule == "drop-lost" ? peer.tx.sequence : from;
}

bool XrcRecovery::pump_xrc_lost() {
  return go_on_with_each(xrc_nodes_.xrc_lost(), [this](Peer& peer) { return replay_xrc(peer); });
}

bool XrcRecovery::replay_xrc(Peer& peer) {
  Recovery& lost = *peer.connection->xrc->lost;
  if (!lost.asked) return false;
  bool moved = false;
  if (!recovery_.send_lost(peer, lost, &moved)) return moved;
  peer.connection->xrc->lost.reset();
  XrcConnections::drop_if_idle(peer);
  std::erase(xrc_nodes_.xrc_lost(), &peer);
  peer.tx.state = SendState::steady;
  control_.send_control(peer, Purpose::establishment,
                        with_last(peer, {.type = wire::Control::xrc_resumed,
                                         .kind = static_cast<std::uint8_t>(peer.tx.kind)}));
  return true;
}

// At the receiver: resumes the direction.
void XrcRecovery::on_xrc_resumed(Peer& peer, const wire::ControlMessage& message) {
  const auto to = static_cast<ChannelKind>(message.kind);
  const bool draining = peer.rx.state == ReceiveState::draining;
  const ChannelKind due = draining                  ? peer.change->wanted
                          : over_ring(peer.rx.kind) ? ChannelKind::dc_rdma
                                                    : context_.default_channel;
  if (!peer.connection->xrc || !peer.connection->xrc->reported)
    return events_.protocol_error(peer, "node resume message: no failed connection to recover");
  if (to != due) {
    return events_.protocol_error(peer,
                                  "node resume message: kind names a channel that does not exist");
  }
  PeerXrc& xrc = *peer.connection->xrc;
  xrc.failed = xrc.reported = false;
  if (std::exchange(xrc.ring_unlisted, false)) rings_.add(peer);
  XrcConnections::drop_if_idle(peer);
  if (draining) {
    negotiator_.finish_drain(peer);
  } else {
    peer.change.make().wanted = to;
    negotiator_.switch_receiving(peer, to);
  }
}

}  // namespace turnout
