// SPDX-License-Identifier: BSD-3-Clause
// Redirects system calls in loaded code through turnout_call_begins() and turnout_call_ends(). A
// part of unmap_monitor.h. x86-64.
//
// The patch replaces the instruction before a call, not the entry of a function:
//   mov $NUMBER, %eax ; syscall        (and, in libc's syscall(): mov 8(%rsp), %r9 ; syscall)
// Its five bytes have room for a jump to a nearby stub that runs the replaced instruction and the
// call. So no thread can be in the middle of the replaced code; the function's errno handling and
// bookkeeping stay; inlined calls, and hooks at function entries that end in syscall(), are
// covered.
//
// Other threads may run the code while it is changed: two bytes become a jump to itself, written
// atomically, on which a thread that arrives spins; then the rest is written; then the two bytes.
// If those are in different cache lines, the patch is applied only while there is no other thread.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"

namespace turnout {

struct PatchedCall {
  std::uintptr_t address = 0;  // of the jump
  long number = -1;            // of the system call; -1: any, in syscall()
};

// Part of patch_calls(), fast while the process has one thread: later the kernel waits for all
// processors (membarrier(2), some 10 ms).
void prepare_to_patch() noexcept;

// Five bytes, as the processor would read them.
[[nodiscard]] std::uint64_t code_at(std::uintptr_t address) noexcept;

// In all objects that hold one of these addresses. Errors: unsupported, system.
[[nodiscard]] Result<std::vector<PatchedCall>> patch_calls(
    const std::vector<const void*>& objects_of);

}  // namespace turnout

// Run around each call, in whatever thread makes it (unmap_calls.cpp). `call`: its number and six
// arguments. The first returns 1 if the second is to be called.
extern "C" {
__attribute__((visibility("hidden"))) long turnout_call_begins(const unsigned long* call) noexcept;
__attribute__((visibility("hidden"))) void turnout_call_ends() noexcept;
}
