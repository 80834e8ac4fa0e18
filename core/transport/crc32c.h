// SPDX-License-Identifier: BSD-3-Clause
// CRC-32C (Castagnoli, RFC 3720 appendix B.4): the checksum of messages in a ring whose bytes may
// be placed in any order. By the processor's instruction where it has one (SSE 4.2), else by a
// table; both give the same value, and any thread may call.
#pragma once

#include <cstddef>
#include <cstdint>

namespace turnout {

// Of the bytes that gave `before` and `length` more; begin with 0.
[[nodiscard]] std::uint32_t crc32c(std::uint32_t before, const void* data,
                                   std::size_t length) noexcept;
// Without the instruction, for comparison.
[[nodiscard]] std::uint32_t crc32c_by_table(std::uint32_t before, const void* data,
                                            std::size_t length) noexcept;

}  // namespace turnout
