// SPDX-License-Identifier: BSD-3-Clause
// IndirectKeys: an mlx5's memory keys that stand for pieces of other keys: their creation, their
// change by work requests, and the moving of bytes through them.
//
// Such a key is a record of the table of regions; its list lies in the heap, where every process
// reads it. The key's own rights are those of a request; of the regions behind it only local ones
// are asked, as of an lkey: they must be of the same process and domain. A request names the key in
// its hazard while it reads the list, and then the region that it moves bytes of: the list is
// looked at again, from where it was left, with the key valid and the same as before.
//
// A key is its program's until destroy(). Sources: mlx5dv_create_mkey(3),
// mlx5dv_wr_mkey_configure(3), mlx5dv_wr_post(3). Errors: null and errno, or an errno value. Any
// thread; change() and what moves bytes with the queue pair's sq_lock.
#pragma once

#include <memory>
#include <span>

#include "hca/device/key_list.h"
#include "hca/live/hazards.h"
#include "hca/live/memory.h"
#include "hca/live/receives.h"

namespace turnout::hca {

struct IndirectKey {
  Pd* pd;
  std::uint32_t index;
  OwnRing list;  // in the heap
};

class IndirectKeys : LiveParts {
 public:
  explicit IndirectKeys(const LiveParts& parts) : LiveParts(parts) {}

  struct Description {
    std::uint32_t slots = 0;            // of its list, 1 to kMaxKeyEntries
    std::span<const KeyEntry> entries;  // the first of them, well formed; the others are empty
    std::uint8_t log_entry = 0;         // as KeyCursor's
    std::uint64_t start = 0, length = 0;
    unsigned access = 0;   // IBV_ACCESS_*
    std::uint8_t tag = 0;  // low byte of the key
    bool free = false, reconfigures = false, remote_end = false;
  };
  [[nodiscard]] std::unique_ptr<IndirectKey> create(Pd& pd, const Description& description);
  [[nodiscard]] int destroy(const IndirectKey& key);

  // Is it a key of this process's, free or not? Then a work request may change it.
  [[nodiscard]] bool is_own(std::uint32_t key) const noexcept;
  [[nodiscard]] ibv_wc_status change(const Qp& qp, const SendWqe& wqe) noexcept;
  [[nodiscard]] ibv_wc_status invalidate(const Qp& qp, std::uint32_t key) noexcept;
  // May a send to `target` invalidate it?
  [[nodiscard]] bool may_invalidate(std::uint32_t key, const RequestTarget& target) const noexcept;

  // What a request does with the bytes: reads them into ours, writes ours to them, or only finds
  // out whether it might.
  enum class Use : std::uint8_t { read, write, check_read, check_write };
  // What it asks of the regions that the bytes are in, IBV_ACCESS_*.
  [[nodiscard]] static constexpr unsigned local_rights(Use use) noexcept {
    const bool writes = use == Use::write || use == Use::check_write;
    return writes ? unsigned{IBV_ACCESS_LOCAL_WRITE} : 0U;
  }
  struct Part {
    std::uint32_t key = 0;
    std::uint64_t address = 0, length = 0;
    unsigned rights = 0;  // IBV_ACCESS_* of the key itself
  };
  // number: of the queue pair that a request has reached; 0: the key is a local one. `local` has
  // part.length bytes. The hazard of `qp` names something else afterwards.
  [[nodiscard]] Access move(Qp& qp, std::uint32_t number, std::uint32_t pd, const Part& part,
                            Use use, std::uint8_t* local) noexcept {
    return move(qp, number, pd, part, use, local, kMaxIndirection);
  }
  // The place of an atomic operation, which lies in one region.
  [[nodiscard]] Access find_word(Qp& qp, std::uint32_t number, std::uint32_t pd, const Part& part,
                                 Place& place) noexcept;

 private:
  // A key's list as it is now, and by what it is known to be the same later.
  struct List {
    std::uint32_t key = 0, registration = 0;
    Token owner = 0;
    std::uint64_t start = 0;
    std::uint32_t log_entry = 0;
    std::span<const KeyEntry> entries;
  };
  // Runs of one region that are moved together.
  class Batch;

  [[nodiscard]] Access move(Qp& qp, std::uint32_t number, std::uint32_t pd, const Part& part,
                            Use use, std::uint8_t* local, std::uint32_t depth) noexcept;
  // The caller's hazard names `key`.
  [[nodiscard]] Access open(const Part& part, std::uint32_t number, std::uint32_t pd,
                            List& list) noexcept;
  [[nodiscard]] bool is_same(const List& list) const noexcept;
  [[nodiscard]] bool read_list(const Qp& qp, const SendWqe& wqe, KeyEntry* to) noexcept;
};

}  // namespace turnout::hca
