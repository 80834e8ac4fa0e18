// SPDX-License-Identifier: BSD-3-Clause
#include "hca/device/rules.h"

namespace turnout::hca {

std::uint64_t rnr_wait(std::uint8_t code) noexcept {
  // IBTA table 45, in units of 10 us.
  static constexpr std::uint32_t kTimer[32] = {
      65536, 1,    2,    3,    4,    6,     8,     12,    16,    24,   32,
      48,    64,   96,   128,  192,  256,   384,   512,   768,   1024, 1536,
      2048,  3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152};
  return std::uint64_t{kTimer[code & 31]} * 10'000;
}

std::uint64_t ack_wait(std::uint8_t code) noexcept {
  return code == 0 ? 0 : std::uint64_t{4096} << (code & 31);
}

void to_verbs(const Completion& entry, ibv_wc& out) noexcept {
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

}  // namespace turnout::hca
