// SPDX-License-Identifier: BSD-3-Clause
// Shutdown of an endpoint: it delivers all accepted messages to the peers and then notifies them.
//
// MPICH's MPI_Finalize is not collective, and messages of a rank that has finished may still wait
// here for credits of a peer that computes. So the endpoint continues until its peers have received
// everything, for as long as they live, and logs which peer it waits for. It does not wait for
// peers that have shut down: data for them is dropped, and their queue pairs may be destroyed, in
// which case the adapter would retry for half a second.
#include "core/endpoint/shutdown.h"
#include "base/log.h"

namespace turnout {
namespace {
// For data to an endpoint of this process: the thread that would receive it may be the one that
// waits.
constexpr Nanoseconds kOwnProcess = 1'000'000'000;
// A queue pair that makes no progress for so long is blocked by a request to a dead peer.
constexpr Nanoseconds kStuck = 2'000'000;
constexpr Nanoseconds kShutdown = 1'000'000'000;
constexpr Nanoseconds kFirstWarning = 10'000'000'000;  // the interval doubles
}  // namespace

// The application's buffers must not be accessed any more, and completions are not reported. Copied
// messages are still sent.
void Shutdown::abandon_user_buffers() {
  for (const bool tagged : {true, false}) {
    while (RecvOperation* const receive = records_.matcher.posted(tagged).first())
      operations_.posted.unpost(*receive);
  }
  for (Peer* peer : operations_.backlog.backlogged()) {
    // Messages behind one that cannot be sent are dropped with it, to keep the order.
    bool dropped = false;
    for (SendOperation* operation = peer->state->tx.backlog.first(); operation != nullptr;) {
      SendOperation* const next = operation->next;
      dropped = dropped || (operation->copy == nullptr && operation->iov.total > 0);
      if (dropped) {
        peer->state.ref().tx.backlog.remove(operation);
        operations_.backlog.end_send(*operation, Status{Code::canceled, "the endpoint is closing"});
      }
      operation = next;
    }
  }
  while (UnexpectedMessage* const message = operations_.unexpected.waiting().pop_front())
    operations_.unexpected.release_unexpected(*message);
  while (SendOperation* const operation = operations_.backlog.fragmented().pop_front())
    operation->fragment_transfer = 0;
  operations_.rput.rput_sends().clear();
  operations_.put.rtr_cancels().clear();
  operations_.fragments.end_incoming(nullptr);
  for (Transfer* transfer = operations_.rdma.active_transfers().first(); transfer != nullptr;) {
    Transfer* const next = transfer->next;
    transfer->status = Status{Code::canceled, "the endpoint is closing"};
    operations_.rdma.pump(*transfer);
    transfer = next;
  }
}

// The peer still receives.
bool Shutdown::receives_still(PeerId id) noexcept {
  const Peer* const peer = peer_table_.find_peer(id);
  return peer != nullptr && !peer->lost && !peer->shut_down;
}

// The newest record of the queue for a peer that still receives; null: none.
const SendRecord* Shutdown::owed(const SendQueue& queue) noexcept {
  return queue.find_newest(
      [this](const SendRecord& record) { return receives_still(record.peer); });
}

// Posts a zero-byte write, whose completion covers the unsignalled requests before it. To
// ourselves, because a peer may end at any moment and then would not acknowledge it.
void Shutdown::flush(MessageQueue& queue) {
  if (queue.full() || queue.newest().kind == SendRecord::Kind::none) return;
  Status status;
  SendRecord record{
      .opcode = IBV_WR_RDMA_WRITE, .signalled = true, .dct = context_.address.dct_number(0)};
  const RemotePort* const port = peer_table_.port_of(context_.address, &status);
  record.ah = port != nullptr ? port->handle.get() : nullptr;
  record.dc_key = context_.address.id;
  if (record.ah != nullptr) status = queue.post(record);
  if (!status.ok())
    TURNOUT_LOG(connection, warn, "flushing at close failed: {}; closing continues", status.text());
}

// A peer that still receives and has not received everything; null: none.
const Peer* Shutdown::find_owed() {
  const auto first = [](const auto& peers) -> const Peer* {
    const auto found = std::find_if(peers.begin(), peers.end(), [](const Peer* peer) {
      return !peer->lost && !peer->shut_down;
    });
    return found == peers.end() ? nullptr : *found;
  };
  for (const std::vector<Peer*>* waiting :
       {&operations_.backlog.backlogged(), &operations_.atomic_engine.answering(),
        &channels_.recovery.recovering(), &channels_.xrc_nodes.xrc_lost()}) {
    if (const Peer* const peer = first(*waiting)) return peer;
  }
  for (const PendingControl& pending : control_.pending_control()) {
    if (receives_still(pending.peer)) return peer_table_.find_peer(pending.peer);
  }
  if (context_.over_datagrams()) {
    const auto found = std::find_if(
        ud_.ud_pending().begin(), ud_.ud_pending().end(),
        [](const Peer* peer) { return !peer->lost && !peer->shut_down && !peer->link->settled(); });
    if (found != ud_.ud_pending().end()) return *found;
  }
  for (auto& initiators : resources_.initiators) {
    for (auto& queue : initiators) {
      if (context_.over_datagrams()) break;  // the peers acknowledge
      const SendRecord* const record = owed(*queue);
      if (record == nullptr) continue;
      const Peer* const peer = peer_table_.find_peer(record->peer);
      flush(*queue);  // which may move the records
      return peer;
    }
  }
  for (Peer& peer : peer_table_.peers()) {
    if (!peer.connection->rc || peer.connection->rc->idle() || !receives_still(peer.id)) continue;
    if (!peer.connection->rc->full() &&
        peer.connection->rc->newest().kind != SendRecord::Kind::probe) {
      channels_.keep_alive.probe_over_rc(peer);
    }
    return &peer;
  }
  for (const auto& [node, link] : channels_.xrc_nodes.xrc_connections()) {
    if (!link->queue || owed(*link->queue) == nullptr) continue;
    if (link->queue->newest().kind != SendRecord::Kind::probe)
      channels_.xrc_nodes.probe_xrc_connection(*link);
    return peer_table_.find_peer(link->queue->newest().peer);
  }
  return nullptr;
}

void Shutdown::send_shutdowns() {
  for (Peer& peer : peer_table_.peers()) {
    // A peer that we never sent to does not know us.
    if (peer.self || (peer.remote_index == wire::kUnknownIndex && peer.tx.sequence == 0)) {
      continue;
    }
    control_.send_control(peer, Purpose::credit,
                          with_last(peer, {.type = wire::Control::shutdown}));
  }
}

// Removes requests to peers that are gone, so that the others proceed.
void Shutdown::pass_the_gone(MessageQueue& queue) {
  const bool stuck = queue.find_newest([this](const SendRecord& record) {
    return record.peer != kAnyPeer && !receives_still(record.peer);
  }) != nullptr;
  if (!stuck) return;
  const std::vector<SendRecord> records = queue.take_all();
  const bool usable = queue.recover().ok();
  std::vector<SendRecord> of_gone;
  for (const SendRecord& record : records) {
    if (!receives_still(record.peer)) {
      of_gone.push_back(record);
    } else if (!usable || !queue.post(record).ok()) {
      events_.retire(record);
    }
  }
  for (const SendRecord& record : of_gone) {  // last: retiring them may post to this queue pair
    if (record.kind == SendRecord::Kind::transfer) {
      events_.on_transfer_done(*record.transfer, Status{Code::canceled, "the endpoint is closing"});
    } else {
      events_.retire(record);
    }
  }
}

bool Shutdown::close() {
  if (!context_.started || context_.closing_phase == Closing::closed) return true;
  if (context_.closing_phase == Closing::open) {
    context_.closing = true;
    abandon_user_buffers();
    close_moved_ = context_.clock.now();
    next_close_warning_ = kFirstWarning;
    context_.closing_phase = Closing::flushing;
  }
  const bool moved = events_.progress();
  if (context_.closing_phase == Closing::flushing) {
    if (const Peer* const peer = find_owed()) {
      if (context_.ticks != 0) return false;
      const Nanoseconds now = context_.clock.now();
      if (moved) close_moved_ = now;
      const Nanoseconds still = now - close_moved_;
      const bool own = peer->address.pid == context_.address.pid &&
                       peer->address.port->gid == context_.address.gid;
      if (still >= next_close_warning_ || (own && still >= kOwnProcess)) {
        TURNOUT_LOG(connection, warn,
                    "close is waiting for {}: no progress on data sent to it for {} s; {}",
                    peer->address.to_string(), still / 1'000'000'000,
                    own ? "the data are dropped, because that endpoint belongs to this process"
                        : "close completes when that process receives the data or exits");
        next_close_warning_ *= 2;
      }
      if (!own || still < kOwnProcess) return false;
    }
    context_.closing_phase = Closing::shutting_down;
    send_shutdowns();
    close_moved_ = context_.clock.now();
    close_deadline_ = close_moved_ + kShutdown;
  }
  const Peer* const peer = find_owed();
  if (peer != nullptr) {
    if (context_.ticks != 0) return false;
    const Nanoseconds now = context_.clock.now();
    if (moved) close_moved_ = now;
    if (now - close_moved_ >= kStuck && !context_.over_datagrams()) {
      close_moved_ = now;
      for (auto& initiators : resources_.initiators) {
        for (auto& queue : initiators) {
          pass_the_gone(*queue);
        }
      }
    }
    if (now < close_deadline_) return false;
    TURNOUT_LOG(connection, debug, "close timed out: {} did not acknowledge the shutdown",
                peer->address.to_string());
  }
  for (Peer* const other : ud_.ud_pending()) {
    if (!other->lost && other->link->owes_ack)
      ud_.send_ack(*other);  // it may wait for the acknowledgement
  }
  context_.closing_phase = Closing::closed;
  return true;
}

}  // namespace turnout
