// SPDX-License-Identifier: BSD-3-Clause
#include "hca/device/copy_in_order.h"

#include <cstring>

namespace turnout::hca {

// Not instrumented by the thread sanitizer, like an adapter's DMA, whose bytes programs poll.
__attribute__((no_sanitize("thread"))) void copy_in_order(std::uint8_t* to,
                                                          const std::uint8_t* from,
                                                          std::uint64_t length) noexcept {
  if (length == 0) return;
  const std::uint64_t body = length - 1;
  const std::uint8_t last = from[body];
#if defined(__SANITIZE_THREAD__)
  auto* t = to;
  const auto* f = from;
  std::uint64_t n = body;
  if (t > f && t < f + n) {  // they overlap: the end first, as memmove does
    t += n - 1;
    f += n - 1;
    asm volatile("std\n\trep movsb\n\tcld" : "+D"(t), "+S"(f), "+c"(n) : : "memory", "cc");
  } else {
    asm volatile("rep movsb" : "+D"(t), "+S"(f), "+c"(n) : : "memory");
  }
#else
  // A program may send from where it receives, and a damaged receive may lie anywhere.
  std::memmove(to, from, body);
#endif
  // x86 keeps stores in order; the barrier keeps the compiler from moving the last one up. memmove
  // ends its non-temporal stores with a fence.
  asm volatile("" : : : "memory");
  *static_cast<volatile std::uint8_t*>(to + body) = last;
  asm volatile("" : : : "memory");
}

}  // namespace turnout::hca
