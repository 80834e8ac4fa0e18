// SPDX-License-Identifier: BSD-3-Clause
// mlx5's completion, receive and send entries: what a driver writes, and rubbish.
#include "hca/device/mlx5_format.h"

#include <endian.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "base/split_mix.h"
#include "hca/device/rules.h"

namespace turnout::hca {
namespace {

constexpr std::uint32_t kUser = 0x123456;

// A send queue between two pages that may not be accessed, so that reads outside of it crash.
class SendRing {
 public:
  explicit SendRing(std::uint32_t blocks) : blocks_(blocks) {
    void* const all = mmap(nullptr, kPage * 3, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    pages_ = static_cast<std::byte*>(all);
    mprotect(pages_ + kPage, kPage, PROT_READ | PROT_WRITE);
  }
  ~SendRing() { munmap(pages_, kPage * 3); }
  SendRing(const SendRing&) = delete;
  SendRing& operator=(const SendRing&) = delete;

  [[nodiscard]] Mlx5Ring ring() const {
    return {pages_ + 2 * kPage - std::size_t{blocks_} * kMlx5BlockBytes, blocks_};
  }
  // Puts these bytes at a block, on from the beginning at the ring's end.
  void put(std::uint32_t block, const std::vector<std::byte>& bytes) const {
    auto* const start = const_cast<std::byte*>(ring().start);
    const std::size_t size = std::size_t{blocks_} * kMlx5BlockBytes;
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      start[(std::size_t{block} * kMlx5BlockBytes + i) % size] = bytes[i];
    }
  }

 private:
  static constexpr std::size_t kPage = 4096;
  std::uint32_t blocks_;
  std::byte* pages_;
};

// Segments one after the other, and the control segment in front that counts them.
class Request {
 public:
  Request(unsigned opcode, std::uint32_t imm = 0) {
    mlx5_wqe_ctrl_seg control{};
    control.opmod_idx_opcode = htobe32(opcode);
    control.imm = imm;
    control.fm_ce_se = MLX5_WQE_CTRL_CQ_UPDATE;
    add(control);
  }
  template <class T>
  Request& add(const T& segment) {
    const auto* const from = reinterpret_cast<const std::byte*>(&segment);
    bytes_.insert(bytes_.end(), from, from + sizeof segment);
    return *this;
  }
  Request& pointer(std::uint64_t address, std::uint32_t length, std::uint32_t key) {
    mlx5_wqe_data_seg segment{};
    segment.byte_count = htobe32(length);
    segment.lkey = htobe32(key);
    segment.addr = htobe64(address);
    return add(segment);
  }
  Request& remote(std::uint64_t address, std::uint32_t key) {
    mlx5_wqe_raddr_seg segment{};
    segment.raddr = htobe64(address);
    segment.rkey = htobe32(key);
    return add(segment);
  }
  Request& inlined(const std::string& text) {
    add(htobe32(static_cast<std::uint32_t>(text.size()) | unsigned{MLX5_INLINE_SEG}));
    for (const char c : text) bytes_.push_back(static_cast<std::byte>(c));
    while (bytes_.size() % kMlx5UnitBytes != 0) bytes_.push_back({});
    return *this;
  }
  [[nodiscard]] std::vector<std::byte> bytes() const {
    std::vector<std::byte> out = bytes_;
    const auto units = static_cast<std::uint32_t>(out.size() / kMlx5UnitBytes);
    const std::uint32_t word = htobe32(0x77U << 8 | units);
    std::memcpy(out.data() + offsetof(mlx5_wqe_ctrl_seg, qpn_ds), &word, sizeof word);
    return out;
  }

 private:
  std::vector<std::byte> bytes_;
};

TEST(Mlx5Format, TellsOfARequestThatEnded) {
  Completion done{};
  done.send = 1;
  done.status = IBV_WC_SUCCESS;
  done.wr_id = pack({0x1234, MLX5_OPCODE_RDMA_READ, kUser});
  done.byte_len = 99;
  done.qpn = 0x77;
  done.timestamp = 0x1122334455;
  const mlx5_cqe64 entry = completion_entry(done, kUser, false, 5, 4);
  EXPECT_EQ(mlx5dv_get_cqe_opcode(const_cast<mlx5_cqe64*>(&entry)), MLX5_CQE_REQ);
  EXPECT_EQ(mlx5dv_get_cqe_owner(const_cast<mlx5_cqe64*>(&entry)), 1);  // the second pass
  EXPECT_EQ(be16toh(entry.wqe_counter), 0x1234);
  EXPECT_EQ(be32toh(entry.byte_cnt), 99U);
  EXPECT_EQ(be32toh(entry.sop_drop_qpn), unsigned{MLX5_OPCODE_RDMA_READ} << 24 | 0x77U);
  EXPECT_EQ(be32toh(entry.srqn_uidx), kUser);
  EXPECT_EQ(be64toh(entry.timestamp), 0x1122334455U);
  EXPECT_EQ(mlx5dv_get_cqe_owner(const_cast<mlx5_cqe64*>(&entry)) & 1, 1);
  const mlx5_cqe64 earlier = completion_entry(done, kUser, true, 3, 4);
  EXPECT_EQ(earlier.op_own & 1, 0);
  EXPECT_EQ(earlier.op_own & 2, 2);  // solicited
}

TEST(Mlx5Format, TellsOfAMessageThatArrived) {
  Completion done{};
  done.status = IBV_WC_SUCCESS;
  done.opcode = IBV_WC_RECV;
  done.flags = IBV_WC_WITH_IMM | IBV_WC_GRH;
  done.imm = htobe32(0xabcd);
  done.src_qp = 0x42;
  done.qpn = 0x77;
  mlx5_cqe64 entry = completion_entry(done, kUser, false, 0, 4);
  EXPECT_EQ(mlx5dv_get_cqe_opcode(&entry), MLX5_CQE_RESP_SEND_IMM);
  EXPECT_EQ(be32toh(entry.imm_inval_pkey), 0xabcdU);
  EXPECT_EQ(be32toh(entry.flags_rqpn), 1U << 28 | 0x42U);
  done.flags = IBV_WC_WITH_INV;
  done.imm = 0x1111;
  entry = completion_entry(done, kUser, false, 0, 4);
  EXPECT_EQ(mlx5dv_get_cqe_opcode(&entry), MLX5_CQE_RESP_SEND_INV);
  EXPECT_EQ(be32toh(entry.imm_inval_pkey), 0x1111U);
  done.opcode = IBV_WC_RECV_RDMA_WITH_IMM;
  entry = completion_entry(done, kUser, false, 0, 4);
  EXPECT_EQ(mlx5dv_get_cqe_opcode(&entry), MLX5_CQE_RESP_WR_IMM);
}

TEST(Mlx5Format, TellsOfErrors) {
  Completion done{};
  done.send = 1;
  done.status = IBV_WC_REM_ACCESS_ERR;
  done.wr_id = pack({7, MLX5_OPCODE_RDMA_WRITE, kUser});
  mlx5_cqe64 entry = completion_entry(done, kUser, false, 0, 4);
  EXPECT_EQ(mlx5dv_get_cqe_opcode(&entry), MLX5_CQE_REQ_ERR);
  mlx5_err_cqe error;
  std::memcpy(&error, &entry, sizeof error);
  EXPECT_EQ(error.syndrome, MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR);
  EXPECT_EQ(be16toh(error.wqe_counter), 7);
  done.send = 0;
  done.status = IBV_WC_WR_FLUSH_ERR;
  entry = completion_entry(done, kUser, false, 0, 4);
  std::memcpy(&error, &entry, sizeof error);
  EXPECT_EQ(mlx5dv_get_cqe_opcode(&entry), MLX5_CQE_RESP_ERR);
  EXPECT_EQ(error.syndrome, MLX5_CQE_SYNDROME_WR_FLUSH_ERR);
}

TEST(Mlx5Format, ReadsReceives) {
  struct {
    mlx5_wqe_srq_next_seg head{};
    mlx5_wqe_data_seg list[3]{};
  } entry;
  entry.head.next_wqe_index = htobe16(9);
  for (std::uint32_t i = 0; i < 2; ++i) {
    entry.list[i].addr = htobe64(0x1000 + i);
    entry.list[i].byte_count = htobe32(10 + i);
    entry.list[i].lkey = htobe32(20 + i);
  }
  entry.list[2].lkey = htobe32(unsigned{MLX5_INVALID_LKEY});
  const auto bytes = std::as_bytes(std::span(&entry, 1));
  const Mlx5Receive linked = parse_receive(bytes, true);
  EXPECT_EQ(linked.next, 9);
  ASSERT_EQ(linked.num_sge, 2U);
  EXPECT_EQ(linked.sge[1].address, 0x1001U);
  EXPECT_EQ(linked.sge[1].length, 11U);
  EXPECT_EQ(linked.sge[1].key, 21U);
  const Mlx5Receive plain = parse_receive(bytes.subspan(sizeof entry.head), false);
  EXPECT_EQ(plain.num_sge, 2U);
  // As many as the entry is long.
  EXPECT_EQ(parse_receive(bytes.subspan(sizeof entry.head, kMlx5UnitBytes), false).num_sge, 1U);
}

TEST(Mlx5Format, ReadsRequestsThatWrapAtTheEnd) {
  for (std::uint32_t block = 0; block < 8; ++block) {
    const SendRing ring(8);
    Request request(MLX5_OPCODE_RDMA_WRITE_IMM, htobe32(0xfeed));
    request.remote(0xabcdef, 0x55);
    for (std::uint32_t i = 0; i < 8; ++i) request.pointer(0x1000 * i, 100 + i, i + 1);
    ring.put(block, request.bytes());
    SendWqe wqe{};
    const auto position = static_cast<std::uint16_t>(8 + block);
    const Mlx5Request found = parse_send(ring.ring(), position, 8, QpKind::rc, kUser, wqe);
    ASSERT_EQ(found.fault, Mlx5Fault::none);
    EXPECT_EQ(found.blocks, 3U);
    EXPECT_EQ(wqe.opcode, IBV_WR_RDMA_WRITE_WITH_IMM);
    EXPECT_EQ(wqe.remote, 0xabcdefU);
    EXPECT_EQ(wqe.rkey, 0x55U);
    EXPECT_EQ(be32toh(wqe.imm), 0xfeedU);
    EXPECT_NE(wqe.flags & IBV_SEND_SIGNALED, 0);
    ASSERT_EQ(wqe.num_sge, 8);
    EXPECT_EQ(wqe.sge[7].addr, 0x7000U);
    EXPECT_EQ(wqe.sge[7].length, 107U);
    EXPECT_EQ(wqe.sge[7].lkey, 8U);
    EXPECT_EQ(unpack(wqe.wr_id).index, position);
    EXPECT_EQ(unpack(wqe.wr_id).user_index, kUser);
  }
}

TEST(Mlx5Format, TakesInlineBytesAlong) {
  const std::string text = "a message that is longer than what is left of the ring's last block";
  for (std::uint32_t block = 0; block < 4; ++block) {
    const SendRing ring(4);
    ring.put(block, Request(MLX5_OPCODE_SEND).inlined(text).bytes());
    SendWqe wqe{};
    const Mlx5Request found =
        parse_send(ring.ring(), static_cast<std::uint16_t>(block), 4, QpKind::rc, kUser, wqe);
    ASSERT_EQ(found.fault, Mlx5Fault::none);
    ASSERT_TRUE(wqe.is_inline);
    EXPECT_EQ(std::string(reinterpret_cast<const char*>(wqe.data), wqe.length), text);
  }
}

TEST(Mlx5Format, LeavesInlineBytesAmongPointersInTheRing) {
  const std::string text = "0123456789abcdefghijklmnopqrstuvwxyz";
  const SendRing ring(2);
  ring.put(1, Request(MLX5_OPCODE_SEND).pointer(0x1000, 5, 1).inlined(text).bytes());
  SendWqe wqe{};
  const Mlx5Request found = parse_send(ring.ring(), 1, 2, QpKind::rc, kUser, wqe);
  ASSERT_EQ(found.fault, Mlx5Fault::none);
  EXPECT_FALSE(wqe.is_inline);
  ASSERT_EQ(wqe.num_sge, 3);  // the inline part wraps
  std::string read;
  for (int i = 1; i < 3; ++i) {
    EXPECT_EQ(wqe.sge[i].lkey, kMlx5InlineKey);
    read.append(reinterpret_cast<const char*>(wqe.sge[i].addr), wqe.sge[i].length);
  }
  EXPECT_EQ(read, text);
}

// A change of a memory key: at every block of the ring, so that its list wraps, too.
TEST(Mlx5Format, ReadsChangesOfKeys) {
  mlx5_wqe_umr_ctrl_seg control{};
  control.flags = MLX5_WQE_UMR_CTRL_FLAG_INLINE;
  control.klm_octowords = htobe16(4);
  control.mkey_mask = htobe64(std::uint64_t{MLX5_WQE_UMR_CTRL_MKEY_MASK_LEN});
  mlx5_wqe_mkey_context_seg context{};
  context.qpn_mkey = htobe32(0xffff'ff00 | 0x42);
  context.access_flags = MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_REMOTE_READ;
  context.start_addr = htobe64(0x1234);
  context.len = htobe64(77);
  constexpr std::uint32_t kKey = 0x1357'11;
  for (std::uint32_t block = 0; block < 4; ++block) {
    const SendRing ring(4);
    Request request(MLX5_OPCODE_UMR, htobe32(kKey));
    request.add(control).add(context);
    for (std::uint32_t i = 0; i < 4; ++i) request.pointer(0x1000 * i, 100 + i, i + 1);
    ring.put(block, request.bytes());
    SendWqe wqe{};
    ASSERT_EQ(
        parse_send(ring.ring(), static_cast<std::uint16_t>(block), 4, QpKind::rc, kUser, wqe).fault,
        Mlx5Fault::none);
    ASSERT_EQ(wqe.opcode, kChangeKey);
    EXPECT_EQ(wqe.num_sge, 0);
    EXPECT_EQ(wqe.change.key, kKey);
    EXPECT_EQ(wqe.change.tag, 0x42);
    EXPECT_EQ(wqe.change.qpn, 0xff'ffffU);
    EXPECT_EQ(wqe.change.start, 0x1234U);
    EXPECT_EQ(wqe.change.length, 77U);
    EXPECT_EQ(wqe.change.entries, 4);
    EXPECT_EQ(wqe.change.first, 0);
    EXPECT_FALSE(wqe.change.free);
    EXPECT_FALSE(wqe.change.signs);
    std::vector<std::byte> read;
    for (std::uint32_t i = 0; i < wqe.change.pieces; ++i) {
      ASSERT_EQ(wqe.list[i].lkey, kMlx5InlineKey);
      const auto* const from = reinterpret_cast<const std::byte*>(wqe.list[i].addr);
      read.insert(read.end(), from, from + wqe.list[i].length);
    }
    ASSERT_EQ(read.size(), 64U);
    EXPECT_EQ(std::memcmp(read.data(), request.bytes().data() + 128, 64), 0);
  }
  // In memory, from the ninth entry on.
  const SendRing ring(4);
  SendWqe wqe{};
  control.flags = MLX5_WQE_UMR_CTRL_FLAG_TRNSLATION_OFFSET;
  control.translation_offset = htobe16(9);
  const auto put = [&](std::uint32_t key) {
    ring.put(0, Request(MLX5_OPCODE_UMR, htobe32(kKey))
                    .add(control)
                    .add(context)
                    .pointer(0x7000, 0, key)
                    .bytes());
    return parse_send(ring.ring(), 0, 4, QpKind::rc, kUser, wqe).fault;
  };
  ASSERT_EQ(put(0x99), Mlx5Fault::none);
  EXPECT_EQ(wqe.change.first, 9);
  ASSERT_EQ(wqe.change.pieces, 1);
  EXPECT_EQ(wqe.list[0].addr, 0x7000U);
  EXPECT_EQ(wqe.list[0].length, 64U);
  EXPECT_EQ(wqe.list[0].lkey, 0x99U);
  // A key that would stand for any bytes of the program's.
  EXPECT_EQ(put(kMlx5InlineKey), Mlx5Fault::length);
  // No list, and none where one should be.
  control.klm_octowords = 0;
  ring.put(0, Request(MLX5_OPCODE_UMR, htobe32(kKey)).add(control).add(context).bytes());
  EXPECT_EQ(parse_send(ring.ring(), 0, 4, QpKind::rc, kUser, wqe).fault, Mlx5Fault::none);
  EXPECT_EQ(wqe.change.pieces, 0);
  control.klm_octowords = htobe16(1);
  ring.put(0, Request(MLX5_OPCODE_UMR, htobe32(kKey)).add(control).add(context).bytes());
  EXPECT_EQ(parse_send(ring.ring(), 0, 4, QpKind::rc, kUser, wqe).fault, Mlx5Fault::length);
}

TEST(Mlx5Format, ReadsAddressesOfBothLengths) {
  mlx5_wqe_av vector{};
  vector.key.qkey.qkey = htobe32(0x1111);
  vector.dqp_dct = htobe32(0x42U | unsigned{MLX5_EXTENDED_UD_AV});
  vector.rlid = htobe16(3);
  vector.grh_gid_fl = htobe32(1U << 30 | 2U << 20 | 0x12345);
  vector.rgid[15] = 0x99;
  const SendRing ring(4);
  ring.put(0, Request(MLX5_OPCODE_SEND).add(vector).pointer(0x1000, 5, 1).bytes());
  SendWqe wqe{};
  Mlx5Request found = parse_send(ring.ring(), 0, 4, QpKind::ud, kUser, wqe);
  ASSERT_EQ(found.fault, Mlx5Fault::none);
  EXPECT_TRUE(found.addressed);
  EXPECT_EQ(wqe.dest_qpn, 0x42U);
  EXPECT_EQ(wqe.qkey, 0x1111U);
  EXPECT_EQ(found.address.dlid, 3);
  EXPECT_EQ(found.address.is_global, 1);
  EXPECT_EQ(found.address.grh.sgid_index, 2);
  EXPECT_EQ(found.address.grh.flow_label, 0x12345U);
  EXPECT_EQ(found.address.grh.dgid.raw[15], 0x99);
  ASSERT_EQ(wqe.num_sge, 1);

  struct {
    std::byte bytes[16];
  } part;
  vector.dqp_dct = htobe32(0x43U);
  vector.key.dc_key = htobe64(0x2222);
  std::memcpy(&part, &vector, sizeof part);
  ring.put(0, Request(MLX5_OPCODE_SEND).add(part).pointer(0x1000, 5, 1).bytes());
  found = parse_send(ring.ring(), 0, 4, QpKind::dci, kUser, wqe);
  ASSERT_EQ(found.fault, Mlx5Fault::none);
  EXPECT_EQ(wqe.dest_qpn, 0x43U);
  EXPECT_EQ(wqe.dc_key, 0x2222U);
  EXPECT_EQ(found.address.is_global, 0);
  ASSERT_EQ(wqe.num_sge, 1);
}

TEST(Mlx5Format, RefusesRequestsThatAreNone) {
  const SendRing ring(4);
  SendWqe wqe{};
  const auto fault = [&](const std::vector<std::byte>& bytes, std::uint32_t available) {
    ring.put(0, bytes);
    const Mlx5Request found = parse_send(ring.ring(), 0, available, QpKind::rc, kUser, wqe);
    EXPECT_EQ(wqe.num_sge, 0);
    return found.fault;
  };
  EXPECT_EQ(fault(Request(0x3f).bytes(), 4), Mlx5Fault::opcode);
  EXPECT_EQ(fault(Request(MLX5_OPCODE_RDMA_READ).bytes(), 4), Mlx5Fault::length);
  std::vector<std::byte> none = Request(MLX5_OPCODE_SEND).bytes();
  std::memset(none.data() + offsetof(mlx5_wqe_ctrl_seg, qpn_ds), 0, 4);
  EXPECT_EQ(fault(none, 4), Mlx5Fault::length);
  // Longer than what was posted.
  Request request(MLX5_OPCODE_SEND);
  for (int i = 0; i < 4; ++i) request.pointer(0x1000, 1, 1);
  EXPECT_EQ(fault(request.bytes(), 1), Mlx5Fault::length);
  // Inline bytes to beyond the request's end.
  std::vector<std::byte> beyond = Request(MLX5_OPCODE_SEND).inlined("text").bytes();
  const std::uint32_t word = htobe32(1000U | unsigned{MLX5_INLINE_SEG});
  std::memcpy(beyond.data() + sizeof(mlx5_wqe_ctrl_seg), &word, sizeof word);
  EXPECT_EQ(fault(beyond, 4), Mlx5Fault::length);
}

// Whatever lies in the ring: nothing outside of it is read, and pieces of the ring lie in it.
TEST(Mlx5Format, ReadsNothingOutsideOfTheRing) {
  SplitMix64 random(7);
  constexpr QpKind kKinds[] = {QpKind::rc, QpKind::uc, QpKind::ud, QpKind::dci, QpKind::xrc_ini};
  constexpr std::uint8_t kOpcodes[] = {MLX5_OPCODE_NOP,        MLX5_OPCODE_SEND,
                                       MLX5_OPCODE_RDMA_WRITE, MLX5_OPCODE_RDMA_READ,
                                       MLX5_OPCODE_UMR,        MLX5_OPCODE_ATOMIC_CS};
  for (const std::uint32_t blocks : {1U, 2U, 16U, 64U}) {
    const SendRing ring(blocks);
    const Mlx5Ring memory = ring.ring();
    std::vector<std::byte> bytes(std::size_t{blocks} * kMlx5BlockBytes);
    for (int round = 0; round < 3000; ++round) {
      for (std::byte& byte : bytes) {
        const std::uint64_t r = random.next();
        byte = static_cast<std::byte>(r % 3 == 0 ? 0x80 : r % 3 == 1 ? 0 : r >> 8);
      }
      const auto position = static_cast<std::uint16_t>(random.next());
      const std::size_t first = std::size_t{position & (blocks - 1)} * kMlx5BlockBytes;
      mlx5_wqe_ctrl_seg control{};
      control.opmod_idx_opcode = htobe32(std::uint32_t{kOpcodes[random.next() % 6]});
      control.qpn_ds = htobe32(static_cast<std::uint32_t>(random.next()) & 0x3f);
      std::memcpy(bytes.data() + first, &control, sizeof control);
      ring.put(0, bytes);
      const auto available = static_cast<std::uint32_t>(1 + random.next() % (2 * blocks));
      SendWqe wqe{};
      const Mlx5Request found =
          parse_send(memory, position, available, kKinds[random.next() % 5], kUser, wqe);
      ASSERT_GE(found.blocks, 1U);
      ASSERT_LE(found.blocks, available);
      ASSERT_LE(wqe.num_sge, kMaxSge);
      if (wqe.is_inline) {
        ASSERT_LE(wqe.length, kMaxInline);
        continue;
      }
      const bool changes = wqe.opcode == kChangeKey;
      ASSERT_TRUE(!changes || wqe.change.pieces <= 2);
      const std::span<const ibv_sge> pieces =
          changes ? std::span<const ibv_sge>(wqe.list, wqe.change.pieces)
                  : std::span<const ibv_sge>(wqe.sge, wqe.num_sge);
      for (const ibv_sge& piece : pieces) {
        if (piece.lkey != kMlx5InlineKey) continue;
        const auto* const at = reinterpret_cast<const std::byte*>(piece.addr);
        ASSERT_GE(at, memory.start);
        ASSERT_LE(at + piece.length, memory.start + bytes.size());
      }
    }
  }
}

}  // namespace
}  // namespace turnout::hca
