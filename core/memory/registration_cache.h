// SPDX-License-Identifier: BSD-3-Clause
// RegistrationCache: keeps registrations of user buffers for the next use of the same memory.
//
// An entry has exactly the bytes and access rights of one operation (why:
// docs/decisions/013-registration-cache.md); a use inside it that needs no further rights is a hit,
// and a new entry replaces those it covers. Unused ones are kept in LRU order up to a number and
// bytes, and dropped when their memory is unmapped (invalidate), when the budget needs their bytes,
// or when a registration fails for lack of pinned memory.
//
// Unmapping is detected elsewhere: see unmap_monitor.h and state/memory_registration.cpp. Owns its
// regions. Bytes. A hit allocates nothing and costs a binary search. One per endpoint, its thread.
#pragma once

#include <infiniband/verbs.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/memory/account.h"
#include "core/memory/slab.h"
#include "core/types/linked_list.h"
#include "core/verbs/handles.h"

namespace turnout {

class RegistrationCache;

struct RegisteredRange {  // of the cache, and the list of unused ones
  RegisteredRange* next = nullptr;
  RegisteredRange* previous = nullptr;
  RegistrationCache* cache = nullptr;
  ibv_mr* region = nullptr;
  std::uintptr_t begin = 0, end = 0;
  std::uint64_t accounted = 0;
  unsigned access = 0;  // IBV_ACCESS_*
  std::uint32_t uses = 0;
  bool listed = false;  // found by lookups
};

// One use of a region: of the cache, or of its own. Move-only; what it names stays registered until
// it ends.
class Registration {
 public:
  Registration() = default;
  // Its own: deregistered with it.
  explicit Registration(ibv_mr* region) noexcept : region_(region) {}

  explicit operator bool() const noexcept { return region_ != nullptr; }
  [[nodiscard]] std::uint32_t lkey() const noexcept { return region_->lkey; }
  [[nodiscard]] std::uint32_t rkey() const noexcept { return region_->rkey; }
  void reset() noexcept { region_.reset(); }
  // Ends it, and its region with its last use: a peer may still have requests under way that name
  // it.
  void discard() noexcept;

 private:
  friend class RegistrationCache;
  struct End {
    RegisteredRange* range;  // null: its own
    void operator()(ibv_mr* region) const noexcept;
  };
  explicit Registration(RegisteredRange& range) noexcept : region_(range.region, End{&range}) {}
  std::unique_ptr<ibv_mr, End> region_;
};

class RegistrationCache {
 public:
  using Deregister = void (*)(ibv_mr*) noexcept;
  struct Counts {
    std::uint64_t hits = 0, misses = 0;
    std::uint64_t evictions = 0;      // unused ones that made room, or that a larger one replaced
    std::uint64_t invalidations = 0;  // whose memory went
    std::uint64_t bytes = 0, bytes_peak = 0;
  };

  // The limits are of unused entries.
  RegistrationCache(MemoryAccount& account, std::uint64_t most_unused,
                    std::uint64_t most_unused_bytes, Deregister deregister) noexcept
      : account_(account),
        most_unused_(most_unused),
        most_unused_bytes_(most_unused_bytes),
        deregister_(deregister),
        // A vector that grows has twice as much room as it needs, for a moment three times.
        records_(account, MemoryKind::registrations, 3 * sizeof(Row)) {}
  // Every use has ended.
  ~RegistrationCache() { drop_unused(); }
  RegistrationCache(const RegistrationCache&) = delete;
  RegistrationCache& operator=(const RegistrationCache&) = delete;

  // An entry that covers `length` > 0 bytes with these rights; empty: there is none. Counted.
  [[nodiscard]] Registration find(std::uintptr_t begin, std::size_t length,
                                  unsigned access) noexcept {
    RegisteredRange* const range = covering(begin, length, access);
    if (range == nullptr) {
      ++counts_.misses;
      return {};
    }
    ++counts_.hits;
    if (range->uses++ == 0) leave_unused(*range);
    return Registration(*range);
  }
  // Would find() have one? Not counted.
  [[nodiscard]] bool covers(std::uintptr_t begin, std::size_t length,
                            unsigned access) const noexcept {
    return covering(begin, length, access) != nullptr;
  }
  // Takes the region, which was registered with that access. Where the budget has no room for a
  // record, it is kept for this use only.
  [[nodiscard]] Registration keep(ibv_mr* region, std::uintptr_t begin, std::size_t length,
                                  unsigned access) {
    const std::uintptr_t end = begin + length;
    const std::uint64_t bytes = translation_bytes(length);
    // Both may take unused entries back, so rows are looked for afterwards.
    RegisteredRange* const range = records_.take();
    if (range == nullptr) return Registration(region);
    if (!account_.reserve(MemoryKind::registrations, bytes)) {
      records_.give_back(range);
      return Registration(region);
    }
    range->cache = this;
    range->region = region;
    range->begin = begin;
    range->end = end;
    range->accounted = bytes;
    range->access = access;
    range->uses = 1;
    range->listed = true;
    counts_.evictions += take_out(at_or_behind(begin), at_or_behind(end), [&](const Row& row) {
      return row.end <= end && (row.range->access & ~access) == 0;
    });
    const std::size_t at = behind(begin);
    rows_.insert(rows_.begin() + static_cast<std::ptrdiff_t>(at), Row{begin, end, 0, range});
    renew_reach(at);
    counts_.bytes += length;
    counts_.bytes_peak = std::max(counts_.bytes_peak, counts_.bytes);
    return Registration(*range);
  }
  // The memory of [begin, end) is gone, or is another's.
  void invalidate(std::uintptr_t begin, std::uintptr_t end) noexcept {
    if (begin >= end || rows_.empty() || begin >= rows_.back().reach) return;
    const std::size_t last = at_or_behind(end);
    std::size_t first = last;
    while (first > 0 && rows_[first - 1].reach > begin) --first;
    counts_.invalidations += take_out(first, last, [&](const Row& row) { return row.end > begin; });
  }
  // All unused ones. False: there were none.
  bool drop_unused() noexcept {
    const std::uint64_t gone =
        take_out(0, rows_.size(), [](const Row& row) { return row.range->uses == 0; });
    counts_.evictions += gone;
    return gone > 0;
  }
  // Unused ones, the longest unused first, until `bytes` of the account are free. False, and
  // nothing is given, if that cannot be.
  bool give_back(std::uint64_t bytes) noexcept {
    const std::uint64_t free = account_.available();
    if (unused_accounted_ == 0 || bytes > free + unused_accounted_) return false;
    while (account_.available() < bytes) evict(*unused_.first());
    return true;
  }

  [[nodiscard]] const Counts& counts() const noexcept { return counts_; }
  [[nodiscard]] std::size_t entries() const noexcept { return rows_.size(); }
  [[nodiscard]] std::size_t unused() const noexcept { return unused_.size(); }

 private:
  // What an adapter's driver keeps for a region: an address for each page (mlx5: an MTT entry).
  static constexpr std::uint64_t kPage = 4096, kTranslation = 8;

  // Of the most pages that so many bytes lie on: where a program's memory lies is chance, and what
  // a budget has room for must not be.
  static std::uint64_t translation_bytes(std::uint64_t length) noexcept {
    return ((length + kPage - 2) / kPage + 1) * kTranslation;
  }

  friend class Registration;
  struct Row {
    std::uintptr_t begin, end;
    std::uintptr_t reach;  // largest end of this row and all before it
    RegisteredRange* range;
  };
  [[nodiscard]] RegisteredRange* covering(std::uintptr_t begin, std::size_t length,
                                          unsigned access) const noexcept {
    const std::uintptr_t end = begin + length;
    for (std::size_t i = behind(begin); i-- > 0 && rows_[i].reach >= end;) {
      if (rows_[i].end >= end && (access & ~rows_[i].range->access) == 0) return rows_[i].range;
    }
    return nullptr;
  }
  void release(RegisteredRange& range) noexcept {
    if (--range.uses > 0) return;
    if (!range.listed) {
      destroy(range);
      return;
    }
    unused_.push_back(&range);
    unused_bytes_ += range.end - range.begin;
    unused_accounted_ += range.accounted;
    while (unused_.size() > most_unused_ || unused_bytes_ > most_unused_bytes_) {
      evict(*unused_.first());
    }
  }
  void discard(RegisteredRange& range) noexcept {
    if (!range.listed) return;
    unlist(range);
    range.listed = false;  // and it is in use: its last release destroys it
  }
  // In no list any more.
  void destroy(RegisteredRange& range) noexcept {
    counts_.bytes -= range.end - range.begin;
    deregister_(range.region);
    account_.release(MemoryKind::registrations, range.accounted);
    records_.give_back(&range);
  }
  void unlist(RegisteredRange& range) noexcept {
    std::size_t i = at_or_behind(range.begin);
    while (rows_[i].range != &range) ++i;
    rows_.erase(rows_.begin() + static_cast<std::ptrdiff_t>(i));
    renew_reach(i);
  }
  void leave_unused(RegisteredRange& range) noexcept {
    unused_.remove(&range);
    unused_bytes_ -= range.end - range.begin;
    unused_accounted_ -= range.accounted;
  }
  // An unused one, which leaves the rows.
  void evict(RegisteredRange& range) noexcept {
    ++counts_.evictions;
    unlist(range);
    leave_unused(range);
    destroy(range);
  }
  // Takes rows of [first, last) out of which `goes` holds.
  template <class Goes>
  std::uint64_t take_out(std::size_t first, std::size_t last, Goes&& goes) noexcept {
    std::size_t kept = first;
    for (std::size_t i = first; i < last; ++i) {
      if (!goes(rows_[i])) {
        rows_[kept++] = rows_[i];
        continue;
      }
      RegisteredRange& range = *rows_[i].range;
      range.listed = false;
      if (range.uses > 0) continue;
      leave_unused(range);
      destroy(range);
    }
    if (kept == last) return 0;
    rows_.erase(rows_.begin() + static_cast<std::ptrdiff_t>(kept),
                rows_.begin() + static_cast<std::ptrdiff_t>(last));
    renew_reach(first);
    return last - kept;
  }
  void renew_reach(std::size_t from) noexcept {
    std::uintptr_t reach = from > 0 ? rows_[from - 1].reach : 0;
    for (std::size_t i = from; i < rows_.size(); ++i) {
      reach = std::max(reach, rows_[i].end);
      rows_[i].reach = reach;
    }
  }
  // The first row that begins behind `address`; `at`: at it or behind.
  [[nodiscard]] std::size_t behind(std::uintptr_t address) const noexcept {
    return static_cast<std::size_t>(std::ranges::upper_bound(rows_, address, {}, &Row::begin) -
                                    rows_.begin());
  }
  [[nodiscard]] std::size_t at_or_behind(std::uintptr_t address) const noexcept {
    return static_cast<std::size_t>(std::ranges::lower_bound(rows_, address, {}, &Row::begin) -
                                    rows_.begin());
  }

  MemoryAccount& account_;
  std::uint64_t most_unused_, most_unused_bytes_;
  Deregister deregister_;
  Slab<RegisteredRange> records_;
  std::vector<Row> rows_;               // by begin
  LinkedList<RegisteredRange> unused_;  // the latest used last
  std::uint64_t unused_bytes_ = 0;
  std::uint64_t unused_accounted_ = 0;
  Counts counts_;
};

inline void Registration::End::operator()(ibv_mr* region) const noexcept {
  if (range != nullptr) {
    range->cache->release(*range);
  } else {
    verbs::Mr(region).reset();
  }
}

inline void Registration::discard() noexcept {
  RegisteredRange* const range = region_.get_deleter().range;
  if (region_ && range != nullptr) range->cache->discard(*range);
  reset();
}

}  // namespace turnout
