// SPDX-License-Identifier: BSD-3-Clause
#include "core/endpoint/send_completions.h"
#include "base/log.h"

namespace turnout {

bool SendCompletions::poll_send_queue() {
  ibv_wc entries[kPollBatch];
  const int n = ibv_poll_cq(resources_.send_cq.get(), kPollBatch, entries);
  context_.charge(Work::poll_cq, 1);
  for (int i = 0; i < n; ++i) on_send_completion(entries[i]);
  if (n < 0) TURNOUT_LOG(channel, error, "ibv_poll_cq failed: send queue");
  return n > 0;
}

void SendCompletions::on_send_completion(const ibv_wc& wc) {
  const std::uint32_t id = SendQueue::queue_of(wc.wr_id);
  SendQueue* const queue = id < resources_.queues.size() ? resources_.queues[id] : nullptr;
  if (queue == nullptr || !queue->current(wc.wr_id))
    return;  // of an earlier connection of the queue pair
  if (id >= resources_.default_queues) return on_rc_completion(static_cast<RcQueue&>(*queue), wc);
  if (wc.status == IBV_WC_SUCCESS) {
    queue->retire(wc.wr_id, true, [this](const SendRecord& record) { retire(record); });
    return;
  }
  queue->retire(wc.wr_id, false, [this](const SendRecord& record) { retire(record); });
  recover(static_cast<MessageQueue&>(*queue), wc);
}

void SendCompletions::on_rc_completion(RcQueue& queue, const ibv_wc& wc) {
  const bool done = wc.status == IBV_WC_SUCCESS;
  queue.retire(wc.wr_id, done, [this](const SendRecord& record) { retire(record); });
  if (done) return;
  for (Peer& peer : peer_table_.peers()) {
    if (peer.connection->rc.get() != &queue) continue;
    channels_.recovery.fail_connection(peer, &wc);
    return;
  }
  for (const auto& [node, link] : channels_.xrc_nodes.xrc_connections()) {
    if (link->queue.get() != &queue) continue;
    channels_.xrc_recovery.fail_xrc_connection(*link, wc);
    return;
  }
}

void SendCompletions::retire(const SendRecord& record) {
  resources_.give_back(record);
  if (record.pool == SendRecord::Pool::kept) ud_.retire_kept(record.buffer);
  if (record.kind == SendRecord::Kind::transfer) {
    on_transfer_done(*record.transfer, Status{});
  } else if (record.kind == SendRecord::Kind::flush) {
    Peer& peer = peer_table_.peers()[record.peer];
    if (--peer.state.ref().tx.flushes == 0) channels_.negotiator.on_flushed(peer);
  } else if (record.kind == SendRecord::Kind::probe) {
    Peer& peer = peer_table_.peers()[record.peer];
    --peer.probes;
    peer.heard_since_tick = true;
  } else if (record.operation != 0) {
    operations_.send_engine.on_delivered(peer_table_.peers()[record.peer], record.operation);
  }
}

// An initiator's work request failed; the queue pair is in the error state and all later requests
// were flushed. Those are reposted in order, except to a lost peer. The failure is reported only
// then, because its handlers post to this queue pair, too.
void SendCompletions::recover(MessageQueue& queue, const ibv_wc& wc) {
  const std::vector<SendRecord> records = queue.take_all();
  if (Status status = queue.recover(); !status.ok()) {
    TURNOUT_LOG(channel, error, "recovering a queue pair failed: {}", status.text());
  }
  const bool flushed = wc.status == IBV_WC_WR_FLUSH_ERR;
  if (flushed) {
    TURNOUT_LOG(channel, warn,
                "queue pair failed: flushed without an error; reposting its work requests");
  }
  const SendRecord* const failed = flushed || records.empty() ? nullptr : records.data();
  // A peer that was told of its loss takes its memory back under a read that is on its way.
  const bool refused = failed != nullptr && failed->kind == SendRecord::Kind::transfer &&
                       RdmaEngine::refuses_key(wc.status) &&
                       !peer_table_.peers()[failed->peer].lost;
  const PeerId gone = failed != nullptr && !refused ? failed->peer : kAnyPeer;
  std::vector<SendRecord> of_lost;
  for (const SendRecord& record : records) {
    if (&record == failed) continue;
    if (record.peer == kAnyPeer) {
      if (!queue.post(record).ok()) retire(record);
      continue;
    }
    Peer& peer = peer_table_.peers()[record.peer];
    if (peer.lost || record.peer == gone) {
      of_lost.push_back(record);
      continue;
    }
    // The receiver may have found it by its last byte, so it must not be written again.
    if (record.kind == SendRecord::Kind::transfer && record.transfer->kind == Transfer::Kind::put &&
        record.transfer->announcement == nullptr) {
      operations_.rtr.fetch_instead(*record.transfer);
      continue;
    }
    if (Status status = queue.post(record); !status.ok()) {
      events_.lose_peer(peer, status);
      end_of_lost(record);
    }
  }
  if (failed != nullptr && failed->peer == kAnyPeer) {  // a sender to be rejected, or ourselves
    retire(*failed);
  } else if (failed != nullptr && refused) {
    on_transfer_done(*failed->transfer, RdmaEngine::refused_key(peer_table_.peers()[failed->peer],
                                                                *failed, wc.status));
  } else if (failed != nullptr) {
    Peer& peer = peer_table_.peers()[gone];
    events_.lose_peer(peer, Status{Code::peer_lost,
                                   fmt::format("{} is not responding: {}", peer.address.to_string(),
                                               ibv_wc_status_str(wc.status)),
                                   EHOSTDOWN});
    end_of_lost(*failed);
  }
  for (const SendRecord& record : of_lost) end_of_lost(record);
}

// Ends operations in progress with a lost peer.
void SendCompletions::end_of_lost(const SendRecord& record) {
  if (record.kind == SendRecord::Kind::transfer) {
    on_transfer_done(*record.transfer, peer_table_.peers()[record.peer].state->loss);
  } else {
    retire(record);
  }
}

// One segment has ended.
void SendCompletions::on_transfer_done(Transfer& transfer, Status status) {
  --transfer.in_flight;
  if (!status.ok() && transfer.status.ok()) transfer.status = std::move(status);
  (void)operations_.rdma.pump(transfer);
}

}  // namespace turnout
