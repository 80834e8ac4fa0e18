// SPDX-License-Identifier: BSD-3-Clause
// CRC-32 (IEEE 802.3, reflected polynomial 0xEDB88320) of addresses: 60 bytes, off the hot path.
#pragma once

#include <cstddef>
#include <cstdint>

namespace turnout {

[[nodiscard]] inline std::uint32_t crc32(const void* data, std::size_t length) noexcept {
  std::uint32_t crc = 0xffffffffu;
  const auto* bytes = static_cast<const unsigned char*>(data);
  for (std::size_t i = 0; i < length; ++i) {
    crc ^= bytes[i];
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1u) != 0 ? 0xEDB88320u : 0u);
  }
  return ~crc;
}

}  // namespace turnout
