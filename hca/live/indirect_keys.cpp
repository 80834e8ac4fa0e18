// SPDX-License-Identifier: BSD-3-Clause
#include "hca/live/indirect_keys.h"

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstring>
#include <new>

#include "hca/device/copy_in_order.h"
#include "hca/device/mlx5_format.h"
#include "hca/device/rules.h"
#include "hca/live/fork_guard.h"

namespace turnout::hca {
namespace {

constexpr std::size_t kRuns = 32;  // that are looked up before the list is looked at again

// Bits of a change's mask that mlx5dv.h does not name (rdma-core's mlx5_ifc.h and Linux,
// include/linux/mlx5/device.h).
constexpr std::uint64_t kMaskLocalRead = 1U << 17, kMaskInvalidation = 1U << 8;
constexpr std::uint8_t kFailIfFree = 1U << 6;
constexpr std::uint64_t kKnownMask =
    std::uint64_t{MLX5_WQE_UMR_CTRL_MKEY_MASK_LEN} | MLX5_WQE_UMR_CTRL_MKEY_MASK_START_ADDR |
    MLX5_WQE_UMR_CTRL_MKEY_MASK_BSF_ENABLE | MLX5_WQE_UMR_CTRL_MKEY_MASK_MKEY |
    MLX5_WQE_UMR_CTRL_MKEY_MASK_QPN | MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_LOCAL_WRITE |
    MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_REMOTE_READ |
    MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_REMOTE_WRITE | MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_ATOMIC |
    MLX5_WQE_UMR_CTRL_MKEY_MASK_FREE | kMaskLocalRead | kMaskInvalidation;
constexpr std::uint32_t kAnyQp = 0xff'ffff;

// The rights that a change leaves a key with.
unsigned changed_rights(unsigned rights, const KeyChange& change) noexcept {
  constexpr struct {
    std::uint64_t mask;
    unsigned flag, right;
  } kRights[] = {
      {MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_LOCAL_WRITE,
       MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_LOCAL_WRITE, IBV_ACCESS_LOCAL_WRITE},
      {MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_REMOTE_READ,
       MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_REMOTE_READ, IBV_ACCESS_REMOTE_READ},
      {MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_REMOTE_WRITE,
       MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_REMOTE_WRITE, IBV_ACCESS_REMOTE_WRITE},
      {MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_ATOMIC, MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_ATOMIC,
       IBV_ACCESS_REMOTE_ATOMIC},
  };
  for (const auto& r : kRights) {
    if ((change.mask & r.mask) == 0) continue;
    rights = (change.access & r.flag) != 0 ? rights | r.right : rights & ~r.right;
  }
  return rights;
}

constexpr bool is_check(IndirectKeys::Use use) noexcept {
  return use == IndirectKeys::Use::check_read || use == IndirectKeys::Use::check_write;
}

// Of a record that may change under our hands: what was checked is what is used.
std::span<KeyEntry> entries_of(const Fabric& fabric, const MrRecord& record) noexcept {
  const volatile MrRecord& said = record;
  const std::uint32_t slots = said.list_slots;
  if (slots > kMaxKeyEntries) return {};
  auto* const entries = static_cast<KeyEntry*>(fabric.heap(said.list, slots * sizeof(KeyEntry)));
  return {entries, entries != nullptr ? slots : 0};
}

}  // namespace

std::unique_ptr<IndirectKey> IndirectKeys::create(Pd& pd, const Description& description) {
  if (const int error = refuse_child(pd.verbs.context); error != 0) return failed(error);
  assert(description.entries.size() <= description.slots);
  if (description.slots == 0 || description.slots > kMaxKeyEntries) return failed(EINVAL);
  const std::uint64_t bytes = description.slots * sizeof(KeyEntry);
  const std::uint64_t list = fabric.allocate(bytes);
  if (list == 0) return nullptr;
  std::copy(description.entries.begin(), description.entries.end(),
            static_cast<KeyEntry*>(fabric.heap(list, bytes)));
  std::uint32_t index = kNone;
  {
    const TableGuard guard(fabric);
    index = memory.reserve_record();
    if (index != kNone) {
      MrRecord& r = fabric.mr(index);
      r.window = static_cast<std::uint32_t>(WindowKind::none);
      r.kind = static_cast<std::uint32_t>(MrKind::list) & 0xf;
      r.generation = description.tag;
      r.pd = pd.number;
      r.access = description.access & 0xffff;
      r.iova = description.start;
      r.length = description.length;
      r.fd = -1;
      r.mapped.store(0, std::memory_order_relaxed);
      r.list = list;
      r.list_slots = description.slots;
      r.log_entry = description.log_entry;
      r.reconfigures = description.reconfigures ? 1 : 0;
      r.remote_end = description.remote_end ? 1 : 0;
      r.registration.fetch_add(1, std::memory_order_relaxed);
      if (!description.free) {
        r.key.store(index << 8 | description.tag, std::memory_order_release);
      }
    }
  }
  if (index == kNone) {
    fabric.release(list, bytes);
    return failed(ENOMEM);
  }
  ++pd.users;
  return std::unique_ptr<IndirectKey>(new IndirectKey{&pd, index, {list, bytes}});
}

int IndirectKeys::destroy(const IndirectKey& key) {
  if (const int error = refuse_child(key.pd->verbs.context); error != 0) return error;
  MrRecord& r = fabric.mr(key.index);
  r.key.store(0, std::memory_order_seq_cst);
  // A peer's send may have ended it while another request still reads the list.
  hazards.wait_unused(key.index << 8 | r.generation, 0);
  r.kind = static_cast<std::uint32_t>(MrKind::process) & 0xf;
  r.owner.store(0, std::memory_order_release);
  fabric.release(key.list.offset, key.list.bytes);
  --key.pd->users;
  return 0;
}

bool IndirectKeys::is_own(std::uint32_t key) const noexcept {
  const std::uint32_t index = key >> 8;
  if (index == 0 || index >= kMaxMrs) return false;
  const MrRecord& r = fabric.mr(index);
  return r.owner.load(std::memory_order_acquire) == fabric.me() && r.window == 0 &&
         static_cast<MrKind>(r.kind) == MrKind::list;
}

bool IndirectKeys::read_list(const Qp& qp, const SendWqe& wqe, KeyEntry* to) noexcept {
  std::uint32_t left = wqe.change.entries;
  for (std::uint32_t i = 0; i < wqe.change.pieces; ++i) {
    const ibv_sge& piece = wqe.list[i];
    const auto* from = reinterpret_cast<const std::byte*>(piece.addr);  // NOLINT: of our own queue
    if (piece.lkey != kMlx5InlineKey) {
      Place place;
      if (memory.find(piece.lkey, qp.record->pd, piece.addr, piece.length, 0, place) !=
              Access::ok ||
          place.direct == nullptr ||
          fabric.mr(piece.lkey >> 8).owner.load(std::memory_order_relaxed) != fabric.me()) {
        return false;
      }
      from = reinterpret_cast<const std::byte*>(place.direct);
    }
    for (std::uint32_t n = piece.length / kKeyEntryBytes; n > 0 && left > 0; --n, --left) {
      *to++ = read_key_entry(from);
      from += kKeyEntryBytes;
    }
  }
  return left == 0;
}

ibv_wc_status IndirectKeys::change(const Qp& qp, const SendWqe& wqe) noexcept {
  const KeyChange& change = wqe.change;
  MrRecord& r = fabric.mr(change.key >> 8);
  const bool is_free = r.key.load(std::memory_order_acquire) == 0;
  constexpr std::uint8_t kFailUnlessFree = MLX5_WQE_UMR_CTRL_FLAG_CHECK_FREE;
  if (r.generation != (change.key & 0xff) || r.pd != qp.record->pd || r.reconfigures == 0 ||
      (change.mask & ~kKnownMask) != 0 || change.signs ||
      ((change.flags & kFailUnlessFree) != 0 && !is_free) ||
      ((change.flags & kFailIfFree) != 0 && is_free) ||
      ((change.mask & MLX5_WQE_UMR_CTRL_MKEY_MASK_QPN) != 0 && change.qpn != kAnyQp)) {
    return IBV_WC_MW_BIND_ERR;
  }
  const std::span<KeyEntry> entries = entries_of(fabric, r);
  if (!covers(0, entries.size(), change.first, change.entries)) return IBV_WC_MW_BIND_ERR;
  std::unique_ptr<KeyEntry[]> list;
  if (change.entries != 0) {
    list.reset(new (std::nothrow) KeyEntry[change.entries]);
    if (list == nullptr) return IBV_WC_MW_BIND_ERR;
    if (!read_list(qp, wqe, list.get())) return IBV_WC_LOC_PROT_ERR;
    // Of a later part of a list it is not known what it is a part of.
    if (change.first == 0 && r.log_entry == 0 && !is_well_formed({list.get(), change.entries})) {
      return IBV_WC_MW_BIND_ERR;
    }
  }
  r.key.store(0, std::memory_order_seq_cst);
  hazards.wait_unused(change.key, 0, &qp);
  std::copy_n(list.get(), change.entries, entries.begin() + change.first);
  const auto changes = [&](std::uint64_t what) { return (change.mask & what) != 0; };
  if (changes(MLX5_WQE_UMR_CTRL_MKEY_MASK_LEN)) r.length = change.length;
  if (changes(MLX5_WQE_UMR_CTRL_MKEY_MASK_START_ADDR)) r.iova = change.start;
  if (changes(MLX5_WQE_UMR_CTRL_MKEY_MASK_MKEY)) r.generation = change.tag;
  r.access = changed_rights(r.access, change) & 0xffff;
  r.registration.fetch_add(1, std::memory_order_relaxed);
  const bool stays_free = changes(MLX5_WQE_UMR_CTRL_MKEY_MASK_FREE) ? change.free : is_free;
  if (!stays_free) {
    r.key.store((change.key & ~0xffU) | r.generation, std::memory_order_release);
  }
  return IBV_WC_SUCCESS;
}

ibv_wc_status IndirectKeys::invalidate(const Qp& qp, std::uint32_t key) noexcept {
  MrRecord& r = fabric.mr(key >> 8);
  if (r.generation != (key & 0xff) || r.pd != qp.record->pd || r.reconfigures == 0) {
    return IBV_WC_MW_BIND_ERR;
  }
  r.key.store(0, std::memory_order_seq_cst);
  hazards.wait_unused(key, 0, &qp);
  return IBV_WC_SUCCESS;
}

bool IndirectKeys::may_invalidate(std::uint32_t key, const RequestTarget& target) const noexcept {
  const std::uint32_t index = key >> 8;
  if (key == 0 || index >= kMaxMrs) return false;
  const MrRecord& r = fabric.mr(index);
  return r.key.load(std::memory_order_acquire) == key && r.window == 0 &&
         static_cast<MrKind>(r.kind) == MrKind::list && r.remote_end != 0 && r.pd == target.pd;
}

bool IndirectKeys::is_same(const List& list) const noexcept {
  const MrRecord& r = fabric.mr(list.key >> 8);
  std::atomic_thread_fence(std::memory_order_acquire);
  return r.key.load(std::memory_order_acquire) == list.key &&
         r.registration.load(std::memory_order_relaxed) == list.registration;
}

Access IndirectKeys::open(const Part& part, std::uint32_t number, std::uint32_t pd,
                          List& list) noexcept {
  Place place;
  const Access found =
      memory.find(part.key, pd, part.address, part.length, part.rights, place, number);
  if (found != Access::indirect) return found == Access::ok ? Access::bad_key : found;
  const MrRecord& r = fabric.mr(part.key >> 8);
  list.key = part.key;
  list.registration = r.registration.load(std::memory_order_relaxed);
  list.owner = r.owner.load(std::memory_order_relaxed);
  list.start = r.iova;
  list.log_entry = r.log_entry % 64U;
  list.entries = entries_of(fabric, r);
  return is_same(list) ? Access::indirect : Access::bad_key;
}

// Runs of a peer's ordinary memory that lie in one region wait here, to be moved by one call.
class IndirectKeys::Batch {
 public:
  Batch(std::uint8_t* local, Use use) noexcept : local_(local), use_(use) {}
  [[nodiscard]] bool empty() const noexcept { return count_ == 0; }
  void add(const Place& place, std::uint64_t length) noexcept {
    pid_ = place.pid;
    pieces_[count_++] = {reinterpret_cast<void*>(place.remote), length};  // NOLINT: the peer's
    waiting_ += length;
  }
  // What is not moved by a call of the system.
  void move(const Place& place, std::uint64_t length) noexcept {
    if (use_ == Use::write) {
      if (!place.null) copy_in_order(place.direct, local_, length);
    } else if (place.null) {
      std::memset(local_, 0, length);
    } else {
      copy_in_order(local_, place.direct, length);
    }
    local_ += length;
  }
  // last: nothing of the request comes behind them. Its last byte is stored last.
  [[nodiscard]] Access flush(bool last) noexcept {
    if (empty()) return Access::ok;
    if (last && use_ == Use::write && pieces_[count_ - 1].iov_len > 1) {
      iovec& end = pieces_[count_ - 1];
      --end.iov_len;
      pieces_[count_++] = {static_cast<std::uint8_t*>(end.iov_base) + end.iov_len, 1};
    }
    const Access moved = Memory::move(use_ == Use::write, pid_, local_, {pieces_, count_});
    local_ += waiting_;
    waiting_ = 0;
    count_ = 0;
    return moved;
  }
  [[nodiscard]] std::uint8_t* local() const noexcept { return local_; }
  void skip(std::uint64_t length) noexcept { local_ += length; }

 private:
  std::uint8_t* local_;  // of the first that waits, or of what comes next
  Use use_;
  std::uint32_t pid_ = 0;
  std::size_t count_ = 0;
  std::uint64_t waiting_ = 0;
  iovec pieces_[kRuns + 1];
};

Access IndirectKeys::move(Qp& qp, std::uint32_t number, std::uint32_t pd, const Part& part, Use use,
                          std::uint8_t* local, std::uint32_t depth) noexcept {
  if (depth == 0) return Access::bad_key;
  Hazards::name(fabric, qp, number, part.key);
  List list;
  if (const Access found = open(part, number, pd, list); found != Access::indirect) return found;
  KeyCursor cursor(list.entries, list.log_entry);
  if (!cursor.seek(part.address - list.start)) return Access::bad_bounds;
  const unsigned rights = local_rights(use);
  Batch batch(local, use);
  for (std::uint64_t left = part.length; left > 0;) {
    Hazards::name(fabric, qp, number, part.key);
    KeyRun runs[kRuns];
    const std::size_t count = is_same(list) ? cursor.next(left, runs) : 0;
    if (!is_same(list)) return Access::bad_key;
    if (count == 0) return Access::bad_bounds;
    for (std::size_t i = 0; i < count; ++i) {
      const KeyRun& run = runs[i];
      left -= run.length;
      if (i == 0 || run.key != runs[i - 1].key) Hazards::name(fabric, qp, number, run.key);
      Place place;
      const Access found = memory.find(run.key, pd, run.address, run.length, rights, place);
      const bool waits = found == Access::ok && place.direct == nullptr && !place.null;
      if (!waits) {  // behind those that do
        if (const Access moved = batch.flush(false); moved != Access::ok) return moved;
      }
      if (found == Access::indirect) {
        const Access moved = move(qp, number, pd, {run.key, run.address, run.length, rights}, use,
                                  batch.local(), depth - 1);
        if (moved != Access::ok) return moved;
        if (!is_check(use)) batch.skip(run.length);
        if (i + 1 < count) Hazards::name(fabric, qp, number, runs[i + 1].key);
        continue;
      }
      if (found != Access::ok) return found;
      // Of another process's region the number would be a guess.
      if (fabric.mr(run.key >> 8).owner.load(std::memory_order_relaxed) != list.owner) {
        return Access::bad_key;
      }
      if (is_check(use)) continue;
      if (!waits) {
        batch.move(place, run.length);
        continue;
      }
      batch.add(place, run.length);
      if (i + 1 < count && runs[i + 1].key == run.key) continue;
      if (const Access moved = batch.flush(left == 0); moved != Access::ok) return moved;
    }
  }
  return Access::ok;
}

Access IndirectKeys::find_word(Qp& qp, std::uint32_t number, std::uint32_t pd, const Part& part,
                               Place& place) noexcept {
  Part at = part;
  for (std::uint32_t depth = kMaxIndirection; depth > 0; --depth) {
    Hazards::name(fabric, qp, number, at.key);
    List list;
    if (const Access found = open(at, depth == kMaxIndirection ? number : 0, pd, list);
        found != Access::indirect) {
      return found;
    }
    KeyCursor cursor(list.entries, list.log_entry);
    KeyRun run[1];
    if (!cursor.seek(at.address - list.start) || cursor.next(at.length, run) != 1 ||
        run[0].length != at.length) {
      return Access::bad_bounds;
    }
    if (!is_same(list)) return Access::bad_key;
    Hazards::name(fabric, qp, number, run[0].key);
    at = {run[0].key, run[0].address, run[0].length, IBV_ACCESS_LOCAL_WRITE};
    const Access found = memory.find(at.key, pd, at.address, at.length, at.rights, place);
    if (found == Access::indirect) continue;
    const bool same = fabric.mr(at.key >> 8).owner.load(std::memory_order_relaxed) == list.owner;
    return found == Access::ok && (!same || place.null) ? Access::bad_key : found;
  }
  return Access::bad_key;
}

}  // namespace turnout::hca
