// SPDX-License-Identifier: BSD-3-Clause
// One-sided operations between processes without a connection and without DC: in segments that the
// target's CPU copies when its program makes progress, as it executes atomic operations
// (atomic_engine.cpp), with which they share numbers, window and answers. So no operation waits for
// a connection, whatever the limits of connections.
//
// The target checks key and range of every segment when it executes it. A read is executed when its
// answer is sent: its bytes are copied into the message only then.
#include "core/operations/atomic_engine.h"

namespace turnout {

// No registration, as the adapter does not read the memory. Injected bytes are copied.
Status AtomicEngine::take_for_messages(Transfer& transfer, const IoVec& iov, bool inject) {
  if (inject) {
    transfer.copy = records_.take_copy(iov.total);
    if (transfer.copy == nullptr) return records_.refusal();
    iov.copy_out(transfer.copy);
    context_.charge(Work::copy, iov.total);
    transfer.local[0] = {reinterpret_cast<std::uint64_t>(transfer.copy), iov.total, 0};
    transfer.local_count = 1;
    return {};
  }
  for (std::uint32_t i = 0; i < iov.count; ++i) {
    const iovec& part = iov.parts[i];
    if (part.iov_len == 0) continue;
    transfer.local[transfer.local_count++] = {reinterpret_cast<std::uint64_t>(part.iov_base),
                                              part.iov_len, 0};
  }
  return {};
}

// Queues the next `length` bytes in the backlog, since a message that cannot be sent may end the
// transfer. False: no record is free.
bool AtomicEngine::ask_segment(Transfer& transfer, std::uint64_t length) {
  Peer& peer = *transfer.peer;
  if (peer.rx.retained > 0) (void)events_.relieve(peer);  // the answer arrives behind them
  if (peer.lost || !make_atomics(peer) ||
      records_.atomics.in_use() >= records_.operation_limits.waiting) {
    return false;
  }
  AtomicOperation* const operation = records_.atomics.take();
  if (operation == nullptr) return false;
  const wire::RtsSegment& remote = transfer.remote[transfer.cursor.remote_at];
  operation->peer = &peer;
  operation->type = transfer.write ? wire::Type::put : wire::Type::get;
  operation->transfer = &transfer;
  operation->local =
      transfer.local[transfer.cursor.local_at].address + transfer.cursor.local_offset;
  operation->length = length;
  operation->head.address = remote.address + transfer.cursor.remote_offset;
  operation->head.rkey = remote.rkey;
  if (transfer.copy == nullptr && transfer.buffer == kNoBuffer) {
    const iovec bytes{reinterpret_cast<void*>(operation->local), length};
    (void)operation->iov.set({&bytes, 1});
  }
  backlog_.enqueue(*operation);
  return true;
}

// Returns the bytes of the message: `segment`, and the data of a put.
std::size_t AtomicEngine::fill_segment(const AtomicOperation& operation, wire::Segment* segment,
                                       IoVec* parts) noexcept {
  segment->address = operation.head.address;
  segment->rkey = operation.head.rkey;
  segment->number = operation.head.number;
  segment->length = static_cast<std::uint32_t>(operation.length);
  const std::array<iovec, 2> both{
      iovec{segment, sizeof *segment},
      iovec{reinterpret_cast<void*>(operation.local), operation.length}};
  const bool put = operation.type == wire::Type::put;
  (void)parts->set({both.data(), put ? 2u : 1u});
  return parts->total;
}

// At the target. Errors: the request is malformed.
Status AtomicEngine::take_segment(Peer& peer, const wire::Header& header,
                                  const std::byte* payload) {
  wire::Segment request;
  if (Status status = wire::parse_segment(header.type, payload, header.length, &request);
      !status.ok()) {
    return status;
  }
  const bool get = header.type == wire::Type::get;
  if (get && request.length > rdma_.most_by_message(peer)) {
    return {Code::invalid, "the answer to a read would not fit a message"};
  }
  PeerAtomics& atomics = *peer.state->atomics;
  AtomicAnswer& answer = atomics.answer(atomics.unsent);
  answer.number = request.number;
  answer.code = Code::ok;
  answer.length = get ? static_cast<std::uint16_t>(request.length) : 0;
  answer.reads = get;
  answer.rkey = request.rkey;
  answer.address = request.address;
  ++atomics.unsent;
  if (get) return {};
  if (!context_.domain->allows(request.rkey, request.address, request.length, kAccessRemoteWrite)) {
    answer.code = Code::permission;
    return {};
  }
  std::memcpy(reinterpret_cast<std::byte*>(request.address), payload + sizeof request,
              request.length);
  context_.charge(Work::copy, request.length);
  return {};
}

}  // namespace turnout
