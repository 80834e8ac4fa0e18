// SPDX-License-Identifier: BSD-3-Clause
// Notices when memory of this process goes: munmap, mremap, mmap over what was mapped, madvise that
// drops pages, a heap that shrinks, shmdt, fork; called by anybody, by libc itself within free()
// and by the dynamic linker.
//
// The system calls of libc, of the dynamic linker and of the library that has malloc are found in
// their code and led around unmap_log (syscall_patch.h); that it works is tried before anybody
// relies on it, and that it still is in place is looked at before each use. Where it cannot be done
// there is a reason in words. Process-wide, never undone: the object that holds it stays loaded
// (-z nodelete). Any thread.
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
