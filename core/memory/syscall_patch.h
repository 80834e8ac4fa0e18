// SPDX-License-Identifier: BSD-3-Clause
// Leads system calls in code that is loaded already through turnout_call_begins() and
// turnout_call_ends() (unmap_monitor.h). x86-64.
//
// Not the entries of functions are replaced but the instruction before a call,
//   mov $NUMBER, %eax ; syscall        (and, in libc's syscall(): mov 8(%rsp), %r9 ; syscall)
// whose five bytes have room for a jump: so no thread can stand in the middle of what is replaced,
// the function's own errno, checks and bookkeeping stay, calls that were compiled into other
// functions are found like any, and hooks that others put at the entries and that end in syscall()
// are seen as well. A jump leads to a stub nearby, which runs what was replaced, and the call.
//
// The bytes are changed while other threads may run them: first two become a jump to itself, which
// is written at once; then the rest; then the two. A thread that comes meanwhile waits there. Where
// the two lie in different cache lines this is done only while there is no other thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"

namespace turnout {

struct PatchedCall {
  std::uintptr_t address = 0;  // of the jump
  long number = -1;            // of the system call; -1: any, in syscall()
};

// To be called while the process has one thread, where that can be: the kernel then need not wait
// for all processors (membarrier(2), some 10 ms), as it does when patch_calls() has to ask first.
void prepare_to_patch() noexcept;

// Five bytes, as the processor would read them.
[[nodiscard]] std::uint64_t code_at(std::uintptr_t address) noexcept;

// In all objects that hold one of these addresses. Errors: unsupported, system.
[[nodiscard]] Result<std::vector<PatchedCall>> patch_calls(
    const std::vector<const void*>& objects_of);

}  // namespace turnout
