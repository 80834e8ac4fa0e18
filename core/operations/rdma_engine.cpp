// SPDX-License-Identifier: BSD-3-Clause
// RDMA transfers: the data of large messages, read by the receiver (`getcqe` and `get`,
// spec/rendezvous.md: RTS, RDMA read, completion queue entry or last byte, FIN), and one-sided
// operations.
//
// A transfer is cut into segments with at most kMaxInFlight of them posted. Large messages are read
// over DC. One-sided operations use the pair's RC queue pair while it serves the direction to us,
// which is not switched before they have ended, otherwise DC. A key that the target refuses breaks
// the queue pair, see channels/connection_recovery.cpp. Without DC see fragments.cpp and
// atomic_segments.cpp.
#include "core/operations/rdma_engine.h"
#include "base/log.h"

namespace turnout {
namespace {
constexpr std::uint32_t kMaxInFlight = 4;
}

Status RdmaEngine::register_iov(Transfer& transfer, const IoVec& iov, int access) {
  transfer.local_count = 0;
  for (std::uint32_t i = 0; i < iov.count; ++i) {
    const iovec& part = iov.parts[i];
    if (part.iov_len == 0) continue;
    Registration& region = transfer.regions[transfer.local_count];
    if (Status status = registration_.register_buffer(part, access, &region); !status.ok())
      return status;
    transfer.local[transfer.local_count++] = {reinterpret_cast<std::uint64_t>(part.iov_base),
                                              part.iov_len, region.lkey()};
  }
  return {};
}

// The virtual adapter copies the bytes in the call that posts the request. In a program with a
// progress thread the next call to progress() posts it: the thread, while the program computes.
bool RdmaEngine::leaves_posting(const Transfer& transfer) const noexcept {
  return posts_in_progress_ && !context_.in_progress && transfer.kind != Transfer::Kind::user &&
         transfer.total > context_.format.own_eager_size && transfer.posted == 0 &&
         !transfer.listed && transfer.status.ok();
}

// By RDMA. False: the queue is full, or the transfer's status has the error.
bool RdmaEngine::post_segment(Transfer& transfer, std::uint64_t length) {
  Peer& peer = *transfer.peer;
  SendQueue& queue =
      transfer.over_rc ? static_cast<SendQueue&>(*peer.connection->rc)
                       : static_cast<SendQueue&>(*resources_.pool(Purpose::data)[peer.data_queue]);
  if (queue.full()) return false;
  const Transfer::Local& local = transfer.local[transfer.cursor.local_at];
  const wire::RtsSegment& remote = transfer.remote[transfer.cursor.remote_at];
  SendRecord record{
      .kind = SendRecord::Kind::transfer,
      .opcode = static_cast<std::uint8_t>(transfer.write ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ),
      .peer = peer.id,
      .length = static_cast<std::uint32_t>(length),
      .lkey = local.lkey,
      .rkey = remote.rkey,
      .local = local.address + transfer.cursor.local_offset,
      .remote = remote.address + transfer.cursor.remote_offset,
      .transfer = &transfer};
  context_.profile.count_sent(transfer.write ? Traffic::write : Traffic::read, length);
  Status status;
  if (transfer.over_rc) {
    status = peer.connection->rc->post(record);
  } else {
    resources_.address_data(peer, &record);
    status = resources_.pool(Purpose::data)[peer.data_queue]->post(record);
  }
  context_.charge(Work::post, 1);
  // By then an adapter that carries out requests in the call that posts them has read all.
  if (context_.format.measures_limit && transfer.kind == Transfer::Kind::read) note_read(transfer);
  if (!status.ok()) transfer.status = std::move(status);
  return transfer.status.ok();
}

// Progress goes on with it.
void RdmaEngine::list(Transfer& transfer) noexcept {
  if (std::exchange(transfer.listed, true)) return;
  active_transfers_.push_back(&transfer);
  context_.pending.add(Pending::transfers);
}

// Posts segments; ends the transfer when it is complete. False: no progress.
bool RdmaEngine::pump(Transfer& transfer) {
  if (leaves_posting(transfer)) [[unlikely]] {
    list(transfer);
    return false;
  }
  const std::uint64_t before = transfer.posted;
  Peer& peer = *transfer.peer;
  if (context_.over_datagrams() && !transfer.over_rc && !transfer.by_messages &&
      transfer.status.ok() && transfer.total > 0) {
    const DataPath path = events_.data_path(peer);
    transfer.over_rc = path == DataPath::rc;
    if (transfer.over_rc) ++peer.state.make().rx.reads_over_rc;
    if (path == DataPath::fragments &&
        transfer.kind == Transfer::Kind::read) {  // see connection_recovery.cpp
      events_.fall_back_to_fragments(transfer);
      return true;
    }
    transfer.by_messages = path == DataPath::fragments && transfer.kind == Transfer::Kind::user;
  }
  const bool has_path = !context_.over_datagrams() || transfer.over_rc || transfer.by_messages;
  while (has_path && transfer.status.ok() && transfer.posted < transfer.total &&
         transfer.in_flight < kMaxInFlight) {
    const Transfer::Local& local = transfer.local[transfer.cursor.local_at];
    const wire::RtsSegment& remote = transfer.remote[transfer.cursor.remote_at];
    const std::uint64_t n = std::min(
        {local.length - transfer.cursor.local_offset, remote.length - transfer.cursor.remote_offset,
         transfer.total - transfer.posted,
         transfer.by_messages ? most_by_message(peer) : context_.settings.rendezvous_segment});
    if (transfer.by_messages ? !events_.ask_segment(transfer, n) : !post_segment(transfer, n))
      break;
    ++transfer.in_flight;
    transfer.posted += n;
    transfer.cursor.local_offset += n;
    transfer.cursor.remote_offset += n;
    if (transfer.cursor.local_offset == local.length) {
      ++transfer.cursor.local_at;
      transfer.cursor.local_offset = 0;
    }
    if (transfer.cursor.remote_offset == remote.length) {
      ++transfer.cursor.remote_at;
      transfer.cursor.remote_offset = 0;
    }
  }
  const bool left = transfer.status.ok() && transfer.posted < transfer.total;
  if (left) {
    list(transfer);
  } else if (transfer.listed) {
    transfer.listed = false;
    active_transfers_.remove(&transfer);
  }
  const bool posted = transfer.posted != before;
  if (left || transfer.in_flight > 0) return posted;
  end_transfer(transfer);
  return true;
}

bool RdmaEngine::pump_transfers() {
  bool moved = false;
  for (Transfer* transfer = active_transfers_.first(); transfer != nullptr;) {
    Transfer* const next = transfer->next;
    const bool stuck = transfer->in_flight >= kMaxInFlight ||
                       (!transfer->over_rc && !transfer->by_messages &&
                        events_.data_path(*transfer->peer) == DataPath::wait);
    if (!stuck && pump(*transfer)) moved = true;
    transfer = next;
  }
  return moved;
}

// The entry of that transfer, or with null a free one; null: there is none.
RdmaEngine::Timed* RdmaEngine::find_timed(const Transfer* transfer) noexcept {
  Timed* const found = std::find_if(timed_.begin(), timed_.end(), [transfer](const Timed& timed) {
    return timed.transfer == transfer;
  });
  return found != timed_.end() ? found : nullptr;
}

void RdmaEngine::note_read(const Transfer& transfer) noexcept {
  Timed* place = find_timed(&transfer);
  if (place == nullptr) place = find_timed(nullptr);
  if (place != nullptr) *place = {&transfer, context_.clock.now()};
}

// When all of a message had been read; 0: not measured.
Nanoseconds RdmaEngine::read_at(const Transfer& transfer) noexcept {
  if (!context_.format.measures_limit) return 0;
  Timed* const timed = find_timed(&transfer);
  return timed != nullptr ? std::exchange(*timed, {}).time : 0;
}

void RdmaEngine::send_fin(Transfer& transfer) {
  const std::uint64_t operation = transfer.incoming.fin;
  const Nanoseconds read = read_at(transfer);
  if (!transfer.status.ok() || !sender_.post_fin(*transfer.peer, operation, read))
    control_.send_fin(*transfer.peer, operation, transfer.status, read);
}

// The last byte arrived, so the message is complete; the read's completion is still to come.
void RdmaEngine::end_read_early(Transfer& transfer) {
  Peer& peer = *transfer.peer;
  std::erase(polled_, &transfer);
  transfer.watched.byte = nullptr;
  RecvOperation& receive = *std::exchange(transfer.incoming.receive, nullptr);
  --receive.transfers;
  if (!peer.lost) send_fin(transfer);
  posted_.end_receive(receive, transfer.completion, transfer.incoming.overflow, Status{});
}

void RdmaEngine::end_transfer(Transfer& transfer) {
  if (transfer.kind == Transfer::Kind::rput_send) return events_.end_rput_send(transfer);
  if (transfer.kind == Transfer::Kind::put) return events_.end_put(transfer);
  Peer& peer = *transfer.peer;
  MemoryRegistration::release_regions(transfer);
  if (transfer.buffer != kNoBuffer) resources_.send_pool.give_back(transfer.buffer);
  const auto release_rc = [&] {
    if (!transfer.over_rc) return;
    --peer.state.ref().rx.reads_over_rc;
    if (peer.rx.state == ReceiveState::draining) events_.finish_drain(peer);
  };
  if (transfer.incoming.receive != nullptr) {
    RecvOperation& receive = *transfer.incoming.receive;
    --receive.transfers;
    if (!peer.lost && transfer.kind == Transfer::Kind::read && transfer.incoming.fin != 0)
      send_fin(transfer);
    release_rc();
    posted_.end_receive(receive, transfer.completion, transfer.incoming.overflow, transfer.status);
  } else if (transfer.status.ok()) {
    release_rc();
    if (SendOperation* const announcement = std::exchange(transfer.announcement, nullptr)) {
      // It is complete; the target is notified in the stream, after earlier messages.
      if (!peer.state->tx.backlog.empty() || !events_.try_operation(*announcement))
        backlog_.enqueue(*announcement);
    }
    context_.finish(transfer.report, transfer.completion);
  } else {
    release_rc();
    context_.fail(transfer.report, transfer.completion, transfer.status);
  }
  drop_transfer(transfer);
}

bool RdmaEngine::refuses_key(ibv_wc_status status) noexcept {
  return status == IBV_WC_REM_ACCESS_ERR || status == IBV_WC_REM_INV_REQ_ERR ||
         status == IBV_WC_LOC_PROT_ERR || status == IBV_WC_LOC_LEN_ERR;
}

Status RdmaEngine::refused_key(const Peer& peer, const SendRecord& record, ibv_wc_status status) {
  return {
      Code::permission,
      fmt::format("RDMA access denied: {}: {} of {} bytes at {:#x} with key {:#x}: {}",
                  peer.address.to_string(), record.opcode == IBV_WR_RDMA_READ ? "read" : "write",
                  record.length, record.remote, record.rkey, ibv_wc_status_str(status)),
      EACCES};
}

void RdmaEngine::drop_transfer(Transfer& transfer) {
  (void)read_at(transfer);
  MemoryRegistration::release_regions(transfer);
  if (transfer.watched.byte != nullptr) std::erase(polled_, &transfer);
  if (transfer.announcement != nullptr) records_.sends.give_back(transfer.announcement);
  if (transfer.copy != nullptr) records_.give_back_copy(transfer.copy, transfer.total);
  records_.transfers.give_back(&transfer);
}

// At once, with DC.
bool RdmaEngine::reaches_over_rc(const Peer& peer) const noexcept {
  return !context_.over_datagrams() && peer.connection->rc && over_rc(peer.rx.kind) &&
         !peer.connection->eviction.disconnecting && peer.rx.state == ReceiveState::steady &&
         peer.connection->rc->connected_to() != 0;
}

void RdmaEngine::poll_for_last_byte(Transfer& transfer, std::byte* last, std::byte sentinel) {
  // The program may use this byte, so it is written only if needed.
  if (*last != sentinel) *last = sentinel;
  transfer.watched.byte = last;
  transfer.watched.sentinel = sentinel;
  polled_.push_back(&transfer);
  context_.pending.add(Pending::last_bytes);
}

// Access for a large message that is read or written. Under `auto` RTRs are for registered buffers;
// this makes the buffer one for the next message.
int RdmaEngine::receive_access() const noexcept {
  return context_.rendezvous == Rendezvous::automatic ? kPeerWrites : IBV_ACCESS_LOCAL_WRITE;
}

// Bytes of a segment: request and answer fit the smallest maximum of the pair's channels.
std::size_t RdmaEngine::most_by_message(const Peer& peer) const noexcept {
  return eager_size(peer, context_.format) - context_.format.stream_overhead -
         sizeof(wire::WireupRequest) - sizeof(wire::Segment);
}

}  // namespace turnout
