// SPDX-License-Identifier: BSD-3-Clause
// Executes atomic operations on memory.
//
// Elements of 1, 2, 4 and 8 bytes that are aligned to their size are updated atomically, so they
// are atomic with the program's own atomic instructions; others are atomic only among operations of
// the same thread. Integer arithmetic wraps. Any thread.
#pragma once

#include <cstddef>

#include "core/types/atomic.h"

namespace turnout {

struct AtomicOperands {
  const std::byte* operands = nullptr;  // null: the operation has none
  const std::byte* compare = nullptr;   // null: the same
};

// `count` elements from `target` on, which is writable unless op is `read`; what was there goes to
// `fetched` unless that is null. The operation exists for the type, and what it needs is there;
// operands and results may lie unaligned.
void execute(AtomicOp op, AtomicType type, std::byte* target, std::size_t count,
             const AtomicOperands& with, std::byte* fetched) noexcept;

}  // namespace turnout
