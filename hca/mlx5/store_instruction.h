// SPDX-License-Identifier: BSD-3-Clause
// Which instruction stored to a doorbell, or loaded from a register of the device: its length, so
// that the program goes on behind it, and where the value is or goes.
//
// Pure, any thread, signal handlers. Source: Intel SDM vol. 2, chapter 2 and the pages of the
// instructions; on AArch64 every instruction has four bytes.
#pragma once

#include <cstdint>
#include <optional>

namespace turnout::hca {

struct StoreInstruction {
  std::uint32_t length = 0;   // bytes of the instruction
  std::uint32_t bytes = 0;    // that it stores; 0: not known
  int general_register = -1;  // its number in the encoding; -1: the value is somewhere else
  int vector_register = -1;   // the same of SSE, AVX and AVX-512, of which 8 bytes or more go
};

// Nothing: not a store that compilers make of an assignment, a copy or an atomic store. No byte
// behind the instruction's end is read.
[[nodiscard]] std::optional<StoreInstruction> decode_store(const std::uint8_t* code) noexcept;

// Of this processor the loads are known, too.
#if defined(__x86_64__)
inline constexpr bool kKnowsLoads = true;
#else
inline constexpr bool kKnowsLoads = false;
#endif

struct LoadInstruction {
  std::uint32_t length = 0;  // bytes of the instruction
  std::uint32_t bytes = 0;   // that it loads, 4 or 8; the rest of the register becomes zero
  int general_register = 0;  // its number in the encoding
};
// Nothing: not a plain load of 4 or 8 bytes. No byte behind the instruction's end is read.
[[nodiscard]] std::optional<LoadInstruction> decode_load(const std::uint8_t* code) noexcept;

}  // namespace turnout::hca
