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
[[nodiscard]] inline std::uint64_t rnr_wait(std::uint8_t code) noexcept {
  // IBTA table 45, in units of 10 us.
  static constexpr std::uint32_t kTimer[32] = {
      65536, 1,    2,    3,    4,    6,     8,     12,    16,    24,   32,
      48,    64,   96,   128,  192,  256,   384,   512,   768,   1024, 1536,
      2048,  3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152};
  return std::uint64_t{kTimer[code & 31]} * 10'000;
}
// Nanoseconds of the transport timer 4.096 us * 2^code; 0 stands for "no limit".
[[nodiscard]] constexpr std::uint64_t ack_wait(std::uint8_t code) noexcept {
  return code == 0 ? 0 : std::uint64_t{4096} << (code & 31);
}

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
inline void to_verbs(const Completion& entry, ibv_wc& out) noexcept {
  out.wr_id = entry.wr_id;
  out.status = static_cast<ibv_wc_status>(entry.status);
  out.opcode = static_cast<ibv_wc_opcode>(entry.opcode);
  out.vendor_err = entry.vendor_err;
  out.byte_len = entry.byte_len;
  out.imm_data = entry.imm;
  out.qp_num = entry.qpn;
  out.src_qp = entry.src_qp;
  out.wc_flags = entry.flags;
  out.pkey_index = 0;
  out.slid = kLid;
  out.sl = 0;
  out.dlid_path_bits = 0;
}

[[nodiscard]] constexpr bool is_send(std::uint8_t opcode) noexcept {
  return opcode == IBV_WR_SEND || opcode == IBV_WR_SEND_WITH_IMM || opcode == IBV_WR_SEND_WITH_INV;
}
// Requests of an mlx5's queues that verbs does not have: one that does nothing; one that cannot be
// read, which ends with IBV_WC_LOC_QP_OP_ERR; and one that changes a memory key, a window's (then
// it is IBV_WR_BIND_MW) or an indirect one.
inline constexpr std::uint8_t kNop = 0xf0;
inline constexpr std::uint8_t kMalformed = 0xf1;
inline constexpr std::uint8_t kChangeKey = 0xf2;
[[nodiscard]] constexpr bool is_mlx5s_own(std::uint8_t opcode) noexcept {
  return opcode >= kNop;
}
// Nothing goes to a peer: of memory windows, and an mlx5's own.
[[nodiscard]] constexpr bool is_local(std::uint8_t opcode) noexcept {
  return opcode == IBV_WR_LOCAL_INV || opcode == IBV_WR_BIND_MW || is_mlx5s_own(opcode);
}
[[nodiscard]] constexpr bool is_write(std::uint8_t opcode) noexcept {
  return opcode == IBV_WR_RDMA_WRITE || opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}
[[nodiscard]] constexpr bool is_atomic(std::uint8_t opcode) noexcept {
  return opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}
// Do data come back?
[[nodiscard]] constexpr bool is_fetch(std::uint8_t opcode) noexcept {
  return opcode == IBV_WR_RDMA_READ || is_atomic(opcode);
}
[[nodiscard]] constexpr bool has_imm(std::uint8_t opcode) noexcept {
  return opcode == IBV_WR_SEND_WITH_IMM || opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

}  // namespace turnout::hca
