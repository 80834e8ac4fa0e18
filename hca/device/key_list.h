// SPDX-License-Identifier: BSD-3-Clause
// The list of an indirect memory key of an mlx5: which bytes of which other keys it stands for, in
// their order.
//
// Pure functions, any thread. A list lies in memory that other processes write, so an entry may be
// anything at any time: each is read once, and what is found is within the list. Whoever uses a run
// checks its key and addresses. Sources: mlx5_wqe_umr_klm_seg and mlx5_wqe_umr_repeat_block_seg of
// mlx5dv.h; mlx5dv_wr_set_mkey_layout_list(3).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace turnout::hca {

// An entry, as a program writes it but in host order. Three kinds:
// a piece: `length` bytes of `key` from `address` on;
// a block that repeats (key kRepeatKey): how often is the high half of `address`, its low 16 bits
// say how many entries behind this one are its parts, and `length` is of one pass over them;
// such a part: the low half of `length` has its bytes, the high half how far it moves each pass.
struct KeyEntry {
  std::uint64_t address;
  std::uint32_t length;
  std::uint32_t key;
};
static_assert(sizeof(KeyEntry) == 16);
inline constexpr std::uint32_t kRepeatKey = 0x400;
inline constexpr std::size_t kKeyEntryBytes = 16;

// The entry that lies at `bytes`, big-endian.
[[nodiscard]] KeyEntry read_key_entry(const std::byte* bytes) noexcept;
// Are its blocks whole, each as long as its parts together, and none within another?
[[nodiscard]] bool is_well_formed(std::span<const KeyEntry> entries) noexcept;

// Bytes in a row of another key.
struct KeyRun {
  std::uint32_t key;
  std::uint64_t address;
  std::uint64_t length;
};

// A place in a list, from which its bytes are read on.
class KeyCursor {
 public:
  // log_entry: 0, or every entry has 2^log_entry bytes (KSM), whatever it says.
  KeyCursor(std::span<const KeyEntry> entries, std::uint32_t log_entry) noexcept
      : entries_(entries), log_entry_(log_entry) {}
  // To the byte `offset`. False: the list ends before it.
  [[nodiscard]] bool seek(std::uint64_t offset) noexcept;
  // The next runs, of `limit` bytes at most together; none: the list has ended, or cannot be read.
  // Runs that go on where the one before ends are one.
  [[nodiscard]] std::size_t next(std::uint64_t limit, std::span<KeyRun> out) noexcept;

 private:
  struct Block {
    std::uint32_t passes = 0, parts = 0, bytes = 0;
  };
  [[nodiscard]] KeyEntry at(std::size_t entry) const noexcept;
  // Of the entry that the cursor is at; false: it is none.
  [[nodiscard]] bool read_block(Block& block) const noexcept;
  void leave_entry(std::size_t entries) noexcept;

  std::span<const KeyEntry> entries_;
  std::uint32_t log_entry_;
  std::size_t entry_ = 0;     // a piece, or the head of a block
  std::uint32_t pass_ = 0;    // of the block
  std::uint32_t part_ = 0;    // of the pass
  std::uint64_t within_ = 0;  // bytes of the piece or part that are done
};

}  // namespace turnout::hca
