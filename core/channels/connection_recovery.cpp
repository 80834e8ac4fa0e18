// SPDX-License-Identifier: BSD-3-Clause
// Recovery of RC connections that fail while both processes live: a forced error, a path that was
// down longer than the retries, a refused key. No message is lost or duplicated.
//
// An end whose queue pair is in the error state, or whose peer reports an error, discards every
// channel change in progress, stops its stream, and ensures that nothing arrives at its queue pair
// any more (ERR; IBTA 10.3.1). Then it sends `error`. When both ends have stopped, each sends
// `replay` with the position that it has reached in the other's stream. The other resends the rest,
// unchanged and with the same sequence numbers, and sends `resumed` with the channel that its
// direction continues on. The pair is then as if it had never been connected, and the policy may
// connect it again.
//
// Unacknowledged messages are known (SendRecord): those in send buffers are still there, inline
// ones are in the queue's SentLog. Messages of a ring are rewritten over DC into the same entries,
// and the ring continues over DC; nobody reads it meanwhile. Messages into receives, and over UD,
// which has no ring, all messages, use receives of the default transport. They use no credits,
// because all credits may be with messages that wait for these. Over UD the receiver first reads
// from its ring what the sender knows to have arrived, since nobody would resend it.
//
// RDMA operations over the queue pair restart on the channel available then. An operation whose key
// was refused ends with that error.
//
// Each end sends each of the three messages once, in this order. Establishment messages are
// ordered, so all earlier ones are void, and no new connection is requested before both ends have
// resumed.
#include "core/channels/connection_recovery.h"
#include "base/log.h"

namespace turnout {

// `wc`: the failed request; null: the peer reported an error. Not called during a recovery.
void ConnectionRecovery::fail_connection(Peer& peer, const ibv_wc* wc) {
  if (peer.lost || peer.connection->recovery) return;
  const char* const why = wc != nullptr ? ibv_wc_status_str(wc->status) : "reported by the peer";
  TURNOUT_LOG(connection, info, "RC connection failed: {}: {}; resending lost messages",
              peer.address.to_string(), why);
  ++eviction_.report().failed;
  peer.connect().recovery = std::make_unique<Recovery>();
  recovering_.push_back(&peer);
  context_.pending.add(Pending::recoveries);
  const Nanoseconds now = context_.clock.now();
  rc_.wait_after_failure(peer, now);
  forget_changes(peer, now);
  std::vector<SendRecord> records;
  const bool connected = peer.connection->rc && peer.connection->rc->connected_to() != 0;
  if (connected) {
    records = peer.connection->rc->take_all(&peer.connection->recovery->log);
    auto job = RcPool::job_of(&peer, std::move(peer.connect().rc));
    job->fail = true;
    rc_.start_job(std::move(job));
  } else if (peer.connection->has_rc()) {
    rc_.discard_rc(peer);
  }
  requeue(peer, records, wc);
  if (!connected && peer.connection->recovery) send_error(peer);
}

// Stops both directions. Both ends discard channel changes in progress.
void ConnectionRecovery::forget_changes(Peer& peer, Nanoseconds now) {
  if (peer.connection->eviction.waits_for_slot) eviction_.stop_waiting(peer.connect().eviction);
  if (peer.change->decision != 0) outcomes_.decided(peer, "not done: the connection failed");
  ChannelChange& change = peer.change.make();
  change.requested_at = now;
  change.final_channel = context_.default_channel;
  peer.rx.state = ReceiveState::error;
  if (messages_over_rc(peer.rx.kind)) {
    peer.receive_on(context_.default_channel, context_.age());
  }
  if (context_.over_datagrams() && peer.state->rx.ring && !over_ring(peer.rx.kind)) {
    // Its `switched` for the ring may be void.
    peer.receive_on(ChannelKind::rc_rdma, context_.age());
    rings_.add(peer);
  }
  peer.tx.state = SendState::error;
  peer.tx.flush_posted = false;
  peer.tx.uses_rc = false;
  PrivateSender& sender = peer.state.make().tx.private_queue;
  sender.request = sender.credits = 0;
  change.answer.private_credits = 0;
  if (over_rc(peer.tx.kind)) {
    const bool ring = peer.tx.kind == ChannelKind::rc_rdma && !context_.over_datagrams();
    peer.send_on(ring ? ChannelKind::dc_rdma : context_.default_channel, context_.age());
  }
}

// Messages are queued for replay; transfers restart, except one whose key was refused.
void ConnectionRecovery::requeue(Peer& peer, const std::vector<SendRecord>& records,
                                 const ibv_wc* wc) {
  std::vector<Transfer*> transfers;
  for (Transfer* t = rdma_.active_transfers().first(); t != nullptr; t = t->next) {
    if (t->peer == &peer && t->over_rc) transfers.push_back(t);
  }
  const bool refused = wc != nullptr && RdmaEngine::refuses_key(wc->status);
  for (std::size_t i = 0; i < records.size(); ++i) {
    const SendRecord& record = records[i];
    switch (record.kind) {
      case SendRecord::Kind::message:
        peer.connection->recovery->records.push_back(record);
        break;
      case SendRecord::Kind::transfer: {
        Transfer& transfer = *record.transfer;
        --transfer.in_flight;
        if (std::find(transfers.begin(), transfers.end(), &transfer) == transfers.end()) {
          transfers.push_back(&transfer);
        }
        if (i == 0 && refused && transfer.status.ok()) {
          transfer.status = RdmaEngine::refused_key(peer, record, wc->status);
        }
        break;
      }
      case SendRecord::Kind::flush:
        --peer.state.ref().tx.flushes;
        break;
      case SendRecord::Kind::probe:
        --peer.probes;
        break;
      case SendRecord::Kind::credit:  // see below
      case SendRecord::Kind::none:
        break;
    }
  }
  credits_.repeat_lost(peer, records);
  for (Transfer* const transfer : transfers) restart_transfer(*transfer);
}

// None of its requests is in flight.
void ConnectionRecovery::restart_transfer(Transfer& transfer) {
  if (!transfer.status.ok()) {
    if (transfer.listed) rdma_.active_transfers().remove(&transfer);
    transfer.listed = false;
    rdma_.end_transfer(transfer);
    return;
  }
  transfer.over_rc = false;
  --transfer.peer->state.ref().rx.reads_over_rc;
  transfer.posted = transfer.cursor.local_offset = transfer.cursor.remote_offset = 0;
  transfer.cursor.local_at = transfer.cursor.remote_at = 0;
  rdma_.list(transfer);
}

// Our queue pair is in the error state. Earlier receives are in the completion queue, and RESET
// would drop them.
void ConnectionRecovery::on_queue_pair_stopped(Peer& peer) {
  for (int n = resources_.receive_cq->cqe / kPollBatch + 1; n > 0 && events_.poll_receive_queue();
       --n) {
  }
  if (peer.connection->rc) rc_.discard_rc(peer);
  if (!peer.lost && peer.connection->recovery) send_error(peer);
}

void ConnectionRecovery::send_error(Peer& peer) {
  Recovery& recovery = *peer.connection->recovery;
  std::uint32_t unknown = peer.tx.sequence;  // the first message that may not have arrived
  for (const SendRecord& record : recovery.records) {
    const wire::Header header = header_of(recovery, record);
    if (header.type == wire::Type::control) continue;
    unknown = header.sequence;
    break;
  }
  recovery.dead = true;
  control_.send_control(
      peer, Purpose::establishment,
      {.type = wire::Control::error, .last_sequence = unknown - 1, .own_index = peer.id});
}

void ConnectionRecovery::on_error(Peer& peer, const wire::ControlMessage& message) {
  if (peer.remote_index == wire::kUnknownIndex) peer.remote_index = message.own_index;
  if (peer.connection->xrc && !peer.connection->xrc->idle())
    return events_.protocol_error(peer, "error message: the pair has no connection of its own");
  fail_connection(peer, nullptr);
  if (peer.lost) return;
  if (std::exchange(peer.connect().recovery->peer_dead, true))
    return events_.protocol_error(peer, "error message: sent twice for one connection");
  peer.connection->recovery->acknowledged = message.last_sequence + 1;
}

void ConnectionRecovery::on_replay(Peer& peer, const wire::ControlMessage& message) {
  Recovery* const recovery = peer.connection->recovery.get();
  const std::uint32_t from = message.last_sequence + 1;
  // Over UD there are none, and the field is a sequence number.
  const std::uint32_t came = peer.link ? 0 : message.sequence;
  const std::uint32_t missing = peer.state->tx.private_queue.controls - came;
  std::uint32_t controls = 0;
  if (recovery != nullptr) {
    for (const SendRecord& record : recovery->records) {
      if (header_of(*recovery, record).type == wire::Type::control) ++controls;
    }
  }
  if (recovery == nullptr || !recovery->dead || !recovery->peer_dead || recovery->asked)
    return events_.protocol_error(peer, "replay request: no failed connection to recover");
  if (before(peer.tx.sequence, from)) {
    return events_.protocol_error(
        peer, "replay request: last_sequence names a message that was not sent yet");
  }
  if (missing > controls) {
    return events_.protocol_error(
        peer,
        "replay request: sequence names control messages that were not sent, or were delivered");
  }
  recovery->asked = true;
  recovery->from = context_.settings.break_rule == "drop-lost" ? peer.tx.sequence : from;
  recovery->controls = controls - missing;
  peer.state.make().tx.private_queue.controls = came;
}

// Resumes the direction peer -> us.
void ConnectionRecovery::on_resumed(Peer& peer, const wire::ControlMessage& message) {
  Recovery* const recovery = peer.connection->recovery.get();
  const auto to = static_cast<ChannelKind>(message.kind);
  if (recovery == nullptr || !recovery->reported || recovery->heard)
    return events_.protocol_error(peer, "resume message: no failed connection to recover");
  if (to != context_.default_channel && (to != ChannelKind::dc_rdma || !peer.state->rx.ring))
    return events_.protocol_error(peer, "resume message: kind names a channel that does not exist");
  recovery->heard = true;
  if (std::exchange(recovery->ring_unlisted, false)) rings_.add(peer);
  if (to != context_.default_channel || !over_ring(peer.rx.kind)) {
    peer.change.make().wanted = to;
    negotiator_.switch_receiving(peer, to);
    if (to == context_.default_channel) negotiator_.drop_new_ring(peer);
  } else {  // it switched back from the ring, which may still contain messages
    peer.change.make().wanted = context_.default_channel;
    note_last(peer, message);
    peer.rx.state = ReceiveState::draining;
    negotiator_.finish_drain(peer);
  }
  // At once: a request may follow.
  if (recovery->sent) end_recovery(peer);
}

bool ConnectionRecovery::pump_recovering() {
  return go_on_with_each(recovering_, [this](Peer& peer) { return go_on_recovering(peer); });
}

bool ConnectionRecovery::go_on_recovering(Peer& peer) {
  Recovery& recovery = *peer.connection->recovery;
  if (!recovery.dead || !recovery.peer_dead) return false;
  bool moved = false;
  const bool has_all =
      !context_.over_datagrams() || !before(peer.rx.sequence, recovery.acknowledged);
  if (!recovery.reported && has_all) {
    recovery.reported = moved = true;
    if (over_ring(peer.rx.kind) && !context_.over_datagrams()) {
      rings_.remove(peer);
      recovery.ring_unlisted = true;
    }
    control_.send_control(peer, Purpose::establishment,
                          {.type = wire::Control::replay,
                           .last_sequence = peer.rx.sequence - 1,
                           .sequence = peer.state->rx.private_queue.controls});
    if (peer.lost) return true;
    if (peer.shut_down)
      peer.change.make().last_control =
          peer.state->rx.private_queue.controls;  // the others are resent elsewhere
  }
  if (!recovery.asked || recovery.sent) return moved;
  if (!send_lost(peer, recovery, &moved)) return moved;
  recovery.sent = true;
  peer.tx.state = SendState::steady;
  control_.send_control(peer, Purpose::establishment,
                        with_last(peer, {.type = wire::Control::resumed,
                                         .kind = static_cast<std::uint8_t>(peer.tx.kind)}));
  if (!peer.lost && recovery.heard) end_recovery(peer);
  return true;
}

// The recovery is complete, or the peer is lost.
void ConnectionRecovery::end_recovery(Peer& peer) {
  const std::unique_ptr<Recovery> recovery = std::move(peer.connect().recovery);
  std::erase(recovering_, &peer);
  give_up_lost(*recovery);
}

// Drops the messages that were not resent.
void ConnectionRecovery::give_up_lost(Recovery& recovery) {
  for (; recovery.at < recovery.records.size(); ++recovery.at) {
    events_.retire(recovery.records[recovery.at]);
  }
}

// Resends all lost messages, and waits until ring messages are written. False: not yet, or the peer
// is lost and `recovery` destroyed. `moved`: progress was made.
bool ConnectionRecovery::send_lost(Peer& peer, Recovery& recovery, bool* moved) {
  while (recovery.at < recovery.records.size()) {
    const bool done = replay_message(peer, recovery, recovery.records[recovery.at]);
    *moved |= done || peer.lost;
    if (!done || peer.lost) return false;
    ++recovery.at;
  }
  if (recovery.flushing && !recovery.flushed) {
    sender_.post_flush(peer);
    *moved |= peer.lost;
    return !peer.lost && recovery.flushed;
  }
  return true;
}

const std::byte* ConnectionRecovery::bytes_of(const Recovery& recovery, const SendRecord& record,
                                              std::byte* copied) noexcept {
  if (record.pool != SendRecord::Pool::logged) {
    return reinterpret_cast<const std::byte*>(record.local);
  }
  recovery.log->copy_out(record.local, record.length, copied);
  return copied;
}

wire::Header ConnectionRecovery::header_of(const Recovery& recovery,
                                           const SendRecord& record) noexcept {
  std::byte copied[kMostInline];
  const std::byte* at = bytes_of(recovery, record, copied);
  if (record.opcode == IBV_WR_RDMA_WRITE) at += record.length - sizeof(wire::Header);
  wire::Header header;
  std::memcpy(&header, at, sizeof header);
  return header;
}

// False: not now.
bool ConnectionRecovery::replay_message(Peer& peer, Recovery& recovery, const SendRecord& lost) {
  wire::Header header = header_of(recovery, lost);
  if (header.type == wire::Type::control) {
    replay_control(peer, lost, header);
    return true;
  }
  if (before(header.sequence, recovery.from)) {
    events_.retire(lost);
    return true;
  }
  const bool ring = lost.opcode == IBV_WR_RDMA_WRITE;
  MessageQueue& queue = *resources_.pool(Purpose::data)[peer.data_queue];
  if (queue.full()) return false;
  SendRecord record = lost;
  record.takes_private = false;
  record.signalled = true;  // it may use the last buffer
  if (record.pool == SendRecord::Pool::logged) {
    record.buffer = resources_.send_pool.take_kept();
    if (record.buffer == kNoBuffer) return false;
    record.pool = SendRecord::Pool::data;
    record.local = reinterpret_cast<std::uint64_t>(resources_.send_pool.data(record.buffer));
    record.lkey = resources_.send_pool.lkey();
  }
  // All credits may be with messages that wait for this one.
  if (lost.takes_private || context_.over_datagrams()) header.flags |= wire::kUncredited;
  std::byte copied[kMostInline];
  const std::byte* const bytes = bytes_of(recovery, lost, copied);
  std::byte* const to = reinterpret_cast<std::byte*>(record.local);
  context_.charge(Work::copy, record.length);
  if (context_.over_datagrams()) {
    // From the layout of a ring entry to that of a message.
    const std::size_t length = record.length - sizeof header;
    header.index = peer.remote_index;
    header.phase = 0;
    wire::Datagram datagram;
    ud_.stamp(peer, wire::DatagramKind::data, &datagram);
    std::memmove(to + sizeof datagram + sizeof header, bytes, length);
    std::memcpy(to, &datagram, sizeof datagram);
    std::memcpy(to + sizeof datagram, &header, sizeof header);
    record.length += static_cast<std::uint32_t>(sizeof datagram);
    record.pool = SendRecord::Pool::kept;
    record.opcode = IBV_WR_SEND;
    record.remote = record.rkey = 0;
  } else {
    if (bytes != to) std::memcpy(to, bytes, record.length);
    if (!ring) std::memcpy(to, &header, sizeof header);
    recovery.flushing |= ring;
  }
  resources_.address_data(peer, &record);
  context_.profile.count_sent(Traffic::control, record.length);
  context_.charge(Work::post, 1);
  if (Status status = queue.post(record); !status.ok()) {
    resources_.give_back(record);
    ++recovery.at;  // its buffer was returned
    events_.lose_peer(peer, status);
    return false;
  }
  if (context_.over_datagrams()) ud_.keep_until_acknowledged(peer, header.sequence, record);
  return true;
}

// It was sent into the peer's private receive queue. The peer reports how many of those arrived.
void ConnectionRecovery::replay_control(Peer& peer, const SendRecord& lost,
                                        const wire::Header& header) {
  Recovery& recovery = *peer.connection->recovery;
  if (recovery.controls > 0) {
    --recovery.controls;
    return;
  }
  std::byte copied[kMostInline];
  const std::byte* const body = bytes_of(recovery, lost, copied) + sizeof header;
  wire::ControlMessage message;
  wire::Detail detail;
  std::memcpy(&message, body, sizeof message);
  if (wire::has_detail(message.type)) std::memcpy(&detail, body + sizeof message, sizeof detail);
  // Credits in its header are unreported again; the private receive queue is gone.
  peer.rx.grant.unreported += header.credits;
  if ((header.flags & wire::kPrivateCredits) == 0)
    peer.state.make().rx.unreported_ring += header.ring_credits;
  control_.send_control(peer, Purpose::credit, message, &detail);
}

// Simulates a failure that the adapter may report at any time.
void ConnectionRecovery::break_for_test(Peer& peer) {
  RcQueue* queue =
      over_rc(peer.rx.kind) && !peer.connection->recovery ? peer.connection->rc.get() : nullptr;
  if (over_xrc(peer.tx.kind)) queue = peer.connection->xrc->link->queue.get();
  if (queue == nullptr || queue->connected_to() == 0 ||
      ++peer.connect().since_failure < context_.settings.test_break_every) {
    return;
  }
  peer.connect().since_failure = 0;
  if (Status status = queue->fail(); !status.ok()) {
    TURNOUT_LOG(connection, error, "breaking a connection for a test failed: {}: {}",
                peer.address.to_string(), status.text());
  }
}

}  // namespace turnout
