// SPDX-License-Identifier: BSD-3-Clause
// UnmapLog: which memory of the process has gone, or is another's now; written by whatever thread
// takes it away, read by everybody who keeps something that depends on it.
//
// A call that takes memory away is bracketed:
//   begin(); note(range); [the system call]; end();
// Writing takes no lock, allocates nothing and touches no thread-local storage: it may happen
// inside malloc, in a signal handler, in a thread that is just ending. Any number of writers and
// readers.
//
// Why no reader misses one. Let N be the noting and C the system call of one removal, and L a look
// into the log by a thread that uses the same addresses for something else afterwards.
// 1. N comes before C in its thread. Whoever gets the addresses anew gets them from the kernel, or
//    from an allocator that got them back by C, so C happens before that use, and the use before
//    the program's call that leads to L. So N happens before L, and L sees it.
// 2. What L finds is a position in `next_`. Slots before it may not be written yet: their removals
//    have not reached C, but their ranges are not known, so read() says that everything may have
//    gone. The same if the slot was overwritten, in whole or by half: each of its two words carries
//    the phase it is of.
// 3. What is made from the memory while a removal is between N and C would be stale at once. So who
//    makes something to keep
//       reads the log up to its end; then asks idle(); then makes it; then reads the log again
//    and keeps it only if it was idle and the second reading names none of its bytes. Of a removal
//    whose N came before the first reading and whose C comes after it, idle() sees that it is under
//    way, since begin() comes before N and end() after C. Of one whose N came after the first
//    reading the second, or the reading before a later use, sees the range.
//
// Ranges are kept in pages of 4 KiB, the least of any processor we know; a call's range is rounded
// outwards, as the kernel does.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace turnout {

class UnmapLog {
 public:
  static constexpr std::size_t kSlots = 4096;
  static constexpr std::uintptr_t kEverything = UINTPTR_MAX;

  // Defined in unmap_calls.cpp, whose code may run in any context.
  void begin() noexcept;
  void note(std::uintptr_t begin, std::uintptr_t length) noexcept;  // kEverything: all memory
  void end() noexcept;

  // The end of the log, for a reader that begins.
  [[nodiscard]] std::uint64_t position() const noexcept {
    return __atomic_load_n(&next_, __ATOMIC_SEQ_CST);
  }
  // No removal is under way.
  [[nodiscard]] bool idle() const noexcept {
    return __atomic_load_n(&open_, __ATOMIC_SEQ_CST) == 0;
  }
  // Calls on_range(begin, end) for all from *position to the end, and moves it there. False: some
  // are lost; then everything may have gone.
  template <class OnRange>
  [[nodiscard]] bool read(std::uint64_t* position, OnRange&& on_range) const {
    const std::uint64_t end = this->position();
    const std::uint64_t first = *position;
    *position = end;
    if (end - first > kSlots) return false;
    for (std::uint64_t i = first; i != end; ++i) {
      const Slot& slot = slots_[i % kSlots];
      const std::uint64_t from = __atomic_load_n(&slot.begin, __ATOMIC_ACQUIRE);
      const std::uint64_t to = __atomic_load_n(&slot.end, __ATOMIC_ACQUIRE);
      if ((from & kPhaseMask) != phase(i) || (to & kPhaseMask) != phase(i)) return false;
      const std::uint64_t last_page = to >> kPhaseBits;
      on_range(static_cast<std::uintptr_t>(from >> kPhaseBits << kPageBits),
               last_page == kMostPages ? UINTPTR_MAX
                                       : static_cast<std::uintptr_t>(last_page << kPageBits));
    }
    return true;
  }

 private:
  // A page's number takes 45 bits (57-bit addresses), the phase the rest: a writer would have to
  // stand still for 2^19 laps of the log for an old slot to be taken for a new one.
  static constexpr unsigned kPageBits = 12, kPhaseBits = 19;
  static constexpr std::uint64_t kPhaseMask = (std::uint64_t{1} << kPhaseBits) - 1;
  static constexpr std::uint64_t kMostPages = ~std::uint64_t{0} >> kPhaseBits;
  struct Slot {
    std::uint64_t begin, end;  // page << kPhaseBits | phase
  };
  // Never that of a slot that was not written.
  static constexpr std::uint64_t phase(std::uint64_t index) noexcept {
    return (index / kSlots + 1) & kPhaseMask;
  }
  static_assert(sizeof(void*) == 8);

  alignas(64) std::uint64_t next_ = 0;
  std::uint64_t open_ = 0;
  alignas(64) std::array<Slot, kSlots> slots_{};
};

}  // namespace turnout
