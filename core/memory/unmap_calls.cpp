// SPDX-License-Identifier: BSD-3-Clause
// What runs around the system calls that take memory away: UnmapLog's writers, and which memory a
// call takes. In whatever thread makes the call, within malloc, on its way out of existence: no
// library function, no thread-local storage, no instrumentation, no vector registers (the options
// of this file in core/CMakeLists.txt).
#include <linux/mman.h>
#include <sys/syscall.h>

#include "core/memory/syscall_patch.h"
#include "core/memory/unmap_monitor.h"

namespace turnout {

void UnmapLog::begin() noexcept {
  __atomic_fetch_add(&open_, 1, __ATOMIC_SEQ_CST);
}

void UnmapLog::end() noexcept {
  __atomic_fetch_sub(&open_, 1, __ATOMIC_SEQ_CST);
}

void UnmapLog::note(std::uintptr_t begin, std::uintptr_t length) noexcept {
  constexpr std::uintptr_t kInPage = (std::uintptr_t{1} << kPageBits) - 1;
  const std::uintptr_t end = begin + length;
  std::uint64_t first = begin >> kPageBits, last = (end + kInPage) >> kPageBits;
  if (length == kEverything || end < begin || end + kInPage < end) {
    last = kMostPages;
    if (length == kEverything) first = 0;
  }
  if (first > kMostPages) first = 0;  // no address that a program has
  if (last > kMostPages) last = kMostPages;
  const std::uint64_t index = __atomic_fetch_add(&next_, 1, __ATOMIC_SEQ_CST);
  Slot& slot = slots_[index % kSlots];
  __atomic_store_n(&slot.begin, first << kPhaseBits | phase(index), __ATOMIC_RELEASE);
  __atomic_store_n(&slot.end, last << kPhaseBits | phase(index), __ATOMIC_RELEASE);
}

namespace {

// Advice after which the pages hold what they held. What is not listed, known or not, may take
// them.
bool keeps_pages(long advice) noexcept {
  static constexpr long kKeeping[] = {
      MADV_NORMAL,   MADV_RANDOM,        MADV_SEQUENTIAL,    MADV_WILLNEED,   MADV_DONTFORK,
      MADV_DOFORK,   MADV_MERGEABLE,     MADV_UNMERGEABLE,   MADV_HUGEPAGE,   MADV_NOHUGEPAGE,
      MADV_DONTDUMP, MADV_DODUMP,        MADV_WIPEONFORK,    MADV_KEEPONFORK, MADV_COLD,
      MADV_PAGEOUT,  MADV_POPULATE_READ, MADV_POPULATE_WRITE};
  for (const long keeping : kKeeping) {
    if (advice == keeping) return true;
  }
  return false;
}

}  // namespace
}  // namespace turnout

extern "C" long turnout_call_begins(const unsigned long* call) noexcept {
  using turnout::UnmapLog;
  UnmapLog& log = turnout::unmap_log;
  const unsigned long* const a = call + 1;
  constexpr unsigned long kShmRemap = 040000;
  // The heap ends at the old break; how far that is nobody needs to know: nothing else follows it.
  constexpr std::uintptr_t kAboveBreak = std::uintptr_t{1} << 40;
  const std::uintptr_t from = a[0];
  std::uintptr_t length = a[1];
  switch (call[0]) {
    case SYS_munmap:
    case SYS_remap_file_pages:
    case SYS_mremap:
      break;
    case SYS_mmap:
      if ((a[3] & MAP_FIXED) == 0 || (a[3] & MAP_FIXED_NOREPLACE) == MAP_FIXED_NOREPLACE) return 0;
      break;
    case SYS_madvise:
      if (turnout::keeps_pages(static_cast<long>(a[2]))) return 0;
      break;
    case SYS_brk:
      // A question for the break takes nothing; page 0 nobody has.
      length = a[0] == 0 ? 1 : kAboveBreak;
      break;
    case SYS_shmat:
      if ((a[2] & kShmRemap) == 0) return 0;
      length = UnmapLog::kEverything;
      break;
    case SYS_shmdt:
      length = UnmapLog::kEverything;  // its length is the kernel's to know
      break;
    case SYS_process_madvise:
      if (turnout::keeps_pages(static_cast<long>(a[3]))) return 0;
      length = UnmapLog::kEverything;
      break;
    default:
      return 0;
  }
  log.begin();
  log.note(from, length);
  if (call[0] == SYS_mremap && (a[3] & MREMAP_FIXED) != 0) log.note(a[4], a[2]);
  return 1;
}

extern "C" void turnout_call_ends() noexcept {
  turnout::unmap_log.end();
}
