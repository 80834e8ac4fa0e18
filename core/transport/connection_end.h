// SPDX-License-Identifier: BSD-3-Clause
// How the two ends of an RC or XRC connection name themselves to each other: the queue pair number,
// and in the upper 8 bits a generation number. Pure.
//
// A queue pair that went through RESET and serves another peer keeps its number but expects packet
// numbers from the start, while a peer that was not reset would continue its own (IBTA vol. 1,
// 9.7.2). The generation shows that a connection is a different or an earlier one. Each generation
// has its own packet sequence numbers, so packets of another one are discarded.
#pragma once

#include <cstdint>

namespace turnout {

inline constexpr std::uint32_t kQueuePairNumbers = 1u << 24;  // and so many packet sequence numbers

[[nodiscard]] constexpr std::uint32_t connection_end(std::uint32_t number,
                                                     std::uint8_t use) noexcept {
  return number | std::uint32_t{use} << 24;
}
[[nodiscard]] constexpr std::uint32_t number_of(std::uint32_t end) noexcept {
  return end % kQueuePairNumbers;
}
// Of the packets that this end sends.
[[nodiscard]] constexpr std::uint32_t first_packet_of(std::uint32_t end) noexcept {
  return end / kQueuePairNumbers << 16;
}

}  // namespace turnout
