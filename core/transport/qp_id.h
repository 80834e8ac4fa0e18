// SPDX-License-Identifier: BSD-3-Clause
// QP id: names one connection of an RC or XRC queue pair to the peer. It is the queue pair number,
// with a generation number in the upper 8 bits. Pure functions.
//
// A queue pair that went through RESET and serves another peer keeps its number but expects packet
// numbers from the start, while a peer that was not reset would continue its own (IBTA vol. 1,
// 9.7.2). The generation shows that a connection is a different or an earlier one. Each generation
// has its own packet sequence numbers, so packets of another one are discarded.
#pragma once

#include <cstdint>

namespace turnout {

inline constexpr std::uint32_t kQueuePairNumbers = 1u << 24;  // and so many packet sequence numbers

[[nodiscard]] constexpr std::uint32_t make_qp_id(std::uint32_t number, std::uint8_t use) noexcept {
  return number | std::uint32_t{use} << 24;
}
[[nodiscard]] constexpr std::uint32_t qp_number_of(std::uint32_t qp_id) noexcept {
  return qp_id % kQueuePairNumbers;
}
// The first packet sequence number that this queue pair sends.
[[nodiscard]] constexpr std::uint32_t first_psn_of(std::uint32_t qp_id) noexcept {
  return qp_id / kQueuePairNumbers << 16;
}

}  // namespace turnout
