// SPDX-License-Identifier: BSD-3-Clause
#include "hca/mlx5/store_instruction.h"

namespace turnout::hca {

#if defined(__x86_64__)

namespace {

struct Prefixes {
  bool operand_size = false;  // 66
  bool single = false;        // F3
  bool wide = false;          // REX.W
  bool extended = false;      // REX.R
};

// Bytes of ModRM, SIB and displacement; 0: the operand is a register.
std::uint32_t operand_bytes(const std::uint8_t* at) noexcept {
  const unsigned mode = *at >> 6, memory = *at & 7U;
  if (mode == 3) return 0;
  std::uint32_t bytes = 1;
  unsigned base = memory;
  if (memory == 4) {
    base = at[1] & 7U;
    ++bytes;
  }
  if (mode == 1) return bytes + 1;
  if (mode == 2) return bytes + 4;
  return base == 5 ? bytes + 4 : bytes;  // relative to the instruction, or an address
}

// Of these, does it store 8 bytes or more of an XMM register or a longer one? MMX has no prefix.
bool stores_long_vector(std::uint8_t opcode, bool operand_size, bool single, bool other) noexcept {
  switch (opcode) {
    case 0x11:
      return !single;
    case 0x29:
    case 0x2b:
      return true;
    case 0x7f:
      return operand_size || single || other;
    case 0xd6:
    case 0xe7:
      return operand_size;
    default:
      return false;
  }
}

// Of the map 0F: stores of vector registers and movnti.
bool stores_vector(std::uint8_t opcode) noexcept {
  switch (opcode) {
    case 0x11:  // movups, movupd, movss, movsd
    case 0x13:  // movlps, movlpd
    case 0x17:  // movhps, movhpd
    case 0x29:  // movaps, movapd
    case 0x2b:  // movntps, movntpd
    case 0x7e:  // movd, movq
    case 0x7f:  // movdqa, movdqu, movq
    case 0xd6:  // movq
    case 0xe7:  // movntdq, movntq
      return true;
    default:
      return false;
  }
}

}  // namespace

std::optional<StoreInstruction> decode_store(const std::uint8_t* code) noexcept {
  Prefixes prefixes;
  std::uint32_t at = 0;
  for (;; ++at) {
    const std::uint8_t byte = code[at];
    if (at == 4) return {};
    if (byte == 0x66) {
      prefixes.operand_size = true;
    } else if (byte == 0xf3) {
      prefixes.single = true;
    } else if (byte != 0xf2 && byte != 0x2e && byte != 0x3e &&  // segments
               byte != 0x64 && byte != 0x65) {
      break;
    }
  }
  std::uint8_t byte = code[at++];
  // VEX of two bytes, or of three with map 1; EVEX, whose displacement of a byte is one here, too.
  // Their bits of the register's number are inverted.
  if (byte == 0xc5 || byte == 0xc4 || byte == 0x62) {
    const std::uint8_t first = code[at];
    const unsigned map = byte == 0xc5 ? 1 : first & (byte == 0x62 ? 7U : 0x1fU);
    if (map != 1) return {};
    int number = (first & 0x80) != 0 ? 0 : 8;
    if (byte == 0x62 && (first & 0x10) == 0) number += 16;
    at += byte == 0xc5 ? 1 : byte == 0xc4 ? 2 : 3;
    const unsigned implied = code[byte == 0x62 ? at - 2 : at - 1] & 3U;  // 1: 66, 2: F3, 3: F2
    byte = code[at++];
    const std::uint32_t operand = operand_bytes(code + at);
    if (!stores_vector(byte) || operand == 0) return {};
    const bool known = stores_long_vector(byte, implied == 1, implied == 2, implied == 3);
    return StoreInstruction{at + operand, 0, -1, known ? number + (code[at] >> 3 & 7) : -1};
  }
  if ((byte & 0xf0) == 0x40) {
    prefixes.wide = (byte & 8) != 0;
    prefixes.extended = (byte & 4) != 0;
    byte = code[at++];
  }
  const auto store = [&](std::uint32_t bytes, bool general,
                         std::uint32_t immediate) -> std::optional<StoreInstruction> {
    const std::uint32_t operand = operand_bytes(code + at);
    if (operand == 0) return {};
    const int number = ((code[at] >> 3) & 7) | (prefixes.extended ? 8 : 0);
    return StoreInstruction{at + operand + immediate, bytes, general ? number : -1, -1};
  };
  const std::uint32_t word = prefixes.wide ? 8 : prefixes.operand_size ? 2 : 4;
  switch (byte) {
    case 0x88:
      return store(1, false, 0);
    case 0x89:
      return store(word, true, 0);
    case 0xc6:
      return store(1, false, 1);
    case 0xc7:
      return store(word, false, prefixes.operand_size && !prefixes.wide ? 2 : 4);
    case 0x0f:
      break;
    default:
      return {};
  }
  byte = code[at++];
  if (byte == 0xc3) return store(word, true, 0);  // movnti
  if (!stores_vector(byte)) return {};
  auto vector = store(0, false, 0);
  if (vector && stores_long_vector(byte, prefixes.operand_size, prefixes.single, false)) {
    vector->vector_register = ((code[at] >> 3) & 7) | (prefixes.extended ? 8 : 0);
  }
  return vector;
}

std::optional<LoadInstruction> decode_load(const std::uint8_t* code) noexcept {
  constexpr std::uint8_t kMove = 0x8b;
  std::uint32_t at = 0;
  unsigned rex = 0;
  if ((code[at] & 0xf0) == 0x40) rex = code[at++];
  if (code[at++] != kMove) return {};
  const std::uint32_t operand = operand_bytes(code + at);
  if (operand == 0) return {};
  const int number = ((code[at] >> 3) & 7) | ((rex & 4) != 0 ? 8 : 0);
  return LoadInstruction{at + operand, (rex & 8) != 0 ? 8U : 4U, number};
}

#else

std::optional<LoadInstruction> decode_load(const std::uint8_t*) noexcept {
  return {};
}

std::optional<StoreInstruction> decode_store(const std::uint8_t*) noexcept {
  return StoreInstruction{4, 0, -1, -1};
}

#endif

}  // namespace turnout::hca
