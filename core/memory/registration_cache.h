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

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/memory/account.h"
#include "core/memory/slab.h"
#include "core/types/linked_list.h"

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
                    std::uint64_t most_unused_bytes, Deregister deregister) noexcept;
  ~RegistrationCache();  // every use has ended
  RegistrationCache(const RegistrationCache&) = delete;
  RegistrationCache& operator=(const RegistrationCache&) = delete;

  // An entry that covers `length` > 0 bytes with these rights; empty: there is none. Counted.
  [[nodiscard]] Registration find(std::uintptr_t begin, std::size_t length,
                                  unsigned access) noexcept;
  // Would find() have one? Not counted.
  [[nodiscard]] bool covers(std::uintptr_t begin, std::size_t length,
                            unsigned access) const noexcept {
    return covering(begin, length, access) != nullptr;
  }
  // Takes the region, which was registered with that access. Where the budget has no room for a
  // record, it is kept for this use only.
  [[nodiscard]] Registration keep(ibv_mr* region, std::uintptr_t begin, std::size_t length,
                                  unsigned access);
  // The memory of [begin, end) is gone, or is another's.
  void invalidate(std::uintptr_t begin, std::uintptr_t end) noexcept;
  // All unused ones. False: there were none.
  bool drop_unused() noexcept;
  // Unused ones, the longest unused first, until `bytes` of the account are free. False, and
  // nothing is given, if that cannot be.
  bool give_back(std::uint64_t bytes) noexcept;

  [[nodiscard]] const Counts& counts() const noexcept { return counts_; }
  [[nodiscard]] std::size_t entries() const noexcept { return rows_.size(); }
  [[nodiscard]] std::size_t unused() const noexcept { return unused_.size(); }

 private:
  friend class Registration;
  struct Row {
    std::uintptr_t begin, end;
    std::uintptr_t reach;  // largest end of this row and all before it
    RegisteredRange* range;
  };
  [[nodiscard]] RegisteredRange* covering(std::uintptr_t begin, std::size_t length,
                                          unsigned access) const noexcept;
  void release(RegisteredRange& range) noexcept;
  void discard(RegisteredRange& range) noexcept;
  void destroy(RegisteredRange& range) noexcept;
  void unlist(RegisteredRange& range) noexcept;
  void leave_unused(RegisteredRange& range) noexcept;
  void evict(RegisteredRange& range) noexcept;
  // Takes rows of [first, last) out of which `goes` holds.
  template <class Goes>
  std::uint64_t take_out(std::size_t first, std::size_t last, Goes&& goes) noexcept;
  void renew_reach(std::size_t from) noexcept;
  // The first row that begins behind `address`; `at`: at it or behind.
  [[nodiscard]] std::size_t behind(std::uintptr_t address) const noexcept;
  [[nodiscard]] std::size_t at_or_behind(std::uintptr_t address) const noexcept;

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

}  // namespace turnout
