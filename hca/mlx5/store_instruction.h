// SPDX-License-Identifier: BSD-3-Clause
// Which instruction stored to a doorbell: its length, so that the program goes on behind it, and
// where the stored value is.
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
};

// Nothing: not a store that compilers make of an assignment, a copy or an atomic store. No byte
// behind the instruction's end is read.
[[nodiscard]] std::optional<StoreInstruction> decode_store(const std::uint8_t* code) noexcept;

}  // namespace turnout::hca
