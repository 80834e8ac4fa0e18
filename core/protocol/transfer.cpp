// SPDX-License-Identifier: BSD-3-Clause
// RDMA transfers: the data of large messages, read by the receiver (`getcqe` and `get`,
// spec/rendezvous.md: RTS, RDMA read, completion queue entry or last byte, FIN), and one-sided
// operations.
//
// A transfer is cut into segments with at most kMaxInFlight of them posted. Large messages are read
// over DC. One-sided operations use the pair's RC queue pair while it serves the direction to us,
// which is not switched before they have ended, otherwise DC. A key that the target refuses breaks
// the queue pair, see connection/recovery.cpp. Without DC see fragments.cpp and segments.cpp.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/log.h"
#include "core/endpoint/endpoint_core.h"

namespace turnout {
namespace {
constexpr std::uint32_t kMaxInFlight = 4;
}

Status EndpointCore::register_iov(Transfer& transfer, const IoVec& iov, int access) {
  transfer.local_count = 0;
  for (std::uint32_t i = 0; i < iov.count; ++i) {
    const iovec& part = iov.parts[i];
    if (part.iov_len == 0) continue;
    Registration& region = transfer.regions[transfer.local_count];
    if (Status status = register_buffer(part, access, &region); !status.ok()) return status;
    transfer.local[transfer.local_count++] = {reinterpret_cast<std::uint64_t>(part.iov_base),
                                              part.iov_len, region.lkey()};
  }
  return {};
}

// Reserves the part of the receive's buffer for a large message.
Place EndpointCore::place_in(RecvOperation& receive, std::uint64_t total) {
  const Place place{receive.used, std::min<std::size_t>(total, receive.iov.total - receive.used)};
  ++receive.transfers;
  if (receive.multi) {
    receive.used += place.length;
    if (receive.iov.total - receive.used < std::max<std::size_t>(receive.min_free, 1)) {
      receive.exhausted = true;
      unpost(receive);
    }
  } else {
    unpost(receive);
  }
  return place;
}

// The peer is lost, or `path` is the result of path_of_transfer() and not `wait`.
void EndpointCore::start_get(RecvOperation& receive, Peer& peer, const wire::Header& header,
                             const wire::Rts& rts, Place place, DataPath path) {
  const auto [offset, length] = place;
  Completion completion = completion_of(header, peer.id, length);
  if (receive.iov.count > 0) {
    completion.buffer = static_cast<std::byte*>(receive.iov.parts[0].iov_base) + offset;
  }
  if (peer.lost) {
    --receive.transfers;
    end_receive(receive, completion, 0, peer.loss);
    return;
  }
  Transfer* const transfer = transfers_.take();
  // The part of the receive's buffer that the message goes to.
  IoVec target;
  std::size_t skip = offset, left = length;
  for (std::uint32_t i = 0; i < receive.iov.count && left > 0; ++i) {
    const iovec& part = receive.iov.parts[i];
    if (skip >= part.iov_len) {
      skip -= part.iov_len;
      continue;
    }
    const std::size_t n = std::min(part.iov_len - skip, left);
    target.parts[target.count++] = {static_cast<std::byte*>(part.iov_base) + skip, n};
    left -= n;
    skip = 0;
  }
  target.total = length;

  transfer->peer = &peer;
  transfer->receive = &receive;
  transfer->fin = rts.operation;
  transfer->offset = offset;
  transfer->completion = completion;
  transfer->overflow = rts.total - length;
  transfer->total = length;
  transfer->remote_count = rts.segments;
  std::copy_n(rts.segment, rts.segments, transfer->remote.begin());
  if (path == DataPath::fragments) {
    request_fragments(*transfer, rts);
    return;
  }
  if (asks_for_write(*transfer, target)) {
    if (Status status = ask_for_write(*transfer, target); !status.ok()) {
      transfer->status = status;
      end_transfer(*transfer);
    }
    return;
  }
  transfer->over_rc = path == DataPath::rc;
  if (transfer->over_rc) ++peer.reads_over_rc;
  if (Status status = register_iov(*transfer, target, receive_access()); !status.ok()) {
    transfer->status = status;
    end_transfer(*transfer);
    return;
  }
  const bool polled = (rendezvous_ == Rendezvous::get || rendezvous_ == Rendezvous::automatic) &&
                      path == DataPath::dc && placement_.reads_in_order() &&
                      transfer->local_count == 1 && rts.segments == 1 && transfer->overflow == 0 &&
                      length <= settings_.rendezvous_segment;
  if (polled) {
    const Transfer::Local& local = transfer->local[0];
    poll_for_last_byte(*transfer, reinterpret_cast<std::byte*>(local.address) + local.length - 1,
                       ~std::byte{rts.last});
  }
  pump(*transfer);
}

// The virtual adapter copies the bytes in the call that posts the request. In a program with a
// progress thread the next call to progress() posts it: the thread, while the program computes.
bool EndpointCore::leaves_posting(const Transfer& transfer) const noexcept {
  return posts_in_progress_ && !in_progress_ && transfer.kind != Transfer::Kind::user &&
         transfer.total > own_eager_size_ && transfer.posted == 0 && !transfer.listed &&
         transfer.status.ok();
}

// By RDMA. False: the queue is full, or the transfer's status has the error.
bool EndpointCore::post_segment(Transfer& transfer, std::uint64_t length) {
  Peer& peer = *transfer.peer;
  SendQueue& queue = transfer.over_rc
                         ? static_cast<SendQueue&>(*peer.rc)
                         : static_cast<SendQueue&>(*pool(Purpose::data)[peer.data_queue]);
  if (queue.full()) return false;
  const Transfer::Local& local = transfer.local[transfer.local_at];
  const wire::RtsSegment& remote = transfer.remote[transfer.remote_at];
  SendRecord record;
  record.kind = SendRecord::Kind::transfer;
  record.opcode = transfer.write ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ;
  record.peer = peer.id;
  record.transfer = &transfer;
  record.local = local.address + transfer.local_offset;
  record.lkey = local.lkey;
  record.length = static_cast<std::uint32_t>(length);
  record.remote = remote.address + transfer.remote_offset;
  record.rkey = remote.rkey;
  profile_.count_sent(transfer.write ? Traffic::write : Traffic::read, length);
  Status status;
  if (transfer.over_rc) {
    status = peer.rc->post(record);
  } else {
    address_data(peer, &record);
    status = pool(Purpose::data)[peer.data_queue]->post(record);
  }
  charge(Work::post, 1);
  if (!status.ok()) transfer.status = std::move(status);
  return transfer.status.ok();
}

// Posts segments; ends the transfer when it is complete. False: no progress.
bool EndpointCore::pump(Transfer& transfer) {
  if (leaves_posting(transfer)) [[unlikely]] {
    transfer.listed = true;
    active_transfers_.push_back(&transfer);
    return false;
  }
  const std::uint64_t before = transfer.posted;
  Peer& peer = *transfer.peer;
  if (over_datagrams() && !transfer.over_rc && !transfer.by_messages && transfer.status.ok() &&
      transfer.total > 0) {
    const DataPath path = data_path(peer);
    transfer.over_rc = path == DataPath::rc;
    if (transfer.over_rc) ++peer.reads_over_rc;
    if (path == DataPath::fragments && transfer.kind == Transfer::Kind::read) {  // see recovery.cpp
      fall_back_to_fragments(transfer);
      return true;
    }
    transfer.by_messages = path == DataPath::fragments && transfer.kind == Transfer::Kind::user;
  }
  const bool has_path = !over_datagrams() || transfer.over_rc || transfer.by_messages;
  while (has_path && transfer.status.ok() && transfer.posted < transfer.total &&
         transfer.in_flight < kMaxInFlight) {
    const Transfer::Local& local = transfer.local[transfer.local_at];
    const wire::RtsSegment& remote = transfer.remote[transfer.remote_at];
    const std::uint64_t n =
        std::min({local.length - transfer.local_offset, remote.length - transfer.remote_offset,
                  transfer.total - transfer.posted,
                  transfer.by_messages ? most_by_message(peer) : settings_.rendezvous_segment});
    if (transfer.by_messages ? !ask_segment(transfer, n) : !post_segment(transfer, n)) break;
    ++transfer.in_flight;
    transfer.posted += n;
    transfer.local_offset += n;
    transfer.remote_offset += n;
    if (transfer.local_offset == local.length) {
      ++transfer.local_at;
      transfer.local_offset = 0;
    }
    if (transfer.remote_offset == remote.length) {
      ++transfer.remote_at;
      transfer.remote_offset = 0;
    }
  }
  const bool left = transfer.status.ok() && transfer.posted < transfer.total;
  if (left && !transfer.listed) {
    transfer.listed = true;
    active_transfers_.push_back(&transfer);
  } else if (!left && transfer.listed) {
    transfer.listed = false;
    active_transfers_.remove(&transfer);
  }
  const bool posted = transfer.posted != before;
  if (left || transfer.in_flight > 0) return posted;
  end_transfer(transfer);
  return true;
}

bool EndpointCore::pump_transfers() {
  bool moved = false;
  for (Transfer* transfer = active_transfers_.first(); transfer != nullptr;) {
    Transfer* const next = transfer->next;
    const bool stuck =
        transfer->in_flight >= kMaxInFlight || (!transfer->over_rc && !transfer->by_messages &&
                                                data_path(*transfer->peer) == DataPath::wait);
    if (!stuck && pump(*transfer)) moved = true;
    transfer = next;
  }
  return moved;
}

// One segment has ended.
void EndpointCore::on_transfer_done(Transfer& transfer, Status status) {
  --transfer.in_flight;
  if (!status.ok() && transfer.status.ok()) transfer.status = std::move(status);
  (void)pump(transfer);
}

// The last byte arrived, so the message is complete; the read's completion is still to come.
void EndpointCore::end_read_early(Transfer& transfer) {
  Peer& peer = *transfer.peer;
  std::erase(polled_, &transfer);
  transfer.last = nullptr;
  RecvOperation& receive = *std::exchange(transfer.receive, nullptr);
  --receive.transfers;
  if (!peer.lost) send_fin(peer, transfer.fin, Status{});
  end_receive(receive, transfer.completion, transfer.overflow, Status{});
}

void EndpointCore::end_transfer(Transfer& transfer) {
  if (transfer.kind == Transfer::Kind::rput_send) return end_rput_send(transfer);
  if (transfer.kind == Transfer::Kind::put) return end_put(transfer);
  Peer& peer = *transfer.peer;
  release_regions(transfer);
  if (transfer.buffer != kNoBuffer) send_pool_.give_back(transfer.buffer);
  const auto release_rc = [&] {
    if (!transfer.over_rc) return;
    --peer.reads_over_rc;
    if (peer.receive_state == ReceiveState::draining) finish_drain(peer);
  };
  if (transfer.receive != nullptr) {
    RecvOperation& receive = *transfer.receive;
    --receive.transfers;
    if (!peer.lost && transfer.kind == Transfer::Kind::read) {
      send_fin(peer, transfer.fin, transfer.status);
    }
    release_rc();
    end_receive(receive, transfer.completion, transfer.overflow, transfer.status);
  } else if (transfer.status.ok()) {
    release_rc();
    if (SendOperation* const announcement = std::exchange(transfer.announcement, nullptr)) {
      // The write is complete; the target is notified in the stream, after earlier messages.
      if (!peer.backlog.empty() || !try_operation(*announcement)) enqueue(*announcement);
    }
    finish(transfer.report, transfer.completion);
  } else {
    release_rc();
    fail(transfer.report, transfer.completion, transfer.status);
  }
  drop_transfer(transfer);
}

bool EndpointCore::refuses_key(ibv_wc_status status) noexcept {
  return status == IBV_WC_REM_ACCESS_ERR || status == IBV_WC_REM_INV_REQ_ERR ||
         status == IBV_WC_LOC_PROT_ERR || status == IBV_WC_LOC_LEN_ERR;
}

Status EndpointCore::refused_key(const Peer& peer, const SendRecord& record, ibv_wc_status status) {
  return {
      Code::permission,
      fmt::format("RDMA access denied: {}: {} of {} bytes at {:#x} with key {:#x}: {}",
                  peer.address.to_string(), record.opcode == IBV_WR_RDMA_READ ? "read" : "write",
                  record.length, record.remote, record.rkey, ibv_wc_status_str(status)),
      EACCES};
}

void EndpointCore::drop_transfer(Transfer& transfer) {
  release_regions(transfer);
  if (transfer.last != nullptr) std::erase(polled_, &transfer);
  if (transfer.announcement != nullptr) sends_.give_back(transfer.announcement);
  if (transfer.copy != nullptr) copies_.give_back(transfer.copy);
  transfers_.give_back(&transfer);
}

// At once, with DC.
bool EndpointCore::reaches_over_rc(const Peer& peer) const noexcept {
  return !over_datagrams() && peer.rc && over_rc(peer.receive_kind) &&
         !peer.eviction.disconnecting && peer.receive_state == ReceiveState::steady &&
         peer.rc->connected_to() != 0;
}

Status EndpointCore::rma_now(const RmaRequest& request) {
  Peer* const peer = find_peer(request.peer);
  if (peer == nullptr) return {Code::invalid, fmt::format("rma: no such peer: {}", request.peer)};
  if (peer->lost) return peer->loss;
  IoVec iov;
  if (!iov.set(request.local)) {
    return {Code::invalid,
            fmt::format("rma: {} IOV entries, at most {}", request.local.size(), kMaxIov)};
  }
  if (iov.total != request.length) {
    return {Code::invalid, fmt::format("rma: length {} does not match the local buffers' {} bytes",
                                       request.length, iov.total)};
  }
  if (request.key > 0xffffffffu) {
    return {Code::permission, fmt::format("rma: unknown key {:#x}", request.key)};
  }
  if (over_datagrams() && peer->self) return rma_to_self(request, iov);
  if (connects_first_) use_one_sided(*peer);
  const bool over_rc = reaches_over_rc(*peer);
  if (over_rc ? peer->rc->full() : pool(Purpose::data)[peer->data_queue]->full()) {
    return {Code::again, "the send queue is full"};
  }
  Transfer* const transfer = take_for_caller(transfers_);
  if (transfer == nullptr) return refusal();
  if (request.write && request.has_remote_data) {
    SendOperation* const announcement = take_for_caller(sends_);
    if (announcement == nullptr) {
      drop_transfer(*transfer);
      return refusal();
    }
    announcement->peer = peer;
    announcement->type = wire::Type::rma_data;
    announcement->data = request.remote_data;
    announcement->tag = request.length;
    announcement->report = Report{nullptr, request.report.errors, nullptr, nullptr};
    transfer->announcement = announcement;
  }
  transfer->peer = peer;
  transfer->kind = Transfer::Kind::user;
  transfer->write = request.write;
  transfer->total = request.length;
  transfer->remote[0] = {request.remote_address, request.length,
                         static_cast<std::uint32_t>(request.key), 0};
  transfer->remote_count = 1;
  transfer->report = request.report;
  transfer->completion.context = request.report.context;
  transfer->completion.length = request.length;
  transfer->completion.flags = request.write ? kRmaWrite : kRmaRead;
  // Without DC only a write that is posted now may take a send buffer, and only half of them:
  // messages need buffers, and a transfer may wait for a message. Injected writes do not wait for a
  // connection.
  const DataPath path = over_datagrams() && request.length > 0 ? data_path(*peer) : DataPath::dc;
  const bool posts = path == DataPath::dc || path == DataPath::rc;
  if (!posts) transfer->by_messages = path == DataPath::fragments || request.inject;
  const bool copies = !over_datagrams() || send_pool_.available() > settings_.send_buffers / 2;
  if (posts && copies && request.write && request.length > 0 &&
      request.length <= send_pool_.size()) {
    transfer->buffer = send_pool_.take();
  }
  if (transfer->buffer != kNoBuffer) {
    iov.copy_out(send_pool_.data(transfer->buffer));
    charge(Work::copy, request.length);
    transfer->local[0] = {reinterpret_cast<std::uint64_t>(send_pool_.data(transfer->buffer)),
                          request.length, send_pool_.lkey()};
    transfer->local_count = 1;
  } else if (transfer->by_messages) {
    if (Status status = take_for_messages(*transfer, iov, request.inject); !status.ok()) {
      drop_transfer(*transfer);
      return status;
    }
  } else if (request.inject && request.length > 0) {
    drop_transfer(*transfer);
    return {Code::again, "no send buffer is free to copy the data into"};
  } else if (Status status =
                 register_iov(*transfer, iov, request.write ? 0 : IBV_ACCESS_LOCAL_WRITE);
             !status.ok()) {
    drop_transfer(*transfer);
    return status;
  }
  if (over_rc) {
    transfer->over_rc = true;
    ++peer->reads_over_rc;
  }
  pump(*transfer);
  return {};
}

}  // namespace turnout
