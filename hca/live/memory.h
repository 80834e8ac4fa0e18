// SPDX-License-Identifier: BSD-3-Clause
// Memory: access to registered memory of this process and its peers.
//
// Own ordinary memory is accessed in place, a peer's with process_vm_writev/readv. For directly
// addressable memory a view is kept, found by the index in its key: for own memory since its
// registration, for pages of a file since their first use, where our mapping of the file has them.
// Any process of the user may damage the records, so only a view determines which bytes are
// accessed: a record can deny an access, never extend it. Lookups take no lock and make no system
// call once the view exists. The owner of a region waits for hazards before it reuses the record,
// so a view that matches a valid registration is stable while the caller's hazard names its key.
//
// The last byte of every transfer is stored last, with release order, so a process that polls it
// sees the rest.
#pragma once

#include <sys/uio.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "hca/live/fabric.h"

namespace turnout::hca {

// Results of an access. indirect: the key allows it, and stands for pieces of other keys
// (live/indirect_keys.h).
enum class Access : std::uint8_t {
  ok,
  bad_key,
  bad_pd,
  bad_bounds,
  denied,
  unreachable,
  failed,
  indirect
};

// An atomic operation on a word of 4 or 8 bytes.
struct AtomicOperation {
  bool swap;                     // else it adds
  std::uint64_t add_or_compare;  // the other bits of a shorter word are zero
  std::uint64_t value;           // that it becomes, if it compares equal
  AtomicMasks masks;             // `bytes` is the word's

  [[nodiscard]] bool applies(std::uint64_t old) const noexcept {
    return !swap || ((old ^ add_or_compare) & masks.compare) == 0;
  }
  [[nodiscard]] std::uint64_t result(std::uint64_t old) const noexcept {
    if (swap) return (old & ~masks.swap) | (value & masks.swap);
    // No field carries into the next one: its highest bit is added without.
    const std::uint64_t ends = masks.compare;
    return ((old & ~ends) + (add_or_compare & ~ends)) ^ ((old ^ add_or_compare) & ends);
  }
};

// Where a checked range of a region is.
struct Place {
  std::uint8_t* direct = nullptr;  // null: use the owner's pid and address
  std::uint64_t remote = 0;        // address in the owner
  Token owner = 0;                 // 0: pages of a file, anybody's
  std::uint32_t pid = 0;
  std::uint64_t registration = 0;  // as DirectRegion's; 0: of a window, or not direct
  bool null = false;               // of a null region: what is written there is dropped
};

class Memory {
 public:
  explicit Memory(Fabric& fabric);
  ~Memory();

  // A free record for a region or a window, ours from now on; kNone: the table is full. table_lock
  // held.
  [[nodiscard]] std::uint32_t reserve_record() noexcept;
  // Is a window bound to this region of ours?
  [[nodiscard]] bool has_windows(std::uint32_t region) const noexcept;

  // Checks key, domain, bounds and rights (IBV_ACCESS_* of the region that must all be set) and
  // finds the bytes. For a peer's region the caller's hazard names `key` already. Windows are found
  // for a queue pair `number` that a request has reached, not for local keys (0).
  [[nodiscard]] Access find(std::uint32_t key, std::uint32_t pd, std::uint64_t address,
                            std::uint64_t length, unsigned rights, Place& place,
                            std::uint32_t number = 0) noexcept;

  // The region of a Place that find() has found. False: it has gone meanwhile. The caller's hazard
  // names its key.
  [[nodiscard]] bool describe(std::uint64_t registration, DirectRegion& out) const noexcept;
  // Is what describe() told of this registration still so? The caller's hazard names its key.
  [[nodiscard, gnu::always_inline]] bool is_registered(std::uint64_t registration) const noexcept {
    const std::uint32_t index = static_cast<std::uint32_t>(registration) >> 8;
    const MrRecord& record = fabric_.mr(index);
    return record.key.load(std::memory_order_acquire) == static_cast<std::uint32_t>(registration) &&
           record.registration.load(std::memory_order_relaxed) == registration >> 32 &&
           views_[index].of.load(std::memory_order_acquire) == registration;
  }

  // Of a region of this process's own memory: where it is, from before its key is valid until after
  // it is not.
  struct Own {
    std::uint64_t direct = 0;  // address of iova
    std::uint64_t iova = 0, length = 0;
    std::uint32_t access = 0;
  };
  void own(std::uint32_t key, const Own& where) noexcept;
  [[nodiscard]] Own owned(std::uint32_t index) const noexcept;
  // A window that is bound to the part of region `of` (a key) that begins at its address `part`.
  // False: that region does not have it. Takes no lock unless the window was of a file before.
  [[nodiscard]] bool own_window(std::uint32_t key, std::uint32_t of, std::uint64_t part,
                                std::uint64_t iova, std::uint64_t length) noexcept;
  void disown(std::uint32_t index) noexcept;

  // Is `token` a peer whose memory may be accessed? Its process id.
  [[nodiscard]] bool reach(Token token, std::uint32_t& pid) noexcept;

  // Bytes of null regions (ibv_alloc_null_mr(3)): kMaxMessage zeros that nobody can write, which
  // take no memory. False: there is no address space for them.
  [[nodiscard]] bool make_zeros() noexcept;
  [[nodiscard]] bool are_zeros(const std::uint8_t* data) const noexcept {
    return data == zeros_.load(std::memory_order_relaxed);
  }

  // Moves `length` > 0 bytes; the last byte of the target last.
  [[nodiscard]] Access write(const Place& to, const std::uint8_t* from,
                             std::uint64_t length) noexcept;
  [[nodiscard]] Access read(std::uint8_t* to, const Place& from, std::uint64_t length) noexcept;
  // The same between `local` and several places of one process that are not direct, in their order.
  // `there` is used up.
  [[nodiscard]] static Access move(bool out, std::uint32_t pid, std::uint8_t* local,
                                   std::span<iovec> there) noexcept;
  // On an aligned address; `old` gets the former value.
  [[nodiscard]] Access atomic(const Place& at, const AtomicOperation& operation,
                              std::uint64_t& old) noexcept;

  // Drops mappings of regions that are gone and that no hazard names.
  void sweep() noexcept;

 private:
  struct alignas(64) View {
    std::atomic<std::uint64_t> of;  // registration << 32 | key, 0: none. The rest agrees with it.
    std::atomic<std::uint64_t> direct;  // address of iova: 0 of a region of all the address space
    std::atomic<std::uint64_t> iova, length;
    std::atomic<std::uint32_t> mapping;  // index of mappings_ + 1; 0: our own memory
    std::atomic<std::uint32_t> access;   // of our own memory
    // Of a window of our own memory: its region, which must still be registered as it was.
    std::atomic<std::uint64_t> base_of;
    std::atomic<std::uint32_t> base;

    void place(std::uint64_t at, std::uint64_t first, std::uint64_t bytes) noexcept {
      direct.store(at, std::memory_order_relaxed);
      iova.store(first, std::memory_order_relaxed);
      length.store(bytes, std::memory_order_relaxed);
    }
  };
  static_assert(sizeof(View) == 64);
  struct Mapping {
    std::uint32_t device = 0;
    std::uint64_t inode = 0;
    std::uint64_t length = 0;
    std::uint8_t* address = nullptr;  // null: entry free
    std::uint32_t users = 0;
  };
  // Of a region that has no memory of its own.
  [[nodiscard]] Access find_other(const MrRecord& record, std::uint32_t number,
                                  Place& place) const noexcept;
  [[nodiscard]] Access make_view(View& view, std::uint32_t key, MrRecord& record) noexcept;
  [[nodiscard]] std::uint8_t* map(MrRecord& record, std::uint64_t length, std::uint32_t key,
                                  std::uint32_t& mapping, Access& why) noexcept;
  void drop(View& view) noexcept;
  // Is this the process that the records of `token` speak of, and not ourselves? System calls at
  // the first time.
  [[nodiscard]] bool known(Token token, std::uint32_t pid) noexcept;

  Fabric& fabric_;
  View* views_ = nullptr;                                // kMaxMrs, pages appear as they are used
  std::atomic<std::uint8_t*> zeros_{nullptr};            // kMaxMessage; null: no null region yet
  std::unique_ptr<std::atomic<std::uint64_t>[]> known_;  // by slot: token << 32 | pid
  std::mutex mutex_;                                     // making and dropping views
  std::vector<Mapping> mappings_;
  std::vector<std::uint32_t> used_;  // indices of views with a mapping
};

}  // namespace turnout::hca
