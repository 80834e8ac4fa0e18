// SPDX-License-Identifier: BSD-3-Clause
#include "record/libfabric/cq.h"

#include <rdma/fi_errno.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "record/libfabric/av.h"

namespace turnout::record::libfabric {
namespace {

constexpr std::size_t kMost = 64;  // entries read at a time

std::size_t size_of(fi_cq_format format) noexcept {
  switch (format) {
    case FI_CQ_FORMAT_CONTEXT:
      return sizeof(fi_cq_entry);
    case FI_CQ_FORMAT_MSG:
      return sizeof(fi_cq_msg_entry);
    case FI_CQ_FORMAT_DATA:
      return sizeof(fi_cq_data_entry);
    default:
      return sizeof(fi_cq_tagged_entry);
  }
}

}  // namespace

Cq::Cq(fid_cq* cq, fi_cq_format format) : ObjectWithTable(cq), entry_size_(size_of(format)) {
  ops_.replace(&fi_ops_cq::read, &Cq::read);
  ops_.replace(&fi_ops_cq::readfrom, &Cq::readfrom);
  ops_.replace(&fi_ops_cq::readerr, &Cq::readerr);
  ops_.replace(&fi_ops_cq::sread, &Cq::sread);
  ops_.replace(&fi_ops_cq::sreadfrom, &Cq::sreadfrom);
  take();
}

template <class Read>
ssize_t Cq::take_entries(void* to, std::size_t count, fi_addr_t* from, Read&& read_entries) {
  const Recorder::Call call(Recorder::get(), ComputedTime::Call::polls);
  std::array<fi_cq_tagged_entry, kMost> entries;
  std::array<fi_addr_t, kMost> sources;
  count = std::min(count, kMost);
  std::fill_n(sources.begin(), count, FI_ADDR_NOTAVAIL);
  const ssize_t n = read_entries(entries.data(), count, sources.data());
  for (std::size_t i = 0; n > 0 && i < static_cast<std::size_t>(n); ++i) {
    std::memcpy(static_cast<std::byte*>(to) + i * entry_size_, &entries[i], entry_size_);
    if (from != nullptr) from[i] = sources[i];
    if (call.recorder() != nullptr) ended(*call.recorder(), entries[i], sources[i]);
  }
  return n;
}

ssize_t Cq::read(fid_cq* cq, void* to, std::size_t count) {
  return readfrom(cq, to, count, nullptr);
}

ssize_t Cq::readfrom(fid_cq* cq, void* to, std::size_t count, fi_addr_t* from) {
  return of(cq).take_entries(to, count, from, [&](auto* entries, auto n, auto* sources) {
    return real(cq).readfrom(cq, entries, n, sources);
  });
}

ssize_t Cq::sread(fid_cq* cq, void* to, std::size_t count, const void* condition, int timeout) {
  return sreadfrom(cq, to, count, nullptr, condition, timeout);
}

ssize_t Cq::sreadfrom(fid_cq* cq, void* to, std::size_t count, fi_addr_t* from,
                      const void* condition, int timeout) {
  return of(cq).take_entries(to, count, from, [&](auto* entries, auto n, auto* sources) {
    return real(cq).sreadfrom(cq, entries, n, sources, condition, timeout);
  });
}

ssize_t Cq::readerr(fid_cq* cq, fi_cq_err_entry* to, std::uint64_t flags) {
  const Recorder::Call call(Recorder::get());
  const ssize_t n = real(cq).readerr(cq, to, flags);
  if (n > 0 && call.recorder() != nullptr) of(cq).failed(*call.recorder(), *to);
  return n;
}

void Cq::ended(Recorder& recorder, const fi_cq_tagged_entry& entry, fi_addr_t source) {
  auto lock = recorder.guard();
  PendingOperation* found = pending_.oldest(entry.op_context, entry.flags);
  if (found == nullptr) return;  // told by a peer: one-sided, with data
  using enum Operation::Kind;
  if (found->operation.kind != receive && found->operation.kind != receive_many) {
    recorder.ended(&found->operation);
    pending_.erase(entry.op_context, found);
    return;
  }
  PeerId from = found->operation.peer;
  if (Av* const av = found->av; from == kAnyPeer && av != nullptr) {
    const std::uint32_t number = found->operation.number;
    lock.unlock();
    from = av->peer(recorder, source);
    lock.lock();
    // Another thread that reads the queue may have ended it.
    found = pending_.find(entry.op_context, number);
    if (found == nullptr) return;
  }
  Operation& operation = found->operation;
  const bool last = operation.kind == receive || (entry.flags & FI_MULTI_RECV) != 0;
  // The end of a buffer for many messages may come without one.
  if (operation.kind == receive || (entry.flags & FI_RECV) != 0)
    recorder.matched(&operation, from, entry.len, entry.tag);
  if (last) pending_.erase(entry.op_context, found);
}

void Cq::failed(Recorder& recorder, const fi_cq_err_entry& error) {
  const auto lock = recorder.guard();
  PendingOperation* const found = pending_.oldest(error.op_context, error.flags);
  if (found == nullptr) return;
  Operation& operation = found->operation;
  // A message that was too long has arrived all the same.
  if (operation.kind == Operation::Kind::receive && error.err == FI_ETRUNC) {
    recorder.matched(&operation, kAnyPeer, error.len + error.olen, error.tag);
  } else {
    recorder.dropped(&operation);
  }
  pending_.erase(error.op_context, found);
}

}  // namespace turnout::record::libfabric
