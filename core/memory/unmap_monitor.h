// SPDX-License-Identifier: BSD-3-Clause
// Monitors the unmapping of memory in this process, so that a cached registration does not outlive
// its memory: munmap, mremap, mmap over a mapping, madvise that drops pages, a shrinking heap,
// shmdt, fork; by any caller, libc within free() and the dynamic linker too. The only header of the
// memory hooks that other folders include.
//
//   watch_unmapping() -> patch_calls() (syscall_patch.h): jumps in place of system calls
//     -> before and after each call (unmap_calls.cpp) -> unmap_log (unmap_log.h) -> its readers
//
// It changes code of the process: the system calls in libc, in the dynamic linker and in the
// library that provides malloc, from the first watch_unmapping() on, which an endpoint calls only
// if registrations are cached (TURNOUT_REGISTRATION_CACHE). The patch is process-wide and never
// undone: the shared object stays loaded (-z nodelete). A self-test runs first, and each use checks
// that the patch is in place. If monitoring is not possible (not x86-64, a sanitizer's allocator,
// another library's hooks), the status says why, and registrations are not cached. Any thread.
// Source: docs/decisions/013-registration-cache.md.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "core/memory/unmap_log.h"

namespace turnout {

// Whose memory is watched: `all` needs an allocator whose calls are seen. `mappings` leaves malloc
// out, for programs (tests under a sanitizer) that send mapped memory only.
enum class Watch : std::uint8_t { all, mappings };

// The ranges that were unmapped; read without a lock, after watch_unmapping() has succeeded.
extern UnmapLog unmap_log;

// Makes watch_unmapping() faster if it is called while the process has one thread; changes no code.
void prepare_to_watch_unmapping() noexcept;
// Patches the system calls, once; later calls return the same status. Takes a lock, and some 10 ms.
// Errors: unsupported, with what is missing; system.
[[nodiscard]] Status watch_unmapping(Watch watch = Watch::all);
// It succeeded, and the code is still as it was left: a comparison of a few words, without a lock.
// If somebody has changed it, the self-test runs again: if it passes, true, and unmap_log has a
// range of everything; else false from now on.
[[nodiscard]] bool watching_unmapping() noexcept;

}  // namespace turnout
