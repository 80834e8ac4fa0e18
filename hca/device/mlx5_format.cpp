// SPDX-License-Identifier: BSD-3-Clause
#include "hca/device/mlx5_format.h"

#include <endian.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "hca/device/rules.h"

namespace turnout::hca {
namespace {

static_assert(sizeof(mlx5_cqe64) == kMlx5CqeBytes);

// The entry of an error, over the same bytes (rdma-core's mlx5_err_cqe).
struct ErrorEntry {
  std::uint8_t unused[32];
  __be32 srqn_uidx;
  std::uint8_t unused2[18];
  std::uint8_t vendor_syndrome;
  std::uint8_t syndrome;
  __be32 opcode_qpn;
  __be16 wqe_counter;
  std::uint8_t signature;
  std::uint8_t op_own;
};
static_assert(sizeof(ErrorEntry) == sizeof(mlx5_cqe64));
static_assert(offsetof(ErrorEntry, opcode_qpn) == offsetof(mlx5_cqe64, sop_drop_qpn));

std::uint8_t syndrome_of(std::uint8_t status) noexcept {
  switch (status) {
    case IBV_WC_LOC_LEN_ERR:
      return MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR;
    case IBV_WC_LOC_PROT_ERR:
      return MLX5_CQE_SYNDROME_LOCAL_PROT_ERR;
    case IBV_WC_WR_FLUSH_ERR:
      return MLX5_CQE_SYNDROME_WR_FLUSH_ERR;
    case IBV_WC_MW_BIND_ERR:
      return MLX5_CQE_SYNDROME_MW_BIND_ERR;
    case IBV_WC_BAD_RESP_ERR:
      return MLX5_CQE_SYNDROME_BAD_RESP_ERR;
    case IBV_WC_LOC_ACCESS_ERR:
      return MLX5_CQE_SYNDROME_LOCAL_ACCESS_ERR;
    case IBV_WC_REM_INV_REQ_ERR:
      return MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR;
    case IBV_WC_REM_ACCESS_ERR:
      return MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR;
    case IBV_WC_REM_OP_ERR:
      return MLX5_CQE_SYNDROME_REMOTE_OP_ERR;
    case IBV_WC_RETRY_EXC_ERR:
      return MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR;
    case IBV_WC_RNR_RETRY_EXC_ERR:
      return MLX5_CQE_SYNDROME_RNR_RETRY_EXC_ERR;
    case IBV_WC_REM_ABORT_ERR:
      return MLX5_CQE_SYNDROME_REMOTE_ABORTED_ERR;
    default:
      return MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR;
  }
}

std::uint8_t owner_of(unsigned opcode, bool solicited, std::uint64_t position,
                      std::uint32_t entries) noexcept {
  const auto pass = static_cast<unsigned>(position / entries & 1);
  return static_cast<std::uint8_t>(opcode << 4 | (solicited ? 2U : 0U) | pass);
}

unsigned responder_opcode(const Completion& done) noexcept {
  if (done.opcode == IBV_WC_RECV_RDMA_WITH_IMM) return MLX5_CQE_RESP_WR_IMM;
  if ((done.flags & IBV_WC_WITH_INV) != 0) return MLX5_CQE_RESP_SEND_INV;
  return (done.flags & IBV_WC_WITH_IMM) != 0 ? MLX5_CQE_RESP_SEND_IMM : MLX5_CQE_RESP_SEND;
}

}  // namespace

mlx5_cqe64 completion_entry(const Completion& done, std::uint32_t user_index, bool solicited,
                            std::uint64_t position, std::uint32_t entries) noexcept {
  const Mlx5Id id = unpack(done.wr_id);
  const bool send = done.send != 0;
  if (done.status != IBV_WC_SUCCESS) {
    ErrorEntry entry{};
    entry.srqn_uidx = htobe32(user_index);
    entry.vendor_syndrome = static_cast<std::uint8_t>(done.vendor_err);
    entry.syndrome = syndrome_of(done.status);
    entry.opcode_qpn = htobe32(static_cast<std::uint32_t>(id.opcode) << 24 | done.qpn);
    entry.wqe_counter = htobe16(id.index);
    entry.op_own =
        owner_of(send ? MLX5_CQE_REQ_ERR : MLX5_CQE_RESP_ERR, solicited, position, entries);
    mlx5_cqe64 out;
    std::memcpy(&out, &entry, sizeof out);
    return out;
  }
  mlx5_cqe64 entry{};
  entry.srqn_uidx = htobe32(user_index);
  entry.byte_cnt = htobe32(done.byte_len);
  entry.timestamp = htobe64(done.timestamp);
  entry.wqe_counter = htobe16(id.index);
  if (send) {
    entry.sop_drop_qpn = htobe32(static_cast<std::uint32_t>(id.opcode) << 24 | done.qpn);
    entry.op_own = owner_of(MLX5_CQE_REQ, solicited, position, entries);
    return entry;
  }
  const std::uint32_t global = (done.flags & IBV_WC_GRH) != 0 ? 1U << 28 : 0;
  entry.slid = htobe16(kLid);
  entry.flags_rqpn = htobe32(global | done.src_qp);
  entry.imm_inval_pkey = (done.flags & IBV_WC_WITH_INV) != 0 ? htobe32(done.imm) : done.imm;
  entry.sop_drop_qpn = htobe32(done.qpn);
  entry.op_own = owner_of(responder_opcode(done), solicited, position, entries);
  return entry;
}

mlx5_cqe64 resize_entry(std::uint64_t position, std::uint32_t entries) noexcept {
  mlx5_cqe64 entry{};
  entry.op_own = owner_of(MLX5_CQE_RESIZE_CQ, false, position, entries);
  return entry;
}

Mlx5Receive parse_receive(std::span<const std::byte> entry, bool linked) noexcept {
  Mlx5Receive out;
  if (linked) {
    mlx5_wqe_srq_next_seg head;
    std::memcpy(&head, entry.data(), sizeof head);
    out.next = be16toh(head.next_wqe_index);
    entry = entry.subspan(sizeof head);
  }
  while (entry.size() >= sizeof(mlx5_wqe_data_seg) && out.num_sge < kMaxSge) {
    mlx5_wqe_data_seg segment;
    std::memcpy(&segment, entry.data(), sizeof segment);
    entry = entry.subspan(sizeof segment);
    const std::uint32_t key = be32toh(segment.lkey);
    if (key == MLX5_INVALID_LKEY) break;  // the end of a list that is shorter than its entry
    out.sge[out.num_sge++] = {be64toh(segment.addr), be32toh(segment.byte_count), key};
  }
  return out;
}

namespace {

// A request's bytes in a row, and where each lies in the ring.
class RequestReader {
 public:
  RequestReader(const Mlx5Ring& ring, std::uint32_t first, std::uint32_t bytes) noexcept
      : ring_(ring), begin_(first * kMlx5BlockBytes), size_(bytes) {
    const std::uint32_t all = ring.blocks * kMlx5BlockBytes;
    const std::uint32_t before = std::min(size_, all - begin_);
    std::memcpy(bytes_.data(), ring.start + begin_, before);
    std::memcpy(bytes_.data() + before, ring.start, size_ - before);
  }
  [[nodiscard]] std::uint32_t left() const noexcept { return size_ - at_; }
  // The next part; false: there is less.
  template <class T>
  [[nodiscard]] bool take(T& to) noexcept {
    if (left() < sizeof to) return false;
    std::memcpy(&to, bytes_.data() + at_, sizeof to);
    at_ += static_cast<std::uint32_t>(sizeof to);
    return true;
  }
  void skip(std::uint32_t bytes) noexcept { at_ = std::min(size_, at_ + bytes); }
  [[nodiscard]] const std::byte* here() const noexcept { return bytes_.data() + at_; }
  // The next `bytes` as they lie in the ring, in one or two pieces.
  template <class Add>
  void pieces(std::uint32_t bytes, const Add& add) const noexcept {
    const std::uint32_t all = ring_.blocks * kMlx5BlockBytes;
    const std::uint32_t from = (begin_ + at_) % all;
    const std::uint32_t before = std::min(bytes, all - from);
    add(ring_.start + from, before);
    if (bytes > before) add(ring_.start, bytes - before);
  }

 private:
  const Mlx5Ring& ring_;
  std::uint32_t begin_, size_, at_ = 0;
  std::array<std::byte, kMlx5MaxBlocks * kMlx5BlockBytes> bytes_;
};

int verbs_opcode(unsigned opcode) noexcept {
  switch (opcode) {
    case MLX5_OPCODE_NOP:
      return kNop;
    case MLX5_OPCODE_SEND_INVAL:
      return IBV_WR_SEND_WITH_INV;
    case MLX5_OPCODE_RDMA_WRITE:
      return IBV_WR_RDMA_WRITE;
    case MLX5_OPCODE_RDMA_WRITE_IMM:
      return IBV_WR_RDMA_WRITE_WITH_IMM;
    case MLX5_OPCODE_SEND:
      return IBV_WR_SEND;
    case MLX5_OPCODE_SEND_IMM:
      return IBV_WR_SEND_WITH_IMM;
    case MLX5_OPCODE_RDMA_READ:
      return IBV_WR_RDMA_READ;
    case MLX5_OPCODE_ATOMIC_CS:
    case MLX5_OPCODE_ATOMIC_MASKED_CS:
      return IBV_WR_ATOMIC_CMP_AND_SWP;
    case MLX5_OPCODE_ATOMIC_FA:
    case MLX5_OPCODE_ATOMIC_MASKED_FA:
      return IBV_WR_ATOMIC_FETCH_AND_ADD;
    case MLX5_OPCODE_UMR:
      return kChangeKey;
    default:
      return kMalformed;
  }
}

// What mlx5_wqe_av holds behind the destination's number where that says "extended".
bool take_address(RequestReader& reader, QpKind kind, SendWqe& wqe, Mlx5Request& out) noexcept {
  constexpr std::uint32_t kShort = 16;  // bytes of one that is not extended
  mlx5_wqe_av vector{};
  if (reader.left() < kShort) return false;
  std::memcpy(&vector, reader.here(), kShort);
  const std::uint32_t number = be32toh(vector.dqp_dct);
  std::uint32_t bytes = kShort;
  if ((number & MLX5_EXTENDED_UD_AV) != 0) {
    bytes = sizeof vector;
    if (reader.left() < bytes) return false;
    std::memcpy(&vector, reader.here(), bytes);
  }
  reader.skip(bytes);
  wqe.dest_qpn = number & 0xff'ffff;
  if (kind == QpKind::dci) {
    wqe.dc_key = be64toh(vector.key.dc_key);
  } else {
    wqe.qkey = be32toh(vector.key.qkey.qkey);
  }
  ibv_ah_attr& to = out.address;
  to.port_num = kPort;
  to.dlid = be16toh(vector.rlid);
  to.sl = vector.stat_rate_sl & 0xf;
  to.src_path_bits = vector.fl_mlid & 0x7f;
  constexpr std::uint32_t kHasGrh = 1U << 30;
  const std::uint32_t route = be32toh(vector.grh_gid_fl);
  if ((route & kHasGrh) != 0) {
    to.is_global = 1;
    to.grh.flow_label = route & 0xf'ffff;
    to.grh.sgid_index = static_cast<std::uint8_t>(route >> 20 & 0xff);
    std::memcpy(to.grh.dgid.raw, vector.rgid, sizeof to.grh.dgid.raw);
  }
  out.addressed = true;
  return true;
}

// A key is changed, or set free (rdma-core's UMR for ibv_bind_mw(3), ibv_wr_bind_mw(3) and
// mlx5dv_wr_mkey_configure(3)). Whether it is a window's is told by the key: both are read.
bool take_change(RequestReader& reader, std::uint32_t key, SendWqe& wqe) noexcept {
  mlx5_wqe_umr_ctrl_seg control;
  mlx5_wqe_mkey_context_seg context;
  if (!reader.take(control) || !reader.take(context)) return false;
  const bool is_free = (context.free & MLX5_WQE_MKEY_CONTEXT_FREE) != 0;
  if (is_free && (control.flags & MLX5_WQE_UMR_CTRL_FLAG_CHECK_QPN) != 0) {
    wqe.opcode = IBV_WR_LOCAL_INV;
    wqe.imm = key;
    return true;
  }
  constexpr std::uint32_t kSigns = 1U << 30;  // bsf_en, of flags_pd
  const bool moved = (control.flags & MLX5_WQE_UMR_CTRL_FLAG_TRNSLATION_OFFSET) != 0;
  const std::uint32_t number = be32toh(context.qpn_mkey);
  wqe.change = {
      be64toh(control.mkey_mask),
      be64toh(context.start_addr),
      be64toh(context.len),
      key,
      number >> 8,
      be16toh(control.klm_octowords),
      moved ? be16toh(control.translation_offset) : std::uint16_t{0},
      0,
      static_cast<std::uint8_t>(number),
      control.flags,
      context.access_flags,
      is_free,
      (be32toh(context.flags_pd) & kSigns) != 0 || (!moved && control.bsf_octowords != 0)};
  wqe.rkey = (key & ~0xffU) | wqe.change.tag;
  wqe.bind_length = 0;
  wqe.bind_access = 0;
  wqe.bind_lkey = 0;
  wqe.remote = 0;
  if (is_free) return true;
  const std::uint32_t bytes = wqe.change.entries * kMlx5UnitBytes;
  if ((control.flags & MLX5_WQE_UMR_CTRL_FLAG_INLINE) == 0 && bytes != 0) {
    mlx5_wqe_umr_klm_seg at;  // where the list is
    if (!reader.take(at) || be32toh(at.mkey) == kMlx5InlineKey) return false;
    wqe.list[wqe.change.pieces++] = {be64toh(at.address), bytes, be32toh(at.mkey)};
    return true;
  }
  // A window's tells of more than there is.
  reader.pieces(bytes <= reader.left() ? bytes : 0, [&](const std::byte* at, std::uint32_t length) {
    if (length > 0)
      wqe.list[wqe.change.pieces++] = {reinterpret_cast<std::uint64_t>(at), length, kMlx5InlineKey};
  });
  mlx5_wqe_umr_klm_seg part;
  if (!reader.take(part)) return true;
  wqe.bind_length = wqe.change.length;
  wqe.remote = be64toh(part.address);
  wqe.bind_lkey = be32toh(part.mkey);
  const auto allow = [&](unsigned flag, unsigned right) {
    if ((context.access_flags & flag) != 0) wqe.bind_access |= right;
  };
  allow(MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_ATOMIC, IBV_ACCESS_REMOTE_ATOMIC);
  allow(MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_REMOTE_WRITE, IBV_ACCESS_REMOTE_WRITE);
  allow(MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_REMOTE_READ, IBV_ACCESS_REMOTE_READ);
  if (context.start_addr == 0 && wqe.remote != 0) wqe.bind_access |= IBV_ACCESS_ZERO_BASED;
  return true;
}

bool is_masked(std::uint8_t opcode) noexcept {
  return opcode == MLX5_OPCODE_ATOMIC_MASKED_CS || opcode == MLX5_OPCODE_ATOMIC_MASKED_FA;
}
// The length of a masked atomic's word; 0: there is no such modifier.
std::uint8_t masked_bytes(std::uint32_t modifier) noexcept {
  constexpr std::uint32_t kFour = 8, kEight = 9;
  return modifier == kFour ? 4 : modifier == kEight ? 8 : 0;
}

// Its operands, each as long as the word: what is exchanged, compared, and their masks; or what is
// added and where the fields end, in at least 16 bytes.
bool take_masked(RequestReader& reader, bool swaps, SendWqe& wqe) noexcept {
  std::uint64_t words[4] = {};
  const std::uint32_t bytes = wqe.masks.bytes;
  const std::uint32_t count = swaps ? 4 : 2;
  const std::uint32_t whole = std::max(count * bytes, kMlx5UnitBytes);
  if (reader.left() < whole) return false;
  for (std::uint32_t i = 0; i < count; ++i) {
    std::uint64_t word = 0;
    std::memcpy(&word, reader.here() + std::size_t{i} * bytes, bytes);
    words[i] = bytes == 4 ? be32toh(static_cast<std::uint32_t>(word)) : be64toh(word);
  }
  reader.skip(whole);
  wqe.swap = words[0];
  wqe.compare_add = swaps ? words[1] : words[0];
  wqe.masks.swap = words[2];
  wqe.masks.compare = swaps ? words[3] : words[1];
  return true;
}

bool add_piece(SendWqe& wqe, std::uint64_t address, std::uint32_t length,
               std::uint32_t key) noexcept {
  if (wqe.num_sge == kMaxSge) return false;
  wqe.sge[wqe.num_sge++] = {address, length, key};
  return true;
}

// Pointers and inline data to the end of the request.
Mlx5Fault take_data(RequestReader& reader, SendWqe& wqe) noexcept {
  while (reader.left() >= sizeof(std::uint32_t)) {
    std::uint32_t word = 0;
    std::memcpy(&word, reader.here(), sizeof word);
    word = be32toh(word);
    if ((word & MLX5_INLINE_SEG) == 0) {
      mlx5_wqe_data_seg segment;
      if (!reader.take(segment)) return Mlx5Fault::length;
      const std::uint32_t key = be32toh(segment.lkey);
      if (key == kMlx5InlineKey) return Mlx5Fault::length;
      if (!add_piece(wqe, be64toh(segment.addr), word, key)) return Mlx5Fault::length;
      continue;
    }
    const std::uint32_t bytes = word & ~static_cast<std::uint32_t>(MLX5_INLINE_SEG);
    constexpr std::uint32_t kHead = sizeof word;
    if (bytes > reader.left() - kHead) return Mlx5Fault::length;
    reader.skip(kHead);
    // The only piece, and it does not have to stay in the ring: the request's own bytes.
    const std::uint32_t whole =
        (kHead + bytes + kMlx5UnitBytes - 1) / kMlx5UnitBytes * kMlx5UnitBytes;
    if (wqe.num_sge == 0 && reader.left() + kHead <= whole && bytes <= kMaxInline) {
      std::memcpy(wqe.data, reader.here(), bytes);
      wqe.is_inline = true;
      wqe.length = bytes;
      return Mlx5Fault::none;
    }
    bool fits = true;
    reader.pieces(bytes, [&](const std::byte* at, std::uint32_t length) {
      if (length > 0)
        fits = fits && add_piece(wqe, reinterpret_cast<std::uint64_t>(at), length, kMlx5InlineKey);
    });
    if (!fits) return Mlx5Fault::length;
    reader.skip(whole - kHead);
  }
  return Mlx5Fault::none;
}

}  // namespace

Mlx5Request parse_send(const Mlx5Ring& ring, std::uint16_t position, std::uint32_t available,
                       QpKind kind, std::uint32_t user_index, SendWqe& wqe) noexcept {
  Mlx5Request out;
  mlx5_wqe_ctrl_seg control;
  const std::uint32_t first = position & (ring.blocks - 1);
  std::memcpy(&control, ring.start + std::size_t{first} * kMlx5BlockBytes, sizeof control);
  const std::uint32_t operation = be32toh(control.opmod_idx_opcode);
  const std::uint32_t units = be32toh(control.qpn_ds) & 0x3f;
  const auto opcode = static_cast<std::uint8_t>(operation);

  wqe.wr_id = pack({position, opcode, user_index});
  wqe.opcode = static_cast<std::uint8_t>(verbs_opcode(opcode));
  wqe.flags = 0;
  if ((control.fm_ce_se & MLX5_WQE_CTRL_CQ_UPDATE) != 0) wqe.flags |= IBV_SEND_SIGNALED;
  if ((control.fm_ce_se & MLX5_WQE_CTRL_SOLICITED) != 0) wqe.flags |= IBV_SEND_SOLICITED;
  wqe.num_sge = 0;
  wqe.is_inline = false;
  wqe.reachable = true;
  wqe.addressed = kind == QpKind::rc || kind == QpKind::uc;
  wqe.global = false;
  wqe.multicast = false;
  wqe.length = 0;
  wqe.rkey = 0;
  wqe.masks.bytes = is_masked(opcode) ? masked_bytes(operation >> 24) : 0;
  wqe.imm = control.imm;
  if (opcode == MLX5_OPCODE_SEND_INVAL) wqe.imm = be32toh(control.imm);

  const auto refuse = [&](Mlx5Fault fault) {
    out.fault = fault;
    wqe.opcode = kMalformed;
    wqe.num_sge = 0;
    wqe.is_inline = false;
    return out;
  };
  constexpr std::uint32_t kUnitsOfBlock = kMlx5BlockBytes / kMlx5UnitBytes;
  out.blocks = std::max(1U, (units + kUnitsOfBlock - 1) / kUnitsOfBlock);
  if (units == 0 || out.blocks > available || out.blocks > kMlx5MaxBlocks ||
      out.blocks > ring.blocks) {
    out.blocks = available;  // where the next one begins nobody knows
    return refuse(Mlx5Fault::length);
  }
  if (wqe.opcode == kNop) return out;
  const bool modified = is_masked(opcode) ? wqe.masks.bytes == 0 : (operation >> 24) != 0;
  if (wqe.opcode == kMalformed || modified) return refuse(Mlx5Fault::opcode);

  RequestReader reader(ring, first, units * kMlx5UnitBytes);
  reader.skip(sizeof control);
  if (wqe.opcode == kChangeKey) {
    wqe.addressed = true;
    return take_change(reader, be32toh(control.imm), wqe) ? out : refuse(Mlx5Fault::length);
  }
  if (kind == QpKind::xrc_ini) {
    struct {
      __be32 srqn;
      std::uint8_t unused[12];
    } segment;
    if (!reader.take(segment)) return refuse(Mlx5Fault::length);
    wqe.srqn = be32toh(segment.srqn);
    wqe.addressed = true;
  }
  if (kind == QpKind::ud || kind == QpKind::dci) {
    if (!take_address(reader, kind, wqe, out)) return refuse(Mlx5Fault::length);
    wqe.addressed = true;
    if (kind == QpKind::dci) wqe.stream = be16toh(control.dci_stream_channel_id);
  }
  if (!is_send(wqe.opcode)) {
    mlx5_wqe_raddr_seg remote;
    if (!reader.take(remote)) return refuse(Mlx5Fault::length);
    wqe.remote = be64toh(remote.raddr);
    wqe.rkey = be32toh(remote.rkey);
  }
  if (is_masked(opcode)) {
    const bool swaps = opcode == MLX5_OPCODE_ATOMIC_MASKED_CS;
    if (!take_masked(reader, swaps, wqe)) return refuse(Mlx5Fault::length);
  } else if (is_atomic(wqe.opcode)) {
    mlx5_wqe_atomic_seg operands;
    if (!reader.take(operands)) return refuse(Mlx5Fault::length);
    const bool swaps = wqe.opcode == IBV_WR_ATOMIC_CMP_AND_SWP;
    wqe.compare_add = be64toh(swaps ? operands.compare : operands.swap_add);
    wqe.swap = be64toh(operands.swap_add);
  }
  const Mlx5Fault fault = take_data(reader, wqe);
  // What comes back cannot go to the request itself.
  if (is_fetch(wqe.opcode) &&
      (wqe.is_inline || std::any_of(wqe.sge, wqe.sge + wqe.num_sge,
                                    [](const ibv_sge& s) { return s.lkey == kMlx5InlineKey; }))) {
    return refuse(Mlx5Fault::length);
  }
  return fault == Mlx5Fault::none ? out : refuse(fault);
}

}  // namespace turnout::hca
