// SPDX-License-Identifier: BSD-3-Clause
// read_alone: a value that the compiler loads by itself, in its own size.
//
// A processor hands a value from a store to a load that follows only if one store wrote all that is
// loaded. Otherwise the load waits until the store, and all before it, are in the cache: those to
// the memory of another process, too. Compilers load two neighbours at a time, or a word where a
// byte is asked for. Of what the caller has just stored in smaller pieces. Pure. Source: AMD's and
// Intel's optimization manuals, store-to-load forwarding.
#pragma once

namespace turnout {

template <class T>
[[nodiscard, gnu::always_inline]] inline T read_alone(T value) noexcept {
  asm("" : "+r"(value));
  return value;
}

}  // namespace turnout
