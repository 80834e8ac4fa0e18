// SPDX-License-Identifier: BSD-3-Clause
// How the two ends of an RC or XRC connection name themselves to each other: the queue pair's
// number, and in the upper 8 bits which of the uses of that number this is. Pure.
//
// A queue pair that went through RESET and serves a peer again has the same number, and expects
// packets from their beginning; a peer whose own end was not reset would go on counting (IBTA vol.
// 1, 9.7.2). By the use it sees that its connection is another's, or an earlier one. Each use has
// packet sequence numbers of its own, so that what is on the way from another is taken for nothing
// of this one.
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
