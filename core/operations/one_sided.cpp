// SPDX-License-Identifier: BSD-3-Clause
#include "core/operations/one_sided.h"
#include "base/log.h"

namespace turnout {

Status OneSided::rma_to_self(const RmaRequest& request, const IoVec& iov) {
  if (!context_.domain->allows(request.key, request.remote_address, request.length,
                               request.write ? kAccessRemoteWrite : kAccessRemoteRead)) {
    return {Code::permission,
            fmt::format("rma: {} bytes at {:#x} are outside the region of key {:#x}",
                        request.length, request.remote_address, request.key)};
  }
  auto* const remote = reinterpret_cast<std::byte*>(request.remote_address);
  if (request.write) {
    iov.copy_out(remote);
  } else {
    iov.copy_in(0, remote, request.length);
  }
  context_.charge(Work::copy, request.length);
  const bool has_data = request.write && request.has_remote_data;
  if (has_data) context_.report_write(request.length, request.remote_data, request.peer);
  if (request.has_event) context_.count_access(request.write, request.key, has_data);
  context_.finish(request.report, {.context = request.report.context,
                                   .length = request.length,
                                   .flags = request.write ? kRmaWrite : kRmaRead});
  return {};
}

Status OneSided::rma_now(const RmaRequest& request) {
  Peer* const peer = peer_table_.find_peer(request.peer);
  if (peer == nullptr) return {Code::invalid, fmt::format("rma: no such peer: {}", request.peer)};
  if (peer->lost) return peer->state->loss;
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
  if (context_.over_datagrams() && peer->self) return rma_to_self(request, iov);
  if (context_.traits.connects_first) events_.use_one_sided(*peer);
  const bool over_rc = rdma_.reaches_over_rc(*peer);
  if (over_rc ? peer->connection->rc->full()
              : resources_.pool(Purpose::data)[peer->data_queue]->full()) {
    return {Code::again, "the send queue is full"};
  }
  Transfer* const transfer = records_.take_for_caller(records_.transfers);
  if (transfer == nullptr) return records_.refusal();
  const bool with_data = request.write && request.has_remote_data;
  if (with_data || request.has_event) {
    SendOperation* const announcement = records_.take_for_caller(records_.sends);
    if (announcement == nullptr) {
      rdma_.drop_transfer(*transfer);
      return records_.refusal();
    }
    announcement->peer = peer;
    announcement->type = wire::Type::rma_data;
    announcement->flags = wire::flags_of(false, with_data);
    announcement->data = with_data ? request.remote_data : 0;
    announcement->has_event = request.has_event;
    announcement->reads = !request.write;
    announcement->grant.rkey = static_cast<std::uint32_t>(request.key);
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
  transfer->report = request.report;
  transfer->completion.context = request.report.context;
  transfer->completion.length = request.length;
  transfer->completion.flags = request.write ? kRmaWrite : kRmaRead;
  // Without DC only a write that is posted now may take a send buffer, and only half of them:
  // messages need buffers, and a transfer may wait for a message. Injected writes do not wait for a
  // connection.
  const DataPath path =
      context_.over_datagrams() && request.length > 0 ? events_.data_path(*peer) : DataPath::dc;
  const bool posts = path == DataPath::dc || path == DataPath::rc;
  if (!posts) transfer->by_messages = path == DataPath::fragments || request.inject;
  transfer->by_messages |= request.inject && request.length > resources_.send_pool.size();
  const bool copies = !context_.over_datagrams() ||
                      resources_.send_pool.available() > context_.settings.send_buffers / 2;
  if (posts && copies && request.write && request.length > 0 &&
      request.length <= resources_.send_pool.size()) {
    transfer->buffer = resources_.send_pool.take();
  }
  if (transfer->buffer != kNoBuffer) {
    iov.copy_out(resources_.send_pool.data(transfer->buffer));
    context_.charge(Work::copy, request.length);
    transfer->local[0] = {
        reinterpret_cast<std::uint64_t>(resources_.send_pool.data(transfer->buffer)),
        request.length, resources_.send_pool.lkey()};
    transfer->local_count = 1;
  } else if (transfer->by_messages) {
    if (Status status = atomic_engine_.take_for_messages(*transfer, iov, request.inject);
        !status.ok()) {
      rdma_.drop_transfer(*transfer);
      return status;
    }
  } else if (request.inject && request.length > 0) {
    rdma_.drop_transfer(*transfer);
    return {Code::again, "no send buffer is free to copy the data into"};
  } else if (Status status =
                 rdma_.register_iov(*transfer, iov, request.write ? 0 : IBV_ACCESS_LOCAL_WRITE);
             !status.ok()) {
    rdma_.drop_transfer(*transfer);
    return status;
  }
  if (over_rc && !transfer->by_messages) {
    transfer->over_rc = true;
    ++peer->state.make().rx.reads_over_rc;
  }
  rdma_.pump(*transfer);
  return {};
}

}  // namespace turnout
