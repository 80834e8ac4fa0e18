// SPDX-License-Identifier: BSD-3-Clause
// Detects the unmapping of memory in this process: munmap, mremap, mmap over a mapping, madvise
// that drops pages, a shrinking heap, shmdt, fork; by any caller, including libc within free() and
// the dynamic linker.
//
// The system calls in libc, in the dynamic linker and in the library that provides malloc are
// patched to call unmap_log (syscall_patch.h). A self-test runs before first use, and each use
// checks that the patch is still in place. If monitoring is not possible, a status gives the
// reason. Process-wide and never undone: the shared object stays loaded (-z nodelete). Any thread.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "core/memory/unmap_log.h"

namespace turnout {

// Whose memory is watched: `all` needs an allocator whose calls are seen. `mappings` leaves malloc
// out, for programs (tests under a sanitizer) that send mapped memory only.
enum class Watch : std::uint8_t { all, mappings };

extern UnmapLog unmap_log;

// Once; later calls answer the same. Errors: unsupported, with what is missing.
[[nodiscard]] Status watch_unmapping(Watch watch = Watch::all);
// It succeeded, and the code is still as it was left. If somebody has changed it, it is tried
// again: then true, and everything is noted as gone; else false for ever.
[[nodiscard]] bool watching_unmapping() noexcept;

}  // namespace turnout

// Around each call; `call`: its number and six arguments. Begins answers 1 if ends is to be called.
extern "C" {
__attribute__((visibility("hidden"))) long turnout_call_begins(const unsigned long* call) noexcept;
__attribute__((visibility("hidden"))) void turnout_call_ends() noexcept;
}
