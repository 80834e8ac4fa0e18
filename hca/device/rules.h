// SPDX-License-Identifier: BSD-3-Clause
// Pure rules of the transport: timers, access checks, and the mapping from requests to completions.
//
// Source: IBTA vol. 1 (9.7.5.2.8 RNR timer codes, 9.9.2 error handling, 10.6.3 access control).
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

#include "hca/device/layout.h"

namespace turnout::hca {

// Nanoseconds to wait after an RNR NAK with this timer code (0..31).
[[nodiscard]] std::uint64_t rnr_wait(std::uint8_t code) noexcept;
// Nanoseconds of the transport timer 4.096 us * 2^code; 0 stands for "no limit".
[[nodiscard]] std::uint64_t ack_wait(std::uint8_t code) noexcept;

// Does [address, address + length) lie in [start, start + size)? No overflow.
[[nodiscard]] constexpr bool covers(std::uint64_t start, std::uint64_t size, std::uint64_t address,
                                    std::uint64_t length) noexcept {
  return address >= start && address - start <= size && length <= size - (address - start);
}

// May a region be registered with these flags? IBTA 10.6.3.1: remote write and atomic need local
// write.
[[nodiscard]] constexpr bool valid_access(unsigned access) noexcept {
  constexpr unsigned known = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                             IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC |
                             IBV_ACCESS_RELAXED_ORDERING | IBV_ACCESS_HUGETLB | IBV_ACCESS_MW_BIND |
                             IBV_ACCESS_ZERO_BASED | IBV_ACCESS_ON_DEMAND;
  constexpr unsigned writes = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
  return (access & ~known) == 0 &&
         ((access & writes) == 0 || (access & IBV_ACCESS_LOCAL_WRITE) != 0);
}

// Fills `out` from an entry.
void to_verbs(const Completion& entry, ibv_wc& out) noexcept;

[[nodiscard]] constexpr bool is_send(std::uint8_t opcode) noexcept {
  return opcode == IBV_WR_SEND || opcode == IBV_WR_SEND_WITH_IMM || opcode == IBV_WR_SEND_WITH_INV;
}
// Of memory windows: nothing goes to a peer.
[[nodiscard]] constexpr bool is_local(std::uint8_t opcode) noexcept {
  return opcode == IBV_WR_LOCAL_INV || opcode == IBV_WR_BIND_MW;
}
[[nodiscard]] constexpr bool is_write(std::uint8_t opcode) noexcept {
  return opcode == IBV_WR_RDMA_WRITE || opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}
[[nodiscard]] constexpr bool is_atomic(std::uint8_t opcode) noexcept {
  return opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}
[[nodiscard]] constexpr bool has_imm(std::uint8_t opcode) noexcept {
  return opcode == IBV_WR_SEND_WITH_IMM || opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

}  // namespace turnout::hca
