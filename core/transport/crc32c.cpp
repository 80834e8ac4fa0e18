// SPDX-License-Identifier: BSD-3-Clause
#include "core/transport/crc32c.h"

#include <nmmintrin.h>

#include <array>
#include <cstring>

namespace turnout {
namespace {

constexpr std::uint32_t kReflected = 0x82F63B78u;

constexpr std::array<std::uint32_t, 256> make_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < table.size(); ++i) {
    std::uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1u) != 0 ? kReflected : 0u);
    table[i] = crc;
  }
  return table;
}
constexpr std::array<std::uint32_t, 256> kTable = make_table();

__attribute__((target("sse4.2"))) std::uint32_t by_instruction(std::uint32_t before,
                                                               const void* data,
                                                               std::size_t length) noexcept {
  const auto* bytes = static_cast<const unsigned char*>(data);
  std::uint64_t crc = ~before;
  for (; length >= sizeof(std::uint64_t); length -= sizeof(std::uint64_t)) {
    std::uint64_t word;
    std::memcpy(&word, bytes, sizeof word);
    crc = _mm_crc32_u64(crc, word);
    bytes += sizeof word;
  }
  auto rest = static_cast<std::uint32_t>(crc);
  for (; length > 0; --length) rest = _mm_crc32_u8(rest, *bytes++);
  return ~rest;
}

}  // namespace

std::uint32_t crc32c_by_table(std::uint32_t before, const void* data, std::size_t length) noexcept {
  const auto* bytes = static_cast<const unsigned char*>(data);
  std::uint32_t crc = ~before;
  for (; length > 0; --length) crc = (crc >> 8) ^ kTable[(crc ^ *bytes++) & 0xffu];
  return ~crc;
}

std::uint32_t crc32c(std::uint32_t before, const void* data, std::size_t length) noexcept {
  static const bool has_instruction = __builtin_cpu_supports("sse4.2") != 0;
  return has_instruction ? by_instruction(before, data, length)
                         : crc32c_by_table(before, data, length);
}

}  // namespace turnout
