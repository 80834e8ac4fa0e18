// SPDX-License-Identifier: BSD-3-Clause
// The emulated mlx5's memory keys of several regions: made by the firmware's commands, changed by
// work requests, used at both ends of every operation; and all that such a key refuses.
#include <array>
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "hca/device/key_list.h"
#include "hca/device/limits.h"
#include "hca/live/fabric.h"
#include "tests/hca/mlx5_devx.h"

namespace turnout::hca::test {
namespace {

namespace mkey = prm::mkey;
using prm::Answer;
using prm::Opcode;

constexpr std::uint32_t kAll = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ |
                               IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;

class Mlx5Keys : public ::testing::Test {
 protected:
  void SetUp() override { use_own_fabric(); }
  void TearDown() override { EXPECT_FALSE(fabric_exists()); }
};

KeyEntry repeat(std::uint32_t passes, std::uint32_t parts, std::uint32_t bytes) {
  return {std::uint64_t{passes} << 32 | parts, bytes, kRepeatKey};
}
KeyEntry stripe(std::uint64_t address, std::uint32_t bytes, std::uint32_t stride,
                std::uint32_t key) {
  return {address, stride << 16 | bytes, key};
}
mlx5_wqe_umr_klm_seg on_wire(const KeyEntry& e) {
  mlx5_wqe_umr_klm_seg out;
  out.byte_count = htobe32(e.length);
  out.mkey = htobe32(e.key);
  out.address = htobe64(e.address);
  return out;
}

// A work request that changes a key, as libmlx5 makes it for mlx5dv_wr_mkey_configure(3).
struct Change {
  explicit Change(std::uint32_t key) : key(key) {
    control.flags = MLX5_WQE_UMR_CTRL_FLAG_INLINE;
    mask = MLX5_WQE_UMR_CTRL_MKEY_MASK_FREE;
    context.qpn_mkey = htobe32(0xffff'ff00 | (key & 0xff));
  }
  Change& rights(std::uint32_t access) {
    mask |= MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_LOCAL_WRITE |
            MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_REMOTE_READ |
            MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_REMOTE_WRITE |
            MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_ATOMIC;
    const auto allow = [&](std::uint32_t right, int flag) {
      if ((access & right) != 0) context.access_flags |= static_cast<std::uint8_t>(flag);
    };
    allow(IBV_ACCESS_LOCAL_WRITE, MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_LOCAL_WRITE);
    allow(IBV_ACCESS_REMOTE_READ, MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_REMOTE_READ);
    allow(IBV_ACCESS_REMOTE_WRITE, MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_REMOTE_WRITE);
    allow(IBV_ACCESS_REMOTE_ATOMIC, MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_ATOMIC);
    return *this;
  }
  Change& list(const std::vector<KeyEntry>& to, std::uint64_t length) {
    entries = to;
    while (entries.size() % 4 != 0) entries.push_back({});  // as libmlx5 does
    mask |= MLX5_WQE_UMR_CTRL_MKEY_MASK_LEN;
    context.len = htobe64(length);
    return *this;
  }
  // The list lies there, with this key.
  Change& at(std::uint64_t address, std::uint32_t lkey) {
    control.flags &= static_cast<std::uint8_t>(~MLX5_WQE_UMR_CTRL_FLAG_INLINE);
    pointer.mkey = htobe32(lkey);
    pointer.address = htobe64(address);
    return *this;
  }
  [[nodiscard]] Mlx5Wqe wqe() const {
    mlx5_wqe_umr_ctrl_seg segment = control;
    segment.mkey_mask = htobe64(mask);
    segment.klm_octowords = htobe16(static_cast<std::uint16_t>(entries.size()));
    Mlx5Wqe out(MLX5_OPCODE_UMR, htobe32(key));
    out.add(segment).add(context);
    if ((control.flags & MLX5_WQE_UMR_CTRL_FLAG_INLINE) == 0) return out.add(pointer);
    for (const KeyEntry& e : entries) out.add(on_wire(e));
    return out;
  }

  std::uint32_t key;
  mlx5_wqe_umr_ctrl_seg control{};
  mlx5_wqe_mkey_context_seg context{};
  mlx5_wqe_umr_klm_seg pointer{};
  std::uint64_t mask = 0;
  std::vector<KeyEntry> entries;
};

// As libmlx5 makes it for IBV_WR_LOCAL_INV.
Mlx5Wqe invalidation(std::uint32_t key) {
  mlx5_wqe_umr_ctrl_seg control{};
  control.flags = MLX5_WQE_UMR_CTRL_FLAG_INLINE | MLX5_WQE_UMR_CTRL_FLAG_CHECK_QPN;
  control.mkey_mask = htobe64(MLX5_WQE_UMR_CTRL_MKEY_MASK_FREE);
  mlx5_wqe_mkey_context_seg context{};
  context.free = MLX5_WQE_MKEY_CONTEXT_FREE;
  return Mlx5Wqe(MLX5_OPCODE_UMR, htobe32(key)).add(control).add(context);
}

// CREATE_MKEY as mlx5dv_create_mkey(3) has it.
Box list_command(std::uint32_t pdn, std::uint32_t slots) {
  Box box = command(Opcode::create_mkey, mkey::kBytes);
  const prm::Out context = prm::behind(prm::Out(box), mkey::kContext);
  prm::set(context, mkey::kFree, 1);
  prm::set(context, mkey::kUmrEnabled, 1);
  prm::set(context, mkey::kLocalRead, 1);
  prm::set(context, mkey::kAccessMode, mkey::kList);
  prm::set(context, mkey::kQpn, mkey::kAnyQp);
  prm::set(context, mkey::kPd, pdn);
  prm::set(context, mkey::kTranslations, slots);
  return box;
}
// One that is valid from the beginning.
Box ready_command(std::uint32_t pdn, const std::vector<KeyEntry>& entries, std::uint64_t length,
                  std::uint32_t log_entry = 0) {
  Box box = list_command(pdn, static_cast<std::uint32_t>(entries.size()));
  const prm::Out context = prm::behind(prm::Out(box), mkey::kContext);
  prm::set(context, mkey::kFree, 0);
  for (const prm::Field f :
       {mkey::kAtomic, mkey::kRemoteWrite, mkey::kRemoteRead, mkey::kLocalWrite}) {
    prm::set(context, f, 1);
  }
  prm::set64(context, mkey::kLength, length);
  if (log_entry != 0) {
    prm::set(context, mkey::kAccessMode, mkey::kFixedList);
    prm::set(context, mkey::kLogEntry, log_entry);
  }
  prm::set(box, mkey::kEntries, static_cast<std::uint32_t>(entries.size()));
  for (const KeyEntry& e : entries) {
    const mlx5_wqe_umr_klm_seg raw = on_wire(e);
    const auto* const from = reinterpret_cast<const std::byte*>(&raw);
    box.insert(box.end(), from, from + sizeof raw);
  }
  return box;
}

// Two queue pairs of one context that are connected to each other, and keys.
struct Pair {
  explicit Pair(bool devx = true)
      : d(devx),
        l(d.library),
        sent(l, 16, 64, -1, false),
        received(l, 16, 64, -1, false),
        a(l, options()),
        b(l, options()) {
    a.connect(b.number);
    b.connect(a.number);
  }
  Mlx5QpOptions options() {
    Mlx5QpOptions out;
    out.send_cq = &sent;
    out.receive_cq = &received;
    out.sends = 64;
    return out;
  }
  std::uint32_t create(std::uint32_t slots, bool remote_end = false) {
    Box box = list_command(d.pdn, slots);
    prm::set(prm::behind(prm::Out(box), mkey::kContext), mkey::kRemoteEnd, remote_end ? 1 : 0);
    return create(box);
  }
  std::uint32_t create(const Box& box) {
    const Result r = d.create(box);
    EXPECT_EQ(r.error, 0);
    handle = r.handle;
    return r.number() << 8 | prm::get(prm::behind(prm::In(box), mkey::kContext), mkey::kLowByte);
  }
  // The syndrome of a's request; 0: it was done.
  std::uint8_t run(const Mlx5Wqe& wqe) { return run(a, wqe); }
  std::uint8_t run(Mlx5QueuePair& qp, const Mlx5Wqe& wqe) {
    qp.post(wqe);
    const mlx5_cqe64 e = sent.wait();
    return opcode_of(e) == MLX5_CQE_REQ_ERR ? syndrome_of(e) : 0;
  }
  // A key with all rights.
  std::uint32_t make(const std::vector<KeyEntry>& entries, std::uint64_t length,
                     std::uint32_t access = kAll) {
    const std::uint32_t key = create(static_cast<std::uint32_t>(entries.size() + 3));
    EXPECT_EQ(run(b, Change(key).rights(access).list(entries, length).wqe()), 0);
    return key;
  }
  [[nodiscard]] std::uint64_t at(std::size_t offset) const { return l.memory.address(offset); }
  [[nodiscard]] KeyEntry piece(std::size_t offset, std::uint32_t length) const {
    return {at(offset), length, l.mr.lkey};
  }
  Mlx5Wqe rdma(std::uint8_t opcode, std::uint32_t key, std::uint64_t from, std::size_t here,
               std::uint32_t length) {
    return Mlx5Wqe(opcode).remote(from, key).data(at(here), length, l.mr.lkey);
  }

  Devx d;
  Mlx5Library& l;
  Mlx5CompletionQueue sent, received;
  Mlx5QueuePair a, b;
  std::uint32_t handle = 0;  // of the latest key
};
constexpr std::size_t kThere = 32768;

TEST_F(Mlx5Keys, AListIsWrittenAndReadByAPeer) {
  Pair p;
  const std::uint32_t key =
      p.make({p.piece(kThere, 3), p.piece(kThere + 100, 2), p.piece(kThere + 50, 4)}, 9);
  p.l.memory.put(0, "abcdefghi");
  EXPECT_EQ(p.run(p.rdma(MLX5_OPCODE_RDMA_WRITE, key, 0, 0, 9)), 0);
  EXPECT_EQ(p.l.memory.text(kThere, 4), std::string_view("abc\0", 4));
  EXPECT_EQ(p.l.memory.text(kThere + 100, 3), std::string_view("de\0", 3));
  EXPECT_EQ(p.l.memory.text(kThere + 50, 5), std::string_view("fghi\0", 5));
  EXPECT_EQ(p.run(p.rdma(MLX5_OPCODE_RDMA_READ, key, 2, 200, 5)), 0);
  EXPECT_EQ(p.l.memory.text(200, 6), std::string_view("cdefg\0", 6));
}

TEST_F(Mlx5Keys, ABlockThatRepeatsAtBothEnds) {
  Pair p;
  // Columns: of 8 bytes each 10, and behind each 4 of another place.
  const std::uint32_t from = p.make({repeat(3, 2, 12), stripe(p.at(0), 8, 10, p.l.mr.lkey),
                                     stripe(p.at(1000), 4, 4, p.l.mr.lkey)},
                                    36);
  const std::uint32_t to = p.make({repeat(9, 1, 4), stripe(p.at(kThere), 4, 16, p.l.mr.lkey)}, 36);
  p.l.memory.put(0, "00000000--11111111--22222222");
  p.l.memory.put(1000, "aaaabbbbcccc");
  p.b.receive(0, 36, to);
  p.a.post(Mlx5Wqe(MLX5_OPCODE_SEND).data(0, 36, from));
  EXPECT_EQ(opcode_of(p.sent.wait()), MLX5_CQE_REQ);
  EXPECT_EQ(be32toh(p.received.wait().byte_cnt), 36U);
  std::string all;
  for (std::size_t i = 0; i < 9; ++i) all += p.l.memory.text(kThere + i * 16, 4);
  EXPECT_EQ(all, "00000000aaaa11111111bbbb22222222cccc");
  EXPECT_EQ(p.l.memory.text(kThere + 4, 4), std::string_view("\0\0\0\0", 4));
}

TEST_F(Mlx5Keys, WhatComesBackIsSpread) {
  Pair p;
  const std::uint32_t to = p.make({repeat(4, 1, 2), stripe(p.at(0), 2, 3, p.l.mr.lkey)}, 8);
  p.l.memory.put(kThere, "ABCDEFGHIJ");
  p.l.memory.put(0, "............");
  // Beside an ordinary piece.
  EXPECT_EQ(p.run(Mlx5Wqe(MLX5_OPCODE_RDMA_READ)
                      .remote(p.at(kThere), p.l.mr.rkey)
                      .data(0, 8, to)
                      .data(p.at(100), 2, p.l.mr.lkey)),
            0);
  EXPECT_EQ(p.l.memory.text(0, 12), "AB.CD.EF.GH.");
  EXPECT_EQ(p.l.memory.text(100, 2), "IJ");
}

TEST_F(Mlx5Keys, AListInMemory) {
  Pair p;
  constexpr std::uint32_t kCount = 200;
  std::vector<KeyEntry> entries;
  for (std::uint32_t i = 0; i < kCount; ++i) {
    entries.push_back(p.piece(kThere + std::size_t{i} * 8, 1));
    const mlx5_wqe_umr_klm_seg raw = on_wire(entries.back());
    std::memcpy(p.l.memory.at(4096 + i * sizeof raw), &raw, sizeof raw);
  }
  const std::uint32_t key = p.create(kCount);
  EXPECT_EQ(p.run(Change(key).rights(kAll).list(entries, kCount).at(p.at(4096), p.l.mr.lkey).wqe()),
            0);
  std::string text(kCount, ' ');
  for (std::uint32_t i = 0; i < kCount; ++i) text[i] = static_cast<char>('A' + i % 26);
  p.l.memory.put(0, text);
  EXPECT_EQ(p.run(p.rdma(MLX5_OPCODE_RDMA_WRITE, key, 0, 0, kCount)), 0);
  for (std::uint32_t i = 0; i < kCount; ++i) {
    ASSERT_EQ(p.l.memory.text(kThere + std::size_t{i} * 8, 1)[0], text[i]);
  }
  // Another key, another place: it is no list of ours.
  EXPECT_EQ(p.run(Change(key).list(entries, kCount).at(p.at(4096), p.l.mr.lkey + 256).wqe()),
            MLX5_CQE_SYNDROME_LOCAL_PROT_ERR);
}

TEST_F(Mlx5Keys, ImmediateDataBehindAList) {
  Pair p;
  const std::uint32_t key = p.make({p.piece(kThere, 4), p.piece(kThere + 64, 4)}, 8);
  p.b.receive(p.at(kThere + 256), 64, p.l.mr.lkey);
  p.l.memory.put(0, "immediat");
  EXPECT_EQ(p.run(Mlx5Wqe(MLX5_OPCODE_RDMA_WRITE_IMM, htobe32(7))
                      .remote(0, key)
                      .data(p.at(0), 8, p.l.mr.lkey)),
            0);
  const mlx5_cqe64 e = p.received.wait();
  EXPECT_EQ(opcode_of(e), MLX5_CQE_RESP_WR_IMM);
  EXPECT_EQ(be32toh(e.byte_cnt), 8U);
  EXPECT_EQ(p.l.memory.text(kThere + 64, 4), "diat");
}

TEST_F(Mlx5Keys, AtomicsOnAWordOfAList) {
  Pair p;
  const std::uint32_t key = p.make({p.piece(kThere, 8), p.piece(kThere + 64, 12)}, 20);
  const std::uint64_t before = 40;
  std::memcpy(p.l.memory.at(kThere + 64), &before, sizeof before);
  const auto add = [&](std::uint64_t at, std::uint32_t rkey) {
    return p.run(
        Mlx5Wqe(MLX5_OPCODE_ATOMIC_FA).remote(at, rkey).atomic(2).data(p.at(0), 8, p.l.mr.lkey));
  };
  EXPECT_EQ(add(8, key), 0);
  std::uint64_t word = 0;
  std::memcpy(&word, p.l.memory.at(kThere + 64), sizeof word);
  EXPECT_EQ(word, 42U);
  std::memcpy(&word, p.l.memory.at(0), sizeof word);
  EXPECT_EQ(word, 40U);
  // Through a key at the initiator's end, too.
  const std::uint32_t here = p.make({p.piece(16, 4), p.piece(32, 4)}, 8);
  EXPECT_EQ(p.run(Mlx5Wqe(MLX5_OPCODE_ATOMIC_FA).remote(8, key).atomic(1).data(0, 8, here)), 0);
  EXPECT_EQ(p.l.memory.text(16, 1)[0], 42);
  EXPECT_EQ(p.l.memory.text(32, 4), std::string_view("\0\0\0\0", 4));
  // A word of two pieces is none.
  Pair q;
  const std::uint32_t two = q.make({q.piece(kThere, 4), q.piece(kThere + 64, 4)}, 8);
  EXPECT_EQ(
      q.run(Mlx5Wqe(MLX5_OPCODE_ATOMIC_FA).remote(0, two).atomic(2).data(q.at(0), 8, q.l.mr.lkey)),
      MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR);
}

TEST_F(Mlx5Keys, RightsAreTheKeysOwn) {
  constexpr struct {
    std::uint8_t opcode;
    std::uint32_t lacks;
  } kCases[] = {{MLX5_OPCODE_RDMA_WRITE, IBV_ACCESS_REMOTE_WRITE},
                {MLX5_OPCODE_RDMA_READ, IBV_ACCESS_REMOTE_READ}};
  for (const auto& c : kCases) {
    Pair p;
    const Mlx5Mr local = p.l.register_memory(p.at(0), 1U << 16, IBV_ACCESS_LOCAL_WRITE);
    const std::vector<KeyEntry> entries{{p.at(kThere), 8, local.lkey}};
    const std::uint32_t key = p.make(entries, 8);
    // Of the region behind it no remote right is asked.
    EXPECT_EQ(p.run(p.rdma(c.opcode, key, 0, 0, 8)), 0);
    const std::uint32_t lacking = p.make(entries, 8, kAll & ~c.lacks);
    EXPECT_EQ(p.run(p.rdma(c.opcode, lacking, 0, 0, 8)), MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR);
  }
  // Of a region that cannot be written not even the key's right to helps.
  Pair p;
  const Mlx5Mr still = p.l.register_memory(p.at(0), 1U << 16, IBV_ACCESS_REMOTE_READ);
  const std::uint32_t key = p.make({{p.at(kThere), 8, still.lkey}}, 8);
  EXPECT_EQ(p.run(p.rdma(MLX5_OPCODE_RDMA_READ, key, 0, 0, 8)), 0);
  EXPECT_EQ(p.run(p.rdma(MLX5_OPCODE_RDMA_WRITE, key, 0, 0, 8)),
            MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR);
}

TEST_F(Mlx5Keys, LocalUseNeedsLocalRights) {
  Pair p;
  const std::uint32_t key = p.make({p.piece(kThere, 8)}, 8, 0);
  EXPECT_EQ(
      p.run(Mlx5Wqe(MLX5_OPCODE_RDMA_WRITE).remote(p.at(kThere + 64), p.l.mr.rkey).data(0, 8, key)),
      0)
      << "what is read needs none";
  EXPECT_EQ(p.run(Mlx5Wqe(MLX5_OPCODE_RDMA_READ).remote(p.at(0), p.l.mr.rkey).data(0, 8, key)),
            MLX5_CQE_SYNDROME_LOCAL_PROT_ERR);
  Pair q;
  const std::uint32_t into = q.make({q.piece(kThere, 8)}, 8, 0);
  q.b.receive(0, 8, into);
  EXPECT_EQ(q.run(Mlx5Wqe(MLX5_OPCODE_SEND).inline_data("12345678")),
            MLX5_CQE_SYNDROME_REMOTE_OP_ERR);
  EXPECT_EQ(syndrome_of(q.received.wait()), MLX5_CQE_SYNDROME_LOCAL_PROT_ERR);
}

// What is wrong with a key, as a peer that writes through it is told, and its own program.
struct Bad {
  const char* what;
  std::uint32_t (*make)(Pair&);
  std::uint64_t at = 0;
};
const Bad kBad[] = {
    {"free", [](Pair& p) { return p.create(4); }},
    {"ended",
     [](Pair& p) {
       const std::uint32_t key = p.make({p.piece(kThere, 64)}, 64);
       EXPECT_EQ(p.run(p.b, invalidation(key)), 0);
       return key;
     }},
    {"destroyed",
     [](Pair& p) {
       const std::uint32_t key = p.make({p.piece(kThere, 64)}, 64);
       EXPECT_EQ(p.d.destroy(p.handle), 0);
       return key;
     }},
    {"another low byte", [](Pair& p) { return p.make({p.piece(kThere, 64)}, 64) + 1; }},
    {"behind its end", [](Pair& p) { return p.make({p.piece(kThere, 64)}, 64); }, 60},
    {"longer than its list", [](Pair& p) { return p.make({p.piece(kThere, 7)}, 64); }},
    {"without a list",
     [](Pair& p) {
       const std::uint32_t key = p.create(4);
       EXPECT_EQ(p.run(p.b, Change(key).rights(kAll).list({}, 64).wqe()), 0);
       return key;
     }},
    {"outside of its region",
     [](Pair& p) {
       return p.make({{p.at(0) + (1U << 16) - 4, 64, p.l.mr.lkey}}, 64);
     }},
    {"of no region",
     [](Pair& p) {
       return p.make({{p.at(kThere), 64, p.l.mr.lkey + 1}}, 64);
     }},
    {"of a region that has gone",
     [](Pair& p) {
       const Mlx5Mr mr = p.l.register_memory(p.at(kThere), 64);
       const std::uint32_t key = p.make({{p.at(kThere), 64, mr.lkey}}, 64);
       ib_uverbs_dereg_mr request{};
       request.mr_handle = mr.handle;
       EXPECT_EQ(p.l.call(IB_USER_VERBS_CMD_DEREG_MR, request), 0);
       return key;
     }},
    {"of another domain",
     [](Pair& p) {
       ib_uverbs_alloc_pd_resp pd{};
       EXPECT_EQ(p.l.call(IB_USER_VERBS_CMD_ALLOC_PD, ib_uverbs_alloc_pd{}, &pd), 0);
       const std::uint32_t own = std::exchange(p.l.pd, pd.pd_handle);
       const Mlx5Mr mr = p.l.register_memory(p.at(kThere), 64);
       p.l.pd = own;
       return p.make({{p.at(kThere), 64, mr.lkey}}, 64);
     }},
    {"of itself",
     [](Pair& p) {
       const std::uint32_t key = p.create(4);
       EXPECT_EQ(p.run(p.b, Change(key).rights(kAll).list({{0, 64, key}}, 64).wqe()), 0);
       return key;
     }},
};

TEST_F(Mlx5Keys, KeysThatCannotBeUsed) {
  for (const Bad& bad : kBad) {
    SCOPED_TRACE(bad.what);
    {
      Pair p;
      EXPECT_EQ(p.run(p.rdma(MLX5_OPCODE_RDMA_WRITE, bad.make(p), bad.at, 0, 8)),
                MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR);
      EXPECT_EQ(p.b.state(), IBV_QPS_ERR);
    }
    for (const auto opcode : {MLX5_OPCODE_RDMA_WRITE, MLX5_OPCODE_RDMA_READ}) {
      Pair p;
      const std::uint32_t key = bad.make(p);
      EXPECT_EQ(p.run(Mlx5Wqe(opcode).remote(p.at(0), p.l.mr.rkey).data(bad.at, 8, key)),
                MLX5_CQE_SYNDROME_LOCAL_PROT_ERR);
    }
    Pair p;
    p.b.receive(bad.at, 8, bad.make(p));
    EXPECT_EQ(p.run(Mlx5Wqe(MLX5_OPCODE_SEND).inline_data("12345678")),
              MLX5_CQE_SYNDROME_REMOTE_OP_ERR);
    EXPECT_EQ(syndrome_of(p.received.wait()), MLX5_CQE_SYNDROME_LOCAL_PROT_ERR);
  }
}

TEST_F(Mlx5Keys, AKeyIsChangedAndEnded) {
  Pair p;
  const std::uint32_t key = p.make({p.piece(kThere, 8)}, 8);
  EXPECT_EQ(p.run(p.rdma(MLX5_OPCODE_RDMA_READ, key, 0, 0, 8)), 0);
  // Its layout alone, while it is valid; the rights stay.
  EXPECT_EQ(p.run(Change(key).list({p.piece(kThere + 512, 16)}, 16).wqe()), 0);
  p.l.memory.put(kThere + 512, "another layout..");
  EXPECT_EQ(p.run(p.rdma(MLX5_OPCODE_RDMA_READ, key, 0, 0, 16)), 0);
  EXPECT_EQ(p.l.memory.text(0, 16), "another layout..");
  // Its rights alone; the layout stays.
  EXPECT_EQ(p.run(Change(key).rights(IBV_ACCESS_REMOTE_READ).wqe()), 0);
  EXPECT_EQ(p.run(p.rdma(MLX5_OPCODE_RDMA_READ, key, 8, 0, 8)), 0);
  EXPECT_EQ(p.l.memory.text(0, 8), "layout..");
  // Nothing at all.
  EXPECT_EQ(p.run(Change(key).wqe()), 0);
  EXPECT_EQ(p.run(invalidation(key)), 0);
  EXPECT_EQ(p.run(invalidation(key)), 0) << "a free one stays free";
  // It comes back with what it had.
  EXPECT_EQ(p.run(Change(key).wqe()), 0);
  EXPECT_EQ(p.run(p.rdma(MLX5_OPCODE_RDMA_READ, key, 0, 0, 8)), 0);
  // Where its addresses begin, and its low byte.
  Change other(key);
  other.mask |= MLX5_WQE_UMR_CTRL_MKEY_MASK_START_ADDR | MLX5_WQE_UMR_CTRL_MKEY_MASK_MKEY;
  other.context.start_addr = htobe64(0x1000'0000);
  other.context.qpn_mkey = htobe32(0xffff'ff00 | 0x42);
  EXPECT_EQ(p.run(other.wqe()), 0);
  const std::uint32_t now = (key & ~0xffU) | 0x42;
  EXPECT_EQ(p.run(p.rdma(MLX5_OPCODE_RDMA_READ, now, 0x1000'0008, 0, 8)), 0);
  EXPECT_EQ(p.l.memory.text(0, 8), "layout..");
  EXPECT_EQ(p.run(p.rdma(MLX5_OPCODE_RDMA_READ, key, 0x1000'0008, 0, 8)),
            MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR);
}

TEST_F(Mlx5Keys, APartOfAListIsChanged) {
  Pair p;
  const std::uint32_t key =
      p.make({p.piece(kThere, 4), p.piece(kThere + 8, 4), p.piece(kThere + 16, 4), {}}, 12);
  Change change(key);
  change.control.flags |= MLX5_WQE_UMR_CTRL_FLAG_TRNSLATION_OFFSET;
  change.control.translation_offset = htobe16(1);
  change.entries = {p.piece(kThere + 100, 4)};
  EXPECT_EQ(p.run(change.wqe()), 0);
  p.l.memory.put(0, "aaaabbbbcccc");
  EXPECT_EQ(p.run(p.rdma(MLX5_OPCODE_RDMA_WRITE, key, 0, 0, 12)), 0);
  EXPECT_EQ(p.l.memory.text(kThere + 8, 4), std::string_view("\0\0\0\0", 4));
  EXPECT_EQ(p.l.memory.text(kThere + 100, 4), "bbbb");
  EXPECT_EQ(p.l.memory.text(kThere + 16, 4), "cccc");
}

// Changes that the device refuses.
TEST_F(Mlx5Keys, ChangesThatCannotBe) {
  const struct {
    const char* what;
    void (*spoil)(Pair&, Change&);
  } cases[] = {
      {"more entries than it has",
       [](Pair& p, Change& c) { c.list(std::vector<KeyEntry>(8, p.piece(kThere, 1)), 8); }},
      {"entries behind its end",
       [](Pair&, Change& c) {
         c.control.flags |= MLX5_WQE_UMR_CTRL_FLAG_TRNSLATION_OFFSET;
         c.control.translation_offset = htobe16(4);
       }},
      {"a block without its parts", [](Pair&, Change& c) { c.entries[0] = repeat(2, 9, 8); }},
      {"a mask that is not known", [](Pair&, Change& c) { c.mask |= 1U << 1; }},
      {"signatures", [](Pair&, Change& c) { c.context.flags_pd = htobe32(1U << 30); }},
      {"a list of signatures", [](Pair&, Change& c) { c.control.bsf_octowords = htobe16(4); }},
      {"one queue pair's",
       [](Pair&, Change& c) {
         c.mask |= MLX5_WQE_UMR_CTRL_MKEY_MASK_QPN;
         c.context.qpn_mkey = htobe32(0x1234'00);
       }},
      {"free, it is said",
       [](Pair&, Change& c) { c.control.flags |= MLX5_WQE_UMR_CTRL_FLAG_CHECK_FREE; }},
      {"another low byte", [](Pair&, Change& c) { c.key += 1; }},
      {"a region's key", [](Pair& p, Change& c) { c.key = p.l.mr.lkey; }},
      {"no key", [](Pair&, Change& c) { c.key = 0xffff'ff00; }},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.what);
    Pair p;
    const std::uint32_t key = p.make({p.piece(kThere, 8)}, 8);
    Change change(key);
    change.list({p.piece(kThere + 64, 8)}, 8);
    c.spoil(p, change);
    EXPECT_EQ(p.run(change.wqe()), MLX5_CQE_SYNDROME_MW_BIND_ERR);
    EXPECT_EQ(p.a.state(), IBV_QPS_ERR);
  }
  // The list is shorter than it says.
  Pair short_one;
  Mlx5Wqe wqe = Change(short_one.create(4)).list({short_one.piece(kThere, 8)}, 8).wqe();
  wqe.bytes.resize(wqe.bytes.size() - 16);
  EXPECT_EQ(short_one.run(wqe), MLX5_CQE_SYNDROME_LOCAL_PROT_ERR);
  // A key that no request may change.
  Pair p;
  Box fixed = ready_command(p.d.pdn, {p.piece(kThere, 8)}, 8);
  prm::set(prm::behind(prm::Out(fixed), mkey::kContext), mkey::kUmrEnabled, 0);
  const std::uint32_t key = p.create(fixed);
  EXPECT_EQ(p.run(p.rdma(MLX5_OPCODE_RDMA_READ, key, 0, 0, 8)), 0);
  EXPECT_EQ(p.run(invalidation(key)), MLX5_CQE_SYNDROME_MW_BIND_ERR);
}

TEST_F(Mlx5Keys, SendsThatEndAKey) {
  Pair p;
  const std::uint32_t key = p.create(4, true);
  EXPECT_EQ(p.run(p.b, Change(key).rights(kAll).list({p.piece(kThere, 8)}, 8).wqe()), 0);
  p.b.receive(p.at(kThere + 64), 8, p.l.mr.lkey);
  EXPECT_EQ(p.run(Mlx5Wqe(MLX5_OPCODE_SEND_INVAL, htobe32(key)).inline_data("the end.")), 0);
  const mlx5_cqe64 e = p.received.wait();
  EXPECT_EQ(opcode_of(e), MLX5_CQE_RESP_SEND_INV);
  EXPECT_EQ(be32toh(e.imm_inval_pkey), key);
  // Its program may use it again.
  EXPECT_EQ(p.run(p.b, Change(key).wqe()), 0);
  EXPECT_EQ(p.run(p.rdma(MLX5_OPCODE_RDMA_READ, key, 0, 0, 8)), 0);
  // One that was not made for it.
  const std::uint32_t other = p.make({p.piece(kThere, 8)}, 8);
  p.b.receive(p.at(kThere + 64), 8, p.l.mr.lkey);
  EXPECT_EQ(p.run(Mlx5Wqe(MLX5_OPCODE_SEND_INVAL, htobe32(other)).inline_data("the end.")),
            MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR);
}

TEST_F(Mlx5Keys, KeysOfKeys) {
  Pair p;
  const std::uint32_t inner = p.make({repeat(4, 1, 2), stripe(p.at(kThere), 2, 4, p.l.mr.lkey)}, 8);
  const std::uint32_t middle = p.make({{4, 4, inner}, p.piece(kThere + 100, 2), {0, 4, inner}}, 10);
  const std::uint32_t outer = p.make({{1, 9, middle}}, 9);
  p.l.memory.put(kThere, "ab..cd..ef..gh..");
  p.l.memory.put(kThere + 100, "XY");
  EXPECT_EQ(p.run(p.rdma(MLX5_OPCODE_RDMA_READ, outer, 0, 0, 9)), 0);
  EXPECT_EQ(p.l.memory.text(0, 9), "fghXYabcd");
  std::uint32_t key = outer;
  for (std::uint32_t depth = 3; depth < kMaxIndirection; ++depth) key = p.make({{0, 9, key}}, 9);
  EXPECT_EQ(p.run(p.rdma(MLX5_OPCODE_RDMA_READ, key, 0, 0, 9)), 0);
  key = p.make({{0, 9, key}}, 9);
  EXPECT_EQ(p.run(p.rdma(MLX5_OPCODE_RDMA_READ, key, 0, 0, 9)),
            MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR);
}

// As UCX makes keys for atomic operations: addresses that are others, in entries of one length.
TEST_F(Mlx5Keys, EntriesOfOneLength) {
  Pair p;
  constexpr std::uint32_t kLog = 12;
  Box box = ready_command(
      p.d.pdn, {p.piece(kThere + 8192, 0), p.piece(kThere, 0), p.piece(kThere + 4096, 0)},
      3U << kLog, kLog);
  const prm::Out context = prm::behind(prm::Out(box), mkey::kContext);
  prm::set64(context, mkey::kStart, 0x7000'0008);
  prm::set(context, mkey::kLowByte, 0x55);
  const std::uint32_t key = p.create(box);
  EXPECT_EQ(key & 0xff, 0x55U);
  p.l.memory.put(0, "over the end of one");
  EXPECT_EQ(p.run(p.rdma(MLX5_OPCODE_RDMA_WRITE, key, 0x7000'0008 + 4096 - 5, 0, 19)), 0);
  EXPECT_EQ(p.l.memory.text(kThere + 8192 + 4096 - 5, 5), "over ");
  EXPECT_EQ(p.l.memory.text(kThere, 14), "the end of one");
  EXPECT_EQ(p.run(Mlx5Wqe(MLX5_OPCODE_ATOMIC_FA)
                      .remote(0x7000'0008 + 8192 + 64, key)
                      .atomic(3)
                      .data(p.at(0), 8, p.l.mr.lkey)),
            0);
  EXPECT_EQ(p.l.memory.text(kThere + 4096 + 64, 1)[0], 3);
}

TEST_F(Mlx5Keys, AKeyOfPages) {
  Pair p;
  Pages& pages = p.l.keep(1U << 14);
  std::uint32_t umem = 0, umem_handle = 0;
  ASSERT_EQ(p.d.umem(pages.address(), 1U << 14, umem, umem_handle), 0);
  const auto box_of = [&](std::uint64_t start, std::uint64_t length) {
    Box box = command(Opcode::create_mkey, mkey::kBytes);
    const prm::Out context = prm::behind(prm::Out(box), mkey::kContext);
    prm::set(context, mkey::kAccessMode, mkey::kPages);
    for (const prm::Field f : {mkey::kRemoteWrite, mkey::kRemoteRead, mkey::kLocalWrite}) {
      prm::set(context, f, 1);
    }
    prm::set(context, mkey::kQpn, mkey::kAnyQp);
    prm::set(context, mkey::kPd, p.d.pdn);
    prm::set(context, mkey::kLowByte, 0x77);
    prm::set64(context, mkey::kStart, start);
    prm::set64(context, mkey::kLength, length);
    prm::set(box, mkey::kUmem, umem);
    prm::set64(box, mkey::kUmemOffset, 4096);
    return box;
  };
  const Box box = box_of(0x5000'0000, 8192);
  const std::uint32_t key = p.create(box);
  p.l.memory.put(0, "pages");
  EXPECT_EQ(p.run(p.rdma(MLX5_OPCODE_RDMA_WRITE, key, 0x5000'0000 + 100, 0, 5)), 0);
  EXPECT_EQ(pages.text(4096 + 100, 5), "pages");
  EXPECT_EQ(p.d.dereg(umem_handle), EBUSY);
  EXPECT_EQ(p.run(p.b, Change(key).wqe()), MLX5_CQE_SYNDROME_MW_BIND_ERR);
  EXPECT_EQ(p.d.destroy(p.handle), 0);
  EXPECT_TRUE(refused(p.d.create(box_of(0x5000'0000, 16384)), Answer::bad_parameter));
  EXPECT_TRUE(refused(p.d.create(box_of(0x5000'0010, 64)), Answer::bad_parameter));
  const auto spoiled = [&](prm::Field f, std::uint32_t value) {
    Box other = box_of(0x5000'0000, 64);
    prm::set(prm::behind(prm::Out(other), mkey::kContext), f, value);
    return p.d.create(other);
  };
  EXPECT_TRUE(refused(spoiled(mkey::kFree, 1), Answer::bad_parameter));
  EXPECT_TRUE(refused(spoiled(mkey::kUmrEnabled, 1), Answer::bad_parameter));
  EXPECT_TRUE(refused(spoiled(mkey::kLength64, 1), Answer::bad_parameter));
  EXPECT_TRUE(refused(spoiled(mkey::kLocalWrite, 0), Answer::bad_parameter));
  EXPECT_EQ(p.d.dereg(umem_handle), 0);
}

TEST_F(Mlx5Keys, CommandsThatCannotBe) {
  Pair p;
  const auto spoiled = [&](prm::Field f, std::uint32_t value) {
    Box box = list_command(p.d.pdn, 4);
    prm::set(prm::behind(prm::Out(box), mkey::kContext), f, value);
    return p.d.create(box);
  };
  EXPECT_TRUE(refused(p.d.create(command(Opcode::create_mkey, 64)), Answer::bad_input_length));
  EXPECT_TRUE(refused(spoiled(mkey::kPd, 0x123456), Answer::bad_resource));
  EXPECT_TRUE(refused(spoiled(mkey::kQpn, 7), Answer::bad_parameter));
  EXPECT_TRUE(refused(spoiled(mkey::kAccessMode, 0), Answer::bad_parameter));
  EXPECT_TRUE(refused(spoiled(mkey::kAccessModeHigh, 1), Answer::bad_parameter));
  EXPECT_TRUE(refused(spoiled(mkey::kSigns, 1), Answer::bad_parameter));
  EXPECT_TRUE(refused(spoiled(mkey::kSignatures, 4), Answer::bad_parameter));
  EXPECT_TRUE(refused(spoiled(mkey::kTranslations, 0), Answer::bad_parameter));
  EXPECT_TRUE(refused(spoiled(mkey::kTranslations, kMaxKeyEntries + 1), Answer::exceeds_limit));
  Box more = ready_command(p.d.pdn, {p.piece(0, 8)}, 8);
  prm::set(more, mkey::kEntries, 2);
  EXPECT_TRUE(refused(p.d.create(more), Answer::bad_parameter));
  prm::set(prm::behind(prm::Out(more), mkey::kContext), mkey::kTranslations, 2);
  EXPECT_TRUE(refused(p.d.create(more), Answer::bad_input_length));
  EXPECT_TRUE(
      refused(p.d.create(ready_command(p.d.pdn, {repeat(1, 1, 8)}, 8)), Answer::bad_parameter));
  Box endless = ready_command(p.d.pdn, {p.piece(0, 8)}, 8, 12);
  prm::set(prm::behind(prm::Out(endless), mkey::kContext), mkey::kLogEntry, 0);
  EXPECT_TRUE(refused(p.d.create(endless), Answer::bad_parameter));
  // A domain lives as long as its keys.
  ib_uverbs_alloc_pd_resp pd{};
  std::uint32_t pdn = 0;
  ASSERT_EQ(p.l.call(IB_USER_VERBS_CMD_ALLOC_PD, ib_uverbs_alloc_pd{}, &pd), 0);
  ASSERT_EQ(Ioctl(UVERBS_OBJECT_PD, MLX5_IB_METHOD_PD_QUERY)
                .handle(MLX5_IB_ATTR_QUERY_PD_HANDLE, pd.pd_handle)
                .out(MLX5_IB_ATTR_QUERY_PD_RESP_PDN, &pdn, sizeof pdn)
                .run(p.l.fd),
            0);
  (void)p.create(list_command(pdn, 4));
  EXPECT_EQ(p.l.call(IB_USER_VERBS_CMD_DEALLOC_PD, ib_uverbs_dealloc_pd{pd.pd_handle}), EBUSY);
  EXPECT_EQ(p.d.destroy(p.handle), 0);
  EXPECT_EQ(p.l.call(IB_USER_VERBS_CMD_DEALLOC_PD, ib_uverbs_dealloc_pd{pd.pd_handle}), 0);
}

TEST_F(Mlx5Keys, CapabilitiesTellOfThem) {
  namespace cap = prm::cap;
  Devx d;
  const Result r = d.general(command(Opcode::query_hca_cap), cap::kBytes);
  ASSERT_EQ(r.error, 0);
  const prm::In told = prm::behind(prm::In(r.out), prm::kHeadBytes);
  EXPECT_EQ(prm::get(told, cap::kMaxIndirection), kMaxIndirection);
  EXPECT_EQ(std::uint32_t{1} << prm::get(told, cap::kLogKeyEntries), kMaxKeyEntries);
  EXPECT_EQ(prm::get(told, cap::kFixedLists), 1U);
  EXPECT_EQ(prm::get(told, cap::kNoUmrEntitySize), 1U);
  EXPECT_EQ(prm::get(told, cap::kNoUmrAtomic), 0U);
  EXPECT_EQ(prm::get(told, cap::kNoUmrIndirect), 0U);
}

// 0x100 ends a list of receives, and 0x400 heads a block: no region has such a key, however often
// it is registered.
TEST_F(Mlx5Keys, NoKeyIsAWordOfTheQueues) {
  Pair p;
  for (int i = 0; i < 300; ++i) {
    const Mlx5Mr mr = p.l.register_memory(p.at(0), 64);
    ASSERT_GE(mr.lkey >> 8, kFirstMr);
    ib_uverbs_dereg_mr request{};
    request.mr_handle = mr.handle;
    ASSERT_EQ(p.l.call(IB_USER_VERBS_CMD_DEREG_MR, request), 0);
  }
}

// One thread changes a key and ends it while another writes through it: what arrives is of one
// layout or the other, and the rest is refused.
TEST_F(Mlx5Keys, ChangedWhileInUse) {
  Devx d;
  Mlx5Library& l = d.library;
  const auto at = [&](std::size_t offset) { return l.memory.address(offset); };
  const Result made = d.create(list_command(d.pdn, 4));
  ASSERT_EQ(made.error, 0);
  const std::uint32_t key = made.number() << 8;
  std::atomic<bool> stop{false};
  std::thread changes([&] {
    Mlx5CompletionQueue sent(l, 16, 64, -1, false);
    Mlx5QpOptions options;
    options.send_cq = &sent;
    options.sends = 64;
    Mlx5QueuePair qp(l, options);
    qp.connect(qp.number);
    const auto run = [&](const Mlx5Wqe& wqe) {
      qp.post(wqe);
      EXPECT_EQ(opcode_of(sent.wait()), MLX5_CQE_REQ);
    };
    for (std::uint32_t i = 0; i < 400; ++i) {
      const std::size_t to = kThere + (i % 2) * 4096;
      run(Change(key)
              .rights(kAll)
              .list({{at(to), 8, l.mr.lkey}, {at(to + 64), 8, l.mr.lkey}}, 16)
              .wqe());
      if (i % 3 == 0) run(invalidation(key));
    }
    stop = true;
  });
  unsigned done = 0, refused_ones = 0;
  while (!stop) {
    Mlx5CompletionQueue sent(l, 16, 64, -1, false);
    Mlx5QpOptions options;
    options.send_cq = &sent;
    Mlx5QueuePair a(l, options), b(l, options);
    a.connect(b.number);
    b.connect(a.number);
    for (;;) {
      a.post(Mlx5Wqe(MLX5_OPCODE_RDMA_WRITE).remote(0, key).inline_data("sixteen letters."));
      const mlx5_cqe64 e = sent.wait();
      if (opcode_of(e) == MLX5_CQE_REQ_ERR) {
        EXPECT_EQ(syndrome_of(e), MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR);
        ++refused_ones;
        break;
      }
      ++done;
      if (stop) break;
    }
    EXPECT_EQ(a.destroy(), 0);
    EXPECT_EQ(b.destroy(), 0);
  }
  changes.join();
  EXPECT_GT(done + refused_ones, 0U);
}

// Somebody has damaged the record of a key, or its list: requests are refused, and nothing but
// registered memory is touched.
TEST_F(Mlx5Keys, DamagedKeys) {
  const struct {
    const char* what;
    void (*damage)(MrRecord&, KeyEntry*);
  } cases[] = {
      {"no list", [](MrRecord& r, KeyEntry*) { r.list = 0; }},
      {"a list outside of the heap", [](MrRecord& r, KeyEntry*) { r.list = ~std::uint64_t{0}; }},
      {"a list within a page", [](MrRecord& r, KeyEntry*) { r.list += 8; }},
      {"no entries", [](MrRecord& r, KeyEntry*) { r.list_slots = 0; }},
      {"too many entries", [](MrRecord& r, KeyEntry*) { r.list_slots = ~0U; }},
      {"entries of another length", [](MrRecord& r, KeyEntry*) { r.log_entry = 2; }},
      {"another kind", [](MrRecord& r, KeyEntry*) { r.kind = 9; }},
      {"another owner", [](MrRecord& r, KeyEntry*) { r.owner = 0x1234'0009; }},
      {"a block without an end",
       [](MrRecord&, KeyEntry* e) {
         e[0] = {~std::uint64_t{0}, 8, kRepeatKey};
       }},
      {"a block of nothing",
       [](MrRecord&, KeyEntry* e) {
         e[0] = {std::uint64_t{0xffff'ffff} << 32 | 1, 8, kRepeatKey};
         e[1] = {};
       }},
      {"another address", [](MrRecord&, KeyEntry* e) { e[0].address = 64; }},
      {"another key", [](MrRecord&, KeyEntry* e) { e[0].key = 0xffff'fff1; }},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.what);
    Pair p;
    const std::uint32_t key = p.make({p.piece(kThere, 8)}, 8);
    const auto fabric = Fabric::open(getenv("TURNOUT_FABRIC"), 1ULL << 29);
    ASSERT_TRUE(fabric.ok());
    MrRecord& r = fabric.value()->mr(key >> 8);
    void* const entries = fabric.value()->heap(r.list, r.list_slots * sizeof(KeyEntry));
    ASSERT_NE(entries, nullptr);
    const Token owner = r.owner;
    c.damage(r, static_cast<KeyEntry*>(entries));
    EXPECT_EQ(p.run(p.rdma(MLX5_OPCODE_RDMA_WRITE, key, 0, 0, 8)),
              MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR);
    r.owner = owner;
    EXPECT_EQ(p.d.destroy(p.handle), 0);
    // What was the list's is free.
    (void)p.create(kMaxKeyEntries);
    EXPECT_EQ(p.d.destroy(p.handle), 0);
  }
}

// Between processes, in memory that only its owner can address.
TEST_F(Mlx5Keys, AColumnOfAPeersMatrix) {
  enum Word : unsigned { kNumber, kKey = 2, kDone = 4 };
  constexpr std::uint32_t kRows = 1000, kRowBytes = 64, kColumn = 24;
  Exchange* const x = exchange();
  run(2, [x](unsigned me) {
    Pair p;
    Pages& matrix = p.l.keep(kRows * kRowBytes);
    const Mlx5Mr mr = p.l.register_memory(matrix.address(), kRows * kRowBytes);
    for (std::uint32_t row = 0; row < kRows; ++row) {
      std::memset(matrix.at(row * kRowBytes), static_cast<int>(me * 100), kRowBytes);
      std::memcpy(matrix.at(row * kRowBytes + kColumn), &row, sizeof row);
      std::memcpy(matrix.at(row * kRowBytes + kColumn + 4), &me, sizeof me);
    }
    const std::uint32_t column =
        p.make({repeat(kRows, 1, 8), stripe(matrix.address(kColumn), 8, kRowBytes, mr.lkey)},
               std::uint64_t{kRows} * 8);
    Mlx5CompletionQueue sent(p.l, 16, 64, -1, false);
    Mlx5QpOptions options;
    options.send_cq = &sent;
    Mlx5QueuePair qp(p.l, options);
    set(x, kNumber + me, qp.number);
    set(x, kKey + me, column);
    qp.connect(static_cast<std::uint32_t>(get(x, kNumber + 1 - me)));
    const auto theirs = static_cast<std::uint32_t>(get(x, kKey + 1 - me));
    meet(x, 0, 2);
    if (me == 0) {
      // Ours becomes theirs; what is beside it stays.
      qp.post(Mlx5Wqe(MLX5_OPCODE_RDMA_WRITE).remote(0, theirs).data(0, kRows * 8, column));
      EXPECT_EQ(opcode_of(sent.wait()), MLX5_CQE_REQ);
      set(x, kDone, 1);
      meet(x, 1, 2);
      // And what the peer made of it comes back in another order: from the middle on.
      qp.post(Mlx5Wqe(MLX5_OPCODE_RDMA_READ)
                  .remote(kRows * 4, theirs)
                  .data(p.l.memory.address(0), kRows * 4, p.l.mr.lkey));
      EXPECT_EQ(opcode_of(sent.wait()), MLX5_CQE_REQ);
      for (std::uint32_t row = 0; row < kRows / 2; ++row) {
        std::uint32_t word = 0;
        std::memcpy(&word, p.l.memory.at(row * 8), sizeof word);
        ASSERT_EQ(word, row + kRows / 2 + 7);
      }
      // An atomic operation of one of its words.
      qp.post(Mlx5Wqe(MLX5_OPCODE_ATOMIC_FA)
                  .remote(8, theirs)
                  .atomic(1)
                  .data(p.l.memory.address(0), 8, p.l.mr.lkey));
      EXPECT_EQ(opcode_of(sent.wait()), MLX5_CQE_REQ);
      std::uint32_t word = 0;
      std::memcpy(&word, p.l.memory.at(0), sizeof word);
      EXPECT_EQ(word, 8U);
      meet(x, 2, 2);
      return;
    }
    (void)get(x, kDone);
    for (std::uint32_t row = 0; row < kRows; ++row) {
      std::uint32_t words[2] = {};
      std::memcpy(words, matrix.at(row * kRowBytes + kColumn), sizeof words);
      ASSERT_EQ(words[0], row);
      ASSERT_EQ(words[1], 0U);
      ASSERT_EQ(matrix.text(row * kRowBytes + kColumn - 1, 1)[0], 100);
      ASSERT_EQ(matrix.text(row * kRowBytes + kColumn + 8, 1)[0], 100);
      words[0] += 7;
      std::memcpy(matrix.at(row * kRowBytes + kColumn), words, sizeof words);
    }
    meet(x, 1, 2);
    meet(x, 2, 2);
    std::uint32_t word = 0;
    std::memcpy(&word, matrix.at(kRowBytes + kColumn), sizeof word);
    EXPECT_EQ(word, 9U);
  });
}

}  // namespace
}  // namespace turnout::hca::test
