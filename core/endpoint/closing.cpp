// SPDX-License-Identifier: BSD-3-Clause
// Shutdown of an endpoint: it delivers all accepted messages to the peers and then notifies them.
//
// MPICH's MPI_Finalize is not collective, and messages of a rank that has finished may still wait
// here for credits of a peer that computes. So the endpoint continues until its peers have received
// everything, for as long as they live, and logs which peer it waits for. It does not wait for
// peers that have shut down: data for them is dropped, and their queue pairs may be destroyed, in
// which case the adapter would retry for half a second.
#include <fmt/format.h>

#include <algorithm>

#include "base/log.h"
#include "core/connection/xrc_connection.h"
#include "core/endpoint/endpoint_core.h"

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
void EndpointCore::abandon_user_buffers() {
  for (const bool tagged : {true, false}) {
    while (RecvOperation* const receive = matcher_.posted(tagged).first()) unpost(*receive);
  }
  for (Peer* peer : backlogged_) {
    // Messages behind one that cannot be sent are dropped with it, to keep the order.
    bool dropped = false;
    for (SendOperation* operation = peer->backlog.first(); operation != nullptr;) {
      SendOperation* const next = operation->next;
      dropped = dropped || (operation->copy == nullptr && operation->iov.total > 0);
      if (dropped) {
        peer->backlog.remove(operation);
        end_send(*operation, Status{Code::canceled, "the endpoint is closing"});
      }
      operation = next;
    }
  }
  while (UnexpectedMessage* const message = waiting_.pop_front()) release_unexpected(*message);
  while (SendOperation* const operation = fragmented_.pop_front()) operation->fragment_transfer = 0;
  rput_sends_.clear();
  rtr_cancels_.clear();
  end_incoming(nullptr);
  for (Transfer* transfer = active_transfers_.first(); transfer != nullptr;) {
    Transfer* const next = transfer->next;
    transfer->status = Status{Code::canceled, "the endpoint is closing"};
    pump(*transfer);
    transfer = next;
  }
}

// The peer still receives.
bool EndpointCore::receives_still(PeerId id) noexcept {
  const Peer* const peer = find_peer(id);
  return peer != nullptr && !peer->lost && !peer->shut_down;
}

// The newest record of the queue for a peer that still receives; null: none.
const SendRecord* EndpointCore::owed(const SendQueue& queue) noexcept {
  return queue.find_newest(
      [this](const SendRecord& record) { return receives_still(record.peer); });
}

// Posts a zero-byte write, whose completion covers the unsignalled requests before it. To
// ourselves, because a peer may end at any moment and then would not acknowledge it.
void EndpointCore::flush(MessageQueue& queue) {
  if (queue.full() || queue.newest().kind == SendRecord::Kind::none) return;
  Status status;
  SendRecord record;
  record.opcode = IBV_WR_RDMA_WRITE;
  record.signalled = true;
  record.dct = address_.dct_number(0);
  record.ah = address_handle(address_, &status);
  record.dc_key = address_.id;
  if (record.ah != nullptr) status = queue.post(record);
  if (!status.ok())
    TURNOUT_LOG(connection, warn, "flushing at close failed: {}; closing continues", status.text());
}

// A peer that still receives and has not received everything; null: none.
const Peer* EndpointCore::find_owed() {
  const auto first = [](const auto& peers) -> const Peer* {
    const auto found = std::find_if(peers.begin(), peers.end(), [](const Peer* peer) {
      return !peer->lost && !peer->shut_down;
    });
    return found == peers.end() ? nullptr : *found;
  };
  for (const std::vector<Peer*>* waiting : {&backlogged_, &answering_, &recovering_, &xrc_lost_}) {
    if (const Peer* const peer = first(*waiting)) return peer;
  }
  for (const PendingControl& pending : pending_control_) {
    if (receives_still(pending.peer)) return find_peer(pending.peer);
  }
  if (over_datagrams()) {
    const auto found = std::find_if(ud_pending_.begin(), ud_pending_.end(), [](const Peer* peer) {
      return !peer->lost && !peer->shut_down && !peer->link->settled();
    });
    if (found != ud_pending_.end()) return *found;
  }
  for (auto& initiators : initiators_) {
    for (auto& queue : initiators) {
      if (over_datagrams()) break;  // the peers acknowledge
      const SendRecord* const record = owed(*queue);
      if (record == nullptr) continue;
      const Peer* const peer = find_peer(record->peer);
      flush(*queue);  // which may move the records
      return peer;
    }
  }
  for (const auto& peer : peers_) {
    if (!peer->rc || peer->rc->idle() || !receives_still(peer->id)) continue;
    if (!peer->rc->full() && peer->rc->newest().kind != SendRecord::Kind::probe) {
      probe_over_rc(*peer);
    }
    return peer.get();
  }
  for (const auto& [node, link] : xrc_connections_) {
    if (!link->queue || owed(*link->queue) == nullptr) continue;
    if (link->queue->newest().kind != SendRecord::Kind::probe) probe_xrc_connection(*link);
    return find_peer(link->queue->newest().peer);
  }
  return nullptr;
}

void EndpointCore::send_shutdowns() {
  for (auto& peer : peers_) {
    // A peer that we never sent to does not know us.
    if (peer->self || (peer->remote_index == wire::kUnknownIndex && peer->send_sequence == 0)) {
      continue;
    }
    wire::ControlMessage message;
    message.type = wire::Control::shutdown;
    report_last(*peer, &message);
    send_control(*peer, Purpose::credit, message);
  }
}

// Removes requests to peers that are gone, so that the others proceed.
void EndpointCore::pass_the_gone(MessageQueue& queue) {
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
      retire(record);
    }
  }
  for (const SendRecord& record : of_gone) {  // last: retiring them may post to this queue pair
    if (record.kind == SendRecord::Kind::transfer) {
      on_transfer_done(*record.transfer, Status{Code::canceled, "the endpoint is closing"});
    } else {
      retire(record);
    }
  }
}

bool EndpointCore::close() {
  if (!started_ || closing_phase_ == Closing::closed) return true;
  if (closing_phase_ == Closing::open) {
    closing_ = true;
    abandon_user_buffers();
    close_moved_ = clock_.now();
    next_close_warning_ = kFirstWarning;
    closing_phase_ = Closing::flushing;
  }
  const bool moved = progress();
  if (closing_phase_ == Closing::flushing) {
    if (const Peer* const peer = find_owed()) {
      if (ticks_ != 0) return false;
      const Nanoseconds now = clock_.now();
      if (moved) close_moved_ = now;
      const Nanoseconds still = now - close_moved_;
      const bool own = peer->address.pid == address_.pid && peer->address.gid == address_.gid;
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
    closing_phase_ = Closing::shutting_down;
    send_shutdowns();
    close_moved_ = clock_.now();
    close_deadline_ = close_moved_ + kShutdown;
  }
  const Peer* const peer = find_owed();
  if (peer != nullptr) {
    if (ticks_ != 0) return false;
    const Nanoseconds now = clock_.now();
    if (moved) close_moved_ = now;
    if (now - close_moved_ >= kStuck && !over_datagrams()) {
      close_moved_ = now;
      for (auto& initiators : initiators_) {
        for (auto& queue : initiators) {
          pass_the_gone(*queue);
        }
      }
    }
    if (now < close_deadline_) return false;
    TURNOUT_LOG(connection, debug, "close timed out: {} did not acknowledge the shutdown",
                peer->address.to_string());
  }
  for (Peer* const other : ud_pending_) {
    if (!other->lost && other->link->owes_ack)
      send_ack(*other);  // it may wait for the acknowledgement
  }
  closing_phase_ = Closing::closed;
  return true;
}

}  // namespace turnout
