// SPDX-License-Identifier: BSD-3-Clause
#include "core/operations/rendezvous_receiver.h"
#include "base/log.h"

namespace turnout {

// Reserves the part of the receive's buffer for a large message.
Place RendezvousReceiver::place_in(RecvOperation& receive, std::uint64_t total) {
  const Place place{receive.used, std::min<std::size_t>(total, receive.iov.total - receive.used)};
  ++receive.transfers;
  if (receive.multi) {
    receive.used += place.length;
    if (receive.iov.total - receive.used < std::max<std::size_t>(receive.min_free, 1)) {
      receive.exhausted = true;
      posted_.unpost(receive);
    }
  } else {
    posted_.unpost(receive);
  }
  return place;
}

Completion RendezvousReceiver::completion_in(const RecvOperation& receive, const Peer& peer,
                                             const wire::Header& header, Place place) const {
  Completion completion = posted_.completion_of(header, peer.id, place.length);
  if (receive.iov.count > 0) {
    completion.buffer = static_cast<std::byte*>(receive.iov.parts[0].iov_base) + place.offset;
  }
  return completion;
}

// `arrived`: the first bytes of the message, not all `total`: a transfer is free or the peer lost.
void RendezvousReceiver::start_eager(RecvOperation& receive, Peer& peer, const wire::Header& header,
                                     Place place, std::uint64_t total,
                                     std::span<const std::byte> arrived) {
  const Completion completion = completion_in(receive, peer, header, place);
  const std::size_t n = std::min(arrived.size(), place.length);
  receive.iov.copy_in(place.offset, arrived.data(), n);
  context_.charge(Work::copy, n);
  if (arrived.size() == total || peer.lost) {
    --receive.transfers;
    posted_.end_receive(receive, completion, total - place.length,
                        arrived.size() == total ? Status{} : peer.state->loss);
    return;
  }
  Transfer* const transfer = records_.transfers.take();
  transfer->peer = &peer;
  transfer->incoming.receive = &receive;
  transfer->incoming.offset = place.offset;
  transfer->incoming.overflow = total - place.length;
  transfer->completion = completion;
  transfer->total = place.length;
  fragments_.expect_fragments(*transfer, total, arrived.size());
}

// The peer is lost, or a transfer is free and `path` is not `wait`, see path_of_transfer().
void RendezvousReceiver::start_get(RecvOperation& receive, Peer& peer, const wire::Header& header,
                                   const wire::Rts& rts, Place place, DataPath path) {
  const auto [offset, length] = place;
  const Completion completion = completion_in(receive, peer, header, place);
  if (peer.lost) {
    --receive.transfers;
    posted_.end_receive(receive, completion, 0, peer.state->loss);
    return;
  }
  Transfer* const transfer = records_.transfers.take();
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
  transfer->incoming.receive = &receive;
  transfer->incoming.fin = rts.operation;
  transfer->incoming.offset = offset;
  transfer->completion = completion;
  transfer->incoming.overflow = rts.total - length;
  transfer->total = length;
  std::copy_n(rts.segment, rts.segments, transfer->remote.begin());
  if (path == DataPath::fragments || rts.is_unregistered())
    return fragments_.request_fragments(*transfer, rts);
  const bool writes = rput_.asks_for_write(*transfer, target);
  Status status = writes ? rput_.ask_for_write(*transfer, target)
                         : rdma_.register_iov(*transfer, target, rdma_.receive_access());
  if (!status.ok()) {
    if (MemoryRegistration::may_copy(status)) {
      TURNOUT_LOG(memory, info, "receiving {} bytes in fragments: {}", length, status.text());
      return fragments_.fall_back_to_fragments(*transfer);
    }
    transfer->status = std::move(status);
    rdma_.end_transfer(*transfer);
    return;
  }
  if (writes) return;
  transfer->over_rc = path == DataPath::rc;
  if (transfer->over_rc) ++peer.state.make().rx.reads_over_rc;
  const bool polled =
      (context_.rendezvous == Rendezvous::get || context_.rendezvous == Rendezvous::automatic) &&
      path == DataPath::dc && context_.placement.reads_in_order() && transfer->local_count == 1 &&
      rts.segments == 1 && transfer->incoming.overflow == 0 &&
      length <= context_.settings.rendezvous_segment;
  if (polled) {
    const Transfer::Local& local = transfer->local[0];
    rdma_.poll_for_last_byte(*transfer,
                             reinterpret_cast<std::byte*>(local.address) + local.length - 1,
                             ~std::byte{rts.last});
  }
  rdma_.pump(*transfer);
}

}  // namespace turnout
