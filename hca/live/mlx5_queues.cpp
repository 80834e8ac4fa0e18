// SPDX-License-Identifier: BSD-3-Clause
#include "hca/live/mlx5_queues.h"

#include <endian.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cassert>
#include <cstring>

#include "hca/live/events.h"
#include "hca/live/receives.h"

namespace turnout::hca {
namespace {

constexpr std::uint32_t kIndexMask = 0xff'ffff;  // of a completion queue's words

void begin(ReceiveQueue& queue, Mlx5ReceiveRecord& record,
           const Mlx5ReceiveRecord& where) noexcept {
  record.buffer = where.buffer;
  record.doorbell = where.doorbell;
  record.entries = where.entries;
  record.stride = where.stride;
  std::atomic_ref(record.user_index).store(where.user_index, std::memory_order_relaxed);
  record.entries_are = where.entries_are;
  record.fetched = record.becomes = 0;
  record.fetching = 0;
  queue.mlx5 = where.buffer != 0 ? 1 : 0;
}

}  // namespace

void Mlx5Queues::attach(const Cq& cq, const Mlx5CqRecord& where) noexcept {
  const SharedGuard guard(fabric, cq.record->lock);
  Mlx5CqRecord& record = fabric.mlx5_cq(cq.index);
  record = where;
  record.consumed = record.announced = 0;
  cq.record->mlx5 = 1;
}

void Mlx5Queues::attach(Qp& qp, const Mlx5ReceiveRecord& where) {
  {
    const SharedGuard guard(fabric, qp.record->rq.lock);
    begin(qp.record->rq, fabric.mlx5_qp(qp.index), where);
  }
  const std::lock_guard lock(mutex_);
  if (where.buffer != 0) own_.push_back(&qp);
}

void Mlx5Queues::attach(const Srq& srq, const Mlx5ReceiveRecord& where) noexcept {
  const SharedGuard guard(fabric, srq.record->rq.lock);
  begin(srq.record->rq, fabric.mlx5_srq(srq.index), where);
}

void Mlx5Queues::detach(const Qp& qp) noexcept {
  const std::lock_guard lock(mutex_);
  std::erase(own_, &qp);
}

void Mlx5Queues::restart(const Qp& qp) noexcept {
  const SharedGuard guard(fabric, qp.record->rq.lock);
  Mlx5ReceiveRecord& record = fabric.mlx5_qp(qp.index);
  record.fetched = 0;
  record.fetching = 0;
  qp.record->rq.head = qp.record->rq.tail;
}

bool Mlx5Queues::place_of(Token owner, std::uint64_t address, Place& place) noexcept {
  if (owner == fabric.me()) {
    place.direct = reinterpret_cast<std::uint8_t*>(address);  // NOLINT: our program's
    return true;
  }
  place.remote = address;
  place.owner = owner;
  return memory.reach(owner, place.pid);
}

bool Mlx5Queues::write(Token owner, std::uint64_t address, const void* from,
                       std::size_t bytes) noexcept {
  Place place;
  return place_of(owner, address, place) &&
         memory.write(place, static_cast<const std::uint8_t*>(from), bytes) == Access::ok;
}

bool Mlx5Queues::read(Token owner, std::uint64_t address, void* to, std::size_t bytes) noexcept {
  Place place;
  return place_of(owner, address, place) &&
         memory.read(static_cast<std::uint8_t*>(to), place, bytes) == Access::ok;
}

void Mlx5Queues::put_entry(const Mlx5CqRecord& where, Token owner, std::uint64_t position,
                           const mlx5_cqe64& entry) noexcept {
  const std::uint64_t address = where.buffer + (position & (where.entries - 1)) * where.stride +
                                (where.stride - kMlx5CqeBytes);
  // Of a process that has gone nobody reads it.
  (void)write(owner, address, &entry, sizeof entry);
}

void Mlx5Queues::look_at_consumed(Mlx5CqRecord& record, Token owner,
                                  std::uint64_t position) noexcept {
  std::uint32_t word = 0;
  if (!read(owner, record.doorbell, &word, sizeof word)) return;
  const std::uint32_t forward =
      (be32toh(word) - static_cast<std::uint32_t>(record.consumed)) & kIndexMask;
  // Never more than there was to poll, whatever the word says.
  record.consumed += std::min<std::uint64_t>(forward, position - record.consumed);
}

bool Mlx5Queues::is_full(std::uint32_t index, const CqRecord& cq, std::uint64_t tail) noexcept {
  Mlx5CqRecord& record = fabric.mlx5_cq(index);
  const std::uint64_t position = tail + record.announced;
  if (record.unchecked != 0) return false;
  if (position - record.consumed < record.entries) return false;
  look_at_consumed(record, cq.owner.load(std::memory_order_relaxed), position);
  return position - record.consumed >= record.entries;
}

std::uint32_t Mlx5Queues::user_index_of(const Completion& done) const noexcept {
  if (done.send != 0) return unpack(done.wr_id).user_index;
  // Made before it took messages. That order passes through the sender's process, and no lock that
  // is held here shows it; the identity does, of what was there before it.
  const std::uint32_t index = done.qpn & (kMaxQps - 1);
  const QpRecord& qp = fabric.qp(index);
  static_cast<void>(qp.identity.load(std::memory_order_acquire));
  // A receive of an XRC target is told as its shared queue's, which its id names.
  if (qp.kind == QpKind::xrc_tgt) return unpack(done.wr_id).user_index;
  return std::atomic_ref(fabric.mlx5_qp(index).user_index).load(std::memory_order_relaxed);
}

void Mlx5Queues::move_entries(std::uint32_t index, CqRecord& cq) noexcept {
  const CompletionRing ring = fabric.ring(cq);
  if (ring.start == nullptr) return;
  const Mlx5CqRecord& record = fabric.mlx5_cq(index);
  if (record.entries == 0 || record.stride < kMlx5CqeBytes) return;  // damaged
  const Token owner = cq.owner.load(std::memory_order_relaxed);
  std::uint64_t position = cq.head.load(std::memory_order_relaxed);
  if (cq.tail - position > ring.mask + 1) position = cq.tail;  // damaged
  for (; position < cq.tail; ++position) {
    const Cqe& done = ring.entry(position);
    const std::uint64_t at = position + record.announced;
    put_entry(record, owner, at,
              completion_entry(done, user_index_of(done), done.solicited != 0, at, record.entries));
    cq.head.store(position + 1, std::memory_order_release);
  }
}

void Mlx5Queues::move_own() noexcept {
  const std::lock_guard lock(objects.mutex);
  for (const auto& [index, cq] : objects.cqs) {
    const SharedGuard guard(fabric, cq->record->lock);
    if (cq->record->mlx5 == 0) continue;
    move_entries(index, *cq->record);
  }
}

bool Mlx5Queues::resize(const Cq& cq, std::uint64_t buffer, std::uint32_t entries,
                        std::uint32_t stride) noexcept {
  const SharedGuard guard(fabric, cq.record->lock);
  Mlx5CqRecord& record = fabric.mlx5_cq(cq.index);
  move_entries(cq.index, *cq.record);
  const std::uint64_t position = cq.record->tail + record.announced;
  if (record.unchecked == 0) {
    look_at_consumed(record, fabric.me(), position);
    const std::uint64_t waiting = position - record.consumed;
    // The entry that says so moves into the new one, too (libmlx5 copies those before it).
    if (waiting >= record.entries || waiting >= entries) return false;
  }
  put_entry(record, fabric.me(), position, resize_entry(position, record.entries));
  ++record.announced;
  record.buffer = buffer;
  record.entries = entries;
  record.stride = stride;
  return true;
}

void Mlx5Queues::tell_of_entry_behind(const Cq& cq, std::uint32_t consumed) noexcept {
  CqRecord& record = *cq.record;
  EventRecord event{};
  PipeRef pipe;
  {
    const SharedGuard guard(fabric, record.lock);
    const std::uint64_t position = record.tail + fabric.mlx5_cq(cq.index).announced;
    const std::uint32_t behind = (static_cast<std::uint32_t>(position) - consumed) & kIndexMask;
    const Armed armed = record.armed.load(std::memory_order_relaxed);
    const CompletionRing ring = fabric.ring(record);
    if (behind == 0 || armed == Armed::no || record.has_channel == 0 || ring.start == nullptr) {
      return;
    }
    bool tells = armed == Armed::any;
    // Of more than the ring has kept the oldest are not known: then any may have been one.
    for (std::uint32_t n = 1; n <= behind && !tells; ++n) {
      if (n > ring.mask + 1 || n > record.tail) {
        tells = true;
        break;
      }
      const Cqe& done = ring.entry(record.tail - n);
      tells = done.solicited != 0 || done.status != IBV_WC_SUCCESS;
    }
    if (!tells) return;
    record.armed.store(Armed::no, std::memory_order_relaxed);
    event = {record.cookie, cq.index, record.generation, kCompletion, kCqEvent};
    pipe = record.channel;
  }
  events.raise(fabric.me(), pipe, event);
}

bool Mlx5Queues::fetch(ReceiveQueue& queue, Mlx5ReceiveRecord& record, Token owner) noexcept {
  repair(queue, record);
  const ReceiveRing ring = fabric.ring(queue);
  if (ring.start == nullptr) return true;  // being destroyed
  constexpr std::uint32_t kMaxStride = 512;
  const bool valid = record.entries != 0 && (record.entries & (record.entries - 1)) == 0 &&
                     record.stride >= kMlx5UnitBytes && record.stride <= kMaxStride;
  std::uint32_t posted = 0;
  if (!valid || !read(owner, record.doorbell, &posted, sizeof posted)) return false;
  auto left =
      static_cast<std::uint16_t>(be32toh(posted) - static_cast<std::uint32_t>(record.fetched));
  if (left > record.entries) return false;
  const bool is_list = record.entries_are == Mlx5Entries::list;
  // A few at a time: the rest of a long queue stays where its program has it.
  constexpr std::uint32_t kBatch = 16;
  alignas(8) std::array<std::byte, kBatch * kMaxStride> bytes;
  std::uint32_t first = 0, count = 0;  // entries that `bytes` holds
  const auto entry_at = [&](std::uint32_t entry) -> std::span<const std::byte> {
    if (entry < first || entry - first >= count) {
      first = entry;
      count = std::min({kBatch, record.entries - entry, std::uint32_t{left}});
      if (!read(owner, record.buffer + std::uint64_t{first} * record.stride, bytes.data(),
                std::size_t{count} * record.stride)) {
        count = 0;
        return {};
      }
    }
    return std::span(bytes).subspan(std::size_t{entry - first} * record.stride, record.stride);
  };
  for (std::uint32_t n = 0; left > 0 && n < kBatch; ++n, --left) {
    if (queue.tail - queue.head >= queue.max_wr) break;
    const auto fetched = static_cast<std::uint32_t>(record.fetched);
    // Where an entry leads is settled when it is posted: its program keeps an entry to link to.
    // Later it may be in another place of the list.
    const std::uint32_t entry =
        (is_list ? static_cast<std::uint32_t>(record.fetched >> 32) : fetched) &
        (record.entries - 1);
    const auto found = entry_at(entry);
    if (found.empty()) return false;
    const Mlx5Receive receive = parse_receive(found, record.entries_are != Mlx5Entries::ring);
    ReceiveWqe* wqe = ring.entry(queue.tail);
    const std::uint32_t sges = std::min(receive.num_sge, ring.max_sge);
    wqe->wr_id =
        pack({static_cast<std::uint16_t>(is_list ? entry : fetched), 0, record.user_index});
    wqe->num_sge = sges;
    std::copy_n(receive.sge, sges, reinterpret_cast<ReceiveSge*>(wqe + 1));
    // repair() relies on the order of these.
    record.becomes = std::uint64_t{receive.next} << 32 | (fetched + 1);
    record.fetching = queue.tail + 1;
    std::atomic_signal_fence(std::memory_order_seq_cst);
    ++queue.tail;
    std::atomic_signal_fence(std::memory_order_seq_cst);
    record.fetched = record.becomes;
    std::atomic_signal_fence(std::memory_order_seq_cst);
    record.fetching = 0;
  }
  return true;
}

bool Mlx5Queues::is_there(const Mlx5ReceiveRecord& record) noexcept {
  const std::uint64_t bytes = std::uint64_t{record.entries} * record.stride;
  if (bytes == 0) return false;
  std::uint32_t word = 0;
  for (const std::uint64_t address :
       {record.doorbell, record.buffer, record.buffer + bytes - sizeof word}) {
    Place place;
    place.remote = address;
    place.pid = static_cast<std::uint32_t>(getpid());
    if (memory.read(reinterpret_cast<std::uint8_t*>(&word), place, sizeof word) != Access::ok) {
      return false;
    }
  }
  return true;
}

std::uint64_t Mlx5Queues::flush_posted() noexcept {
  constexpr std::uint64_t kLook = 5'000'000;
  const std::lock_guard lock(mutex_);
  bool failed = false, reaped = false;
  for (Qp* const qp : own_) {
    if (qp->record->phase() != QpPhase::err) continue;
    failed = true;
    if (!is_there(fabric.mlx5_qp(qp->index))) continue;
    if (!reaped) (void)fabric.reap_dead();
    reaped = true;
    receives.flush_what_is_there(*qp->record, qp->number);
  }
  return failed ? monotonic() + kLook : UINT64_MAX;
}

}  // namespace turnout::hca
