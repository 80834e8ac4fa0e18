// SPDX-License-Identifier: BSD-3-Clause
// The emulated mlx5 device, from its commands to the bytes of its completions: what each transport
// does, and how queues wrap.
#include <fcntl.h>

#include <array>
#include <atomic>
#include <string>
#include <thread>

#include "tests/hca/mlx5_library.h"

namespace turnout::hca::test {
namespace {

class Mlx5Device : public ::testing::Test {
 protected:
  void SetUp() override {
    use_own_fabric();
    descriptors_ = mlx5_descriptors();
  }
  void TearDown() override {
    EXPECT_FALSE(fabric_exists());
    EXPECT_EQ(mlx5_descriptors(), descriptors_);
  }

 private:
  std::size_t descriptors_ = 0;
};

constexpr std::size_t kHere = 0, kThere = 32768;  // in a library's memory

std::uint32_t user_index_of(const mlx5_cqe64& e) {
  return be32toh(e.srqn_uidx) & 0xff'ffff;
}

TEST_F(Mlx5Device, EveryFieldOfASend) {
  Mlx5Pair p;
  Mlx5Library& l = p.library;
  l.memory.put(kHere, "a message");
  p.b.receive(l.memory.address(kThere), 64, l.mr.lkey);
  p.b.receive(l.memory.address(kThere + 64), 64, l.mr.lkey);
  EXPECT_EQ(p.a.post(p.send(kHere, 9)), 0);
  const mlx5_cqe64 sent = p.send_cq.wait();
  EXPECT_EQ(opcode_of(sent), MLX5_CQE_REQ);
  EXPECT_EQ(be32toh(sent.sop_drop_qpn), std::uint32_t{MLX5_OPCODE_SEND} << 24 | p.a.number);
  EXPECT_EQ(counter_of(sent), 0);
  EXPECT_EQ(user_index_of(sent), p.a.user_index);
  EXPECT_EQ(sent.op_own & 3, 0);
  EXPECT_NE(sent.timestamp, 0U);
  const mlx5_cqe64 received = p.receive_cq.wait();
  EXPECT_EQ(opcode_of(received), MLX5_CQE_RESP_SEND);
  EXPECT_EQ(be32toh(received.sop_drop_qpn), p.b.number);
  EXPECT_EQ(be32toh(received.flags_rqpn) & 0xff'ffff, p.a.number);
  EXPECT_EQ(be32toh(received.byte_cnt), 9U);
  EXPECT_EQ(counter_of(received), 0);
  EXPECT_EQ(user_index_of(received), p.b.user_index);
  EXPECT_EQ(be16toh(received.slid), 1);
  EXPECT_EQ(l.memory.text(kThere, 10), std::string("a message\0", 10));
  // Immediate data keep their order of bytes; a solicited one says so.
  const std::uint32_t imm = htobe32(0x01020304);
  Mlx5Wqe second(MLX5_OPCODE_SEND_IMM, imm, MLX5_WQE_CTRL_CQ_UPDATE | MLX5_WQE_CTRL_SOLICITED);
  EXPECT_EQ(p.a.post(second.data(l.memory.address(kHere), 1, l.mr.lkey)), 1);
  EXPECT_EQ(counter_of(p.send_cq.wait()), 1);
  const mlx5_cqe64 with_imm = p.receive_cq.wait();
  EXPECT_EQ(opcode_of(with_imm), MLX5_CQE_RESP_SEND_IMM);
  EXPECT_EQ(with_imm.imm_inval_pkey, imm);
  EXPECT_EQ(counter_of(with_imm), 1);
  EXPECT_NE(with_imm.op_own & 2, 0);
}

TEST_F(Mlx5Device, UnsignaledRequestsTellNothing) {
  Mlx5Pair p;
  Mlx5Library& l = p.library;
  for (int i = 0; i < 3; ++i) p.b.receive(l.memory.address(kThere), 64, l.mr.lkey);
  for (int i = 0; i < 2; ++i) p.a.put(Mlx5Wqe(MLX5_OPCODE_SEND, 0, 0).inline_data("x"));
  p.a.put(Mlx5Wqe(MLX5_OPCODE_NOP));
  EXPECT_EQ(p.a.post(p.send(kHere, 1)), 3);
  EXPECT_EQ(counter_of(p.send_cq.wait()), 2);  // the one that does nothing
  EXPECT_EQ(counter_of(p.send_cq.wait()), 3);
  mlx5_cqe64 e;
  EXPECT_FALSE(p.send_cq.poll(e));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(counter_of(p.receive_cq.wait()), i);
}

TEST_F(Mlx5Device, InlineAndPointersInOneRequest) {
  Mlx5Pair p;
  Mlx5Library& l = p.library;
  l.memory.put(kHere, "pointed");
  Mlx5Wqe wqe(MLX5_OPCODE_SEND);
  wqe.inline_data("first ")
      .data(l.memory.address(kHere), 7, l.mr.lkey)
      .inline_data(" and the last of them");
  // Three blocks each: they come to lie across the end of the ring of 16.
  for (int i = 0; i < 12; ++i) {
    std::memset(l.memory.at(kThere), 0, 64);
    p.b.receive(l.memory.address(kThere), 64, l.mr.lkey);
    const std::uint16_t at = p.a.post(wqe);
    EXPECT_EQ(counter_of(p.send_cq.wait()), at);
    EXPECT_EQ(be32toh(p.receive_cq.wait().byte_cnt), 34U);
    EXPECT_EQ(l.memory.text(kThere, 34), "first pointed and the last of them");
  }
}

TEST_F(Mlx5Device, LongInlineDataWrap) {
  Mlx5Pair p;
  Mlx5Library& l = p.library;
  std::string text(470, '.');
  for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>('a' + i % 26);
  for (int i = 0; i < 9; ++i) {
    std::memset(l.memory.at(kThere), 0, text.size());
    p.a.post(Mlx5Wqe(MLX5_OPCODE_RDMA_WRITE)
                 .remote(l.memory.address(kThere), l.mr.rkey)
                 .inline_data(text.substr(static_cast<std::size_t>(i))));
    EXPECT_EQ(opcode_of(p.send_cq.wait()), MLX5_CQE_REQ);
    EXPECT_EQ(l.memory.text(kThere, text.size() - static_cast<std::size_t>(i)),
              text.substr(static_cast<std::size_t>(i)));
    // Moves the next one's beginning.
    p.a.post(Mlx5Wqe(MLX5_OPCODE_NOP));
    (void)p.send_cq.wait();
  }
}

// Each queue passes its end often, and the counters of 16 bits theirs.
TEST_F(Mlx5Device, QueuesWrap) {
  Mlx5Pair p;
  Mlx5Library& l = p.library;
  for (std::uint32_t i = 0; i < 70'000; ++i) {
    p.b.receive(l.memory.address(kThere), 4, l.mr.lkey);
    const auto text = std::string_view(reinterpret_cast<const char*>(&i), sizeof i);
    ASSERT_EQ(p.a.post(Mlx5Wqe(MLX5_OPCODE_SEND).inline_data(text)), static_cast<std::uint16_t>(i));
    mlx5_cqe64 e;
    ASSERT_TRUE(p.send_cq.poll(e));
    ASSERT_EQ(counter_of(e), static_cast<std::uint16_t>(i));
    ASSERT_TRUE(p.receive_cq.poll(e));
    ASSERT_EQ(counter_of(e), static_cast<std::uint16_t>(i));
    ASSERT_EQ(l.memory.text(kThere, 4), text);
  }
}

TEST_F(Mlx5Device, ReadsWritesAndAtomics) {
  Mlx5Pair p;
  Mlx5Library& l = p.library;
  const std::uint64_t here = l.memory.address(kHere), there = l.memory.address(kThere);
  l.memory.put(kHere, "written");
  p.a.post(Mlx5Wqe(MLX5_OPCODE_RDMA_WRITE).remote(there, l.mr.rkey).data(here, 7, l.mr.lkey));
  mlx5_cqe64 e = p.send_cq.wait();
  EXPECT_EQ(be32toh(e.sop_drop_qpn) >> 24, std::uint32_t{MLX5_OPCODE_RDMA_WRITE});
  EXPECT_EQ(l.memory.text(kThere, 7), "written");

  p.b.receive(0, 0, l.mr.lkey);
  p.a.post(Mlx5Wqe(MLX5_OPCODE_RDMA_WRITE_IMM, 0x55)
               .remote(there + 100, l.mr.rkey)
               .data(here, 5, l.mr.lkey));
  EXPECT_EQ(opcode_of(p.send_cq.wait()), MLX5_CQE_REQ);
  e = p.receive_cq.wait();
  EXPECT_EQ(opcode_of(e), MLX5_CQE_RESP_WR_IMM);
  EXPECT_EQ(e.imm_inval_pkey, 0x55U);
  EXPECT_EQ(be32toh(e.byte_cnt), 5U);
  EXPECT_EQ(l.memory.text(kThere + 100, 6), std::string("writt\0", 6));

  l.memory.put(kThere + 200, "scattered");
  p.a.post(Mlx5Wqe(MLX5_OPCODE_RDMA_READ)
               .remote(there + 200, l.mr.rkey)
               .data(here + 300, 4, l.mr.lkey)
               .data(here + 400, 5, l.mr.lkey));
  e = p.send_cq.wait();
  EXPECT_EQ(be32toh(e.sop_drop_qpn) >> 24, std::uint32_t{MLX5_OPCODE_RDMA_READ});
  EXPECT_EQ(be32toh(e.byte_cnt), 9U);
  EXPECT_EQ(l.memory.text(kHere + 300, 4), "scat");
  EXPECT_EQ(l.memory.text(kHere + 400, 5), "tered");

  auto* const word = reinterpret_cast<std::uint64_t*>(l.memory.at(kThere + 512));
  auto* const old = reinterpret_cast<std::uint64_t*>(l.memory.at(kHere + 512));
  *word = 40;
  p.a.post(Mlx5Wqe(MLX5_OPCODE_ATOMIC_FA)
               .remote(there + 512, l.mr.rkey)
               .atomic(2)
               .data(here + 512, 8, l.mr.lkey));
  e = p.send_cq.wait();
  EXPECT_EQ(be32toh(e.byte_cnt), 8U);
  EXPECT_EQ(*old, 40U);
  EXPECT_EQ(*word, 42U);
  for (const std::uint64_t compare : {41U, 42U}) {
    p.a.post(Mlx5Wqe(MLX5_OPCODE_ATOMIC_CS)
                 .remote(there + 512, l.mr.rkey)
                 .atomic(7, compare)
                 .data(here + 512, 8, l.mr.lkey));
    EXPECT_EQ(opcode_of(p.send_cq.wait()), MLX5_CQE_REQ);
    EXPECT_EQ(*old, 42U);
    EXPECT_EQ(*word, compare == 42 ? 7U : 42U);
  }
}

// An mlx5's masked atomics, of words of four and of eight bytes.
TEST_F(Mlx5Device, MaskedAtomics) {
  Mlx5Pair p;
  Mlx5Library& l = p.library;
  const std::uint64_t there = l.memory.address(kThere), here = l.memory.address(kHere);
  constexpr std::uint8_t kFour = 8, kEight = 9;
  auto* const word = reinterpret_cast<std::uint64_t*>(l.memory.at(kThere));
  auto* const old = reinterpret_cast<std::uint64_t*>(l.memory.at(kHere));
  const auto request = [&](std::uint8_t opcode, std::uint8_t modifier, std::uint64_t offset) {
    Mlx5Wqe wqe(opcode);
    wqe.bytes[0] = std::byte{modifier};
    wqe.remote(there + offset, l.mr.rkey);
    return wqe;
  };
  const auto done = [&](Mlx5Wqe& wqe, std::uint32_t length) {
    p.a.post(wqe.data(here, length, l.mr.lkey));
    const mlx5_cqe64 e = p.send_cq.wait();
    EXPECT_EQ(opcode_of(e), MLX5_CQE_REQ);
    EXPECT_EQ(be32toh(e.byte_cnt), length);
  };
  struct Words {
    std::uint32_t w[4];
  };
  struct Longs {
    std::uint64_t w[4];
  };
  // Of the second half: only the low byte is compared, only the high one exchanged.
  *word = 0x1122'3344'5566'7788;
  for (const std::uint32_t compare : {0x45U, 0x44U}) {
    *old = 0;
    Mlx5Wqe wqe = request(MLX5_OPCODE_ATOMIC_MASKED_CS, kFour, 4);
    wqe.add(Words{{htobe32(0xaabb'ccdd), htobe32(0xffff'ff00 | compare), htobe32(0xff00'0000),
                   htobe32(0xff)}});
    done(wqe, 4);
    EXPECT_EQ(*old, htobe32(0x1122'3344));  // in network order
    EXPECT_EQ(*word, compare == 0x44 ? 0xaa22'3344'5566'7788 : 0x1122'3344'5566'7788);
  }
  Mlx5Wqe wqe = request(MLX5_OPCODE_ATOMIC_MASKED_CS, kEight, 0);
  wqe.add(Longs{{htobe64(7), htobe64(0), htobe64(0xff), 0}});  // compares nothing
  done(wqe, 8);
  EXPECT_EQ(*old, 0xaa22'3344'5566'7788U);
  EXPECT_EQ(*word, 0xaa22'3344'5566'7707U);

  // Fields of 16 bits do not carry into each other.
  *word = 0x0001'ffff'0001'ffff;
  wqe = request(MLX5_OPCODE_ATOMIC_MASKED_FA, kEight, 0);
  wqe.add(mlx5_wqe_atomic_seg{htobe64(0x0001'0001'0001'0001), htobe64(0x8000'8000'8000'8000)});
  done(wqe, 8);
  EXPECT_EQ(*old, 0x0001'ffff'0001'ffffU);
  EXPECT_EQ(*word, 0x0002'0000'0002'0000U);
  wqe = request(MLX5_OPCODE_ATOMIC_MASKED_FA, kFour, 0);
  wqe.add(Words{{htobe32(0xffff'ffff), 0, 0, 0}});
  done(wqe, 4);
  EXPECT_EQ(*word, 0x0002'0000'0001'ffffU);

  // No such length; a place that is not aligned; another length than the word's.
  wqe = request(MLX5_OPCODE_ATOMIC_MASKED_FA, kFour, 2);
  wqe.add(Words{}).data(here, 4, l.mr.lkey);
  EXPECT_EQ(p.syndrome(wqe), MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR);
}

TEST_F(Mlx5Device, MaskedAtomicsThatCannotBe) {
  for (const auto modifier : {std::byte{0}, std::byte{7}, std::byte{10}}) {
    Mlx5Pair p;
    Mlx5Wqe wqe(MLX5_OPCODE_ATOMIC_MASKED_FA);
    wqe.bytes[0] = modifier;
    wqe.remote(p.library.memory.address(kThere), p.library.mr.rkey).atomic(1);
    wqe.data(p.library.memory.address(kHere), 8, p.library.mr.lkey);
    EXPECT_EQ(p.syndrome(wqe), MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR);
  }
  Mlx5Pair p;
  Mlx5Wqe wqe(MLX5_OPCODE_ATOMIC_MASKED_FA);
  wqe.bytes[0] = std::byte{8};
  wqe.remote(p.library.memory.address(kThere), p.library.mr.rkey).atomic(1);
  wqe.data(p.library.memory.address(kHere), 8, p.library.mr.lkey);
  EXPECT_EQ(p.syndrome(wqe), MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR);
}

std::uint32_t bind(Mlx5Pair& p, std::uint32_t window) {
  Mlx5Library& l = p.library;
  const std::uint32_t key = (window & ~0xffU) | ((window + 1) & 0xff);
  mlx5_wqe_umr_ctrl_seg control{};
  control.flags = MLX5_WQE_UMR_CTRL_FLAG_CHECK_FREE | MLX5_WQE_UMR_CTRL_FLAG_INLINE |
                  MLX5_WQE_UMR_CTRL_FLAG_CHECK_QPN;
  mlx5_wqe_mkey_context_seg context{};
  context.access_flags = MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_REMOTE_WRITE;
  context.qpn_mkey = htobe32(p.b.number << 8 | (key & 0xff));
  context.start_addr = htobe64(l.memory.address(kThere));
  context.len = htobe64(16);
  mlx5_wqe_umr_klm_seg part{};
  part.byte_count = htobe32(16);
  part.mkey = htobe32(l.mr.lkey);
  part.address = htobe64(l.memory.address(kThere));
  p.b.post(Mlx5Wqe(MLX5_OPCODE_UMR, htobe32(window)).add(control).add(context).add(part));
  const mlx5_cqe64 e = p.send_cq.wait();
  EXPECT_EQ(opcode_of(e), MLX5_CQE_REQ);
  EXPECT_EQ(be32toh(e.sop_drop_qpn) >> 24, std::uint32_t{MLX5_OPCODE_UMR});
  return key;
}

TEST_F(Mlx5Device, SendsThatEndAWindow) {
  Mlx5Pair p;
  Mlx5Library& l = p.library;
  ib_uverbs_alloc_mw request{};
  request.pd_handle = l.pd;
  request.mw_type = IBV_MW_TYPE_2;
  ib_uverbs_alloc_mw_resp window{};
  ASSERT_EQ(l.call(IB_USER_VERBS_CMD_ALLOC_MW, request, &window), 0);
  // libmlx5 registers what windows are bound to with this right.
  l.mr = l.register_memory(l.memory.address(), 1U << 16, kFullAccess | IBV_ACCESS_MW_BIND);
  const std::uint32_t key = bind(p, window.rkey);
  const Mlx5Wqe write =
      Mlx5Wqe(MLX5_OPCODE_RDMA_WRITE).remote(l.memory.address(kThere), key).inline_data("bound");
  EXPECT_EQ(p.syndrome(write), 0);
  EXPECT_EQ(l.memory.text(kThere, 5), "bound");
  p.b.receive(l.memory.address(kThere + 64), 64, l.mr.lkey);
  p.a.post(Mlx5Wqe(MLX5_OPCODE_SEND_INVAL, htobe32(key)).inline_data("it ends"));
  EXPECT_EQ(opcode_of(p.send_cq.wait()), MLX5_CQE_REQ);
  const mlx5_cqe64 e = p.receive_cq.wait();
  EXPECT_EQ(opcode_of(e), MLX5_CQE_RESP_SEND_INV);
  EXPECT_EQ(be32toh(e.imm_inval_pkey), key);
  EXPECT_EQ(p.syndrome(write), MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR);
  EXPECT_EQ(l.call(IB_USER_VERBS_CMD_DEALLOC_MW, ib_uverbs_dealloc_mw{window.mw_handle}), 0);
}

TEST_F(Mlx5Device, Datagrams) {
  Mlx5Library l;
  Mlx5QpOptions options;
  options.type = IBV_QPT_UD;
  Mlx5QueuePair a(l, options), b(l, options);
  a.connect(0);
  b.connect(0);
  Mlx5CompletionQueue& cq = l.cq.front();
  const auto take = [&](std::uint32_t flags) {
    mlx5_cqe64 received{};
    for (int i = 0; i < 2; ++i) {
      const mlx5_cqe64 e = cq.wait();
      if (opcode_of(e) == MLX5_CQE_RESP_SEND) received = e;
    }
    EXPECT_EQ(opcode_of(received), MLX5_CQE_RESP_SEND);
    EXPECT_EQ(be32toh(received.byte_cnt), 45U);  // behind 40 bytes of a header
    EXPECT_EQ(be32toh(received.flags_rqpn) & 0xff'ffff, a.number);
    EXPECT_EQ(be32toh(received.flags_rqpn) >> 28 & 3, flags);
    EXPECT_EQ(l.memory.text(kThere + 40, 5), "hello");
    std::memset(l.memory.at(kThere), 0, 64);
  };
  const auto receive = [&] { b.receive(l.memory.address(kThere), 64, l.mr.lkey); };
  for (const bool extended : {true, false}) {
    receive();
    a.post(
        Mlx5Wqe(MLX5_OPCODE_SEND).datagram(b.number, kQkey, extended, false).inline_data("hello"));
    take(0);
  }
  // To the GID of the port: with a header. And with the queue pair's own key.
  ibv_gid gid{};
  ib_uverbs_query_device_resp device{};
  ASSERT_EQ(l.call(IB_USER_VERBS_CMD_QUERY_DEVICE, ib_uverbs_query_device{}, &device), 0);
  gid.global.subnet_prefix = htobe64(0xfe80'0000'0000'0000ULL);
  gid.global.interface_id = device.node_guid;
  receive();
  a.post(Mlx5Wqe(MLX5_OPCODE_SEND).global(b.number, 0x8000'0000U, gid).inline_data("hello"));
  take(1);
  // What is for nobody, or has another key, is lost, and the sender does not hear of it.
  receive();
  gid.global.interface_id = ~gid.global.interface_id;
  a.post(Mlx5Wqe(MLX5_OPCODE_SEND).global(b.number, kQkey, gid).inline_data("lost"));
  a.post(Mlx5Wqe(MLX5_OPCODE_SEND).datagram(b.number, kQkey + 1, true, false).inline_data("lost"));
  for (int i = 0; i < 2; ++i) EXPECT_EQ(opcode_of(cq.wait()), MLX5_CQE_REQ);
  mlx5_cqe64 e;
  EXPECT_FALSE(cq.poll(e));
  // To a group.
  gid.global.subnet_prefix = htobe64(0xff12'0000'0000'0000ULL);
  ib_uverbs_attach_mcast member{};
  std::memcpy(member.gid, gid.raw, sizeof member.gid);
  member.qp_handle = b.handle;
  ASSERT_EQ(l.call(IB_USER_VERBS_CMD_ATTACH_MCAST, member), 0);
  EXPECT_EQ(b.destroy(), EBUSY);
  a.post(Mlx5Wqe(MLX5_OPCODE_SEND).global(0xff'ffff, kQkey, gid).inline_data("hello"));
  take(1);
  ib_uverbs_detach_mcast former{};
  std::memcpy(former.gid, gid.raw, sizeof former.gid);
  former.qp_handle = b.handle;
  EXPECT_EQ(l.call(IB_USER_VERBS_CMD_DETACH_MCAST, former), 0);
  EXPECT_EQ(l.call(IB_USER_VERBS_CMD_DETACH_MCAST, former), EINVAL);
  EXPECT_EQ(b.destroy(), 0);
}

// libmlx5 knows a receive by the place of its completion among the others: however many send at the
// same time, they come in the order in which they were posted.
TEST_F(Mlx5Device, DatagramsOfManyComeInOrder) {
  Mlx5Library l;
  Mlx5QpOptions options;
  options.type = IBV_QPT_UD;
  Mlx5CompletionQueue received(l, 256, 64, -1, false);
  Mlx5QpOptions mine = options;
  mine.receive_cq = &received;
  mine.receives = 128;
  Mlx5QueuePair target(l, mine);
  target.connect(0);
  constexpr int kSenders = 3, kMessages = 4000;
  std::atomic<int> ended{0};
  std::vector<std::thread> senders;
  for (int i = 0; i < kSenders; ++i) {
    senders.emplace_back([&] {
      Mlx5CompletionQueue sent(l, 16, 64, -1, false);
      Mlx5QpOptions own = options;
      own.send_cq = &sent;
      Mlx5QueuePair a(l, own);
      a.connect(0);
      for (int n = 0; n < kMessages; ++n) {
        a.post(Mlx5Wqe(MLX5_OPCODE_SEND)
                   .datagram(target.number, kQkey, true, false)
                   .data(l.memory.address(kHere), 4000, l.mr.lkey));
        EXPECT_EQ(opcode_of(sent.wait()), MLX5_CQE_REQ);
      }
      EXPECT_EQ(a.destroy(), 0);
      ++ended;
    });
  }
  std::uint16_t posted = 0, done = 0;
  const auto take = [&] {
    mlx5_cqe64 e;
    while (received.poll(e)) {
      ASSERT_EQ(counter_of(e), done);
      ++done;
    }
  };
  while (ended.load() < kSenders && !HasFatalFailure()) {
    while (static_cast<std::uint16_t>(posted - done) < 128) {
      target.receive(l.memory.address(kThere), 4096, l.mr.lkey);
      ++posted;
    }
    take();
  }
  for (std::thread& sender : senders) sender.join();
  take();
  EXPECT_GT(done, 0);
}

TEST_F(Mlx5Device, UnreliableConnections) {
  Mlx5QpOptions options;
  options.type = IBV_QPT_UC;
  Mlx5Pair p(options);
  Mlx5Library& l = p.library;
  EXPECT_EQ(p.syndrome(p.send(kHere, 8)), 0);  // no receive: lost
  p.b.receive(l.memory.address(kThere), 64, l.mr.lkey);
  l.memory.put(kHere, "arrives");
  EXPECT_EQ(p.syndrome(p.send(kHere, 7)), 0);
  EXPECT_EQ(opcode_of(p.receive_cq.wait()), MLX5_CQE_RESP_SEND);
  EXPECT_EQ(l.memory.text(kThere, 7), "arrives");
  EXPECT_EQ(p.syndrome(Mlx5Wqe(MLX5_OPCODE_RDMA_WRITE)
                           .remote(l.memory.address(kThere), l.mr.rkey + 1)
                           .inline_data("refused")),
            0);
  EXPECT_EQ(l.memory.text(kThere, 7), "arrives");
  // There are no reads; the send queue stops, what is behind is flushed.
  p.a.put(Mlx5Wqe(MLX5_OPCODE_RDMA_READ)
              .remote(l.memory.address(kThere), l.mr.rkey)
              .data(l.memory.address(kHere), 8, l.mr.lkey));
  p.a.post(p.send(kHere, 8));
  EXPECT_EQ(syndrome_of(p.send_cq.wait()), MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR);
  EXPECT_EQ(syndrome_of(p.send_cq.wait()), MLX5_CQE_SYNDROME_WR_FLUSH_ERR);
  EXPECT_EQ(p.a.state(), IBV_QPS_SQE);
}

TEST_F(Mlx5Device, DynamicConnections) {
  Mlx5Library l;
  Mlx5SharedQueue srq(l, 15);
  Mlx5CompletionQueue received(l, 16, 128, -1, false);
  Mlx5QpOptions target_options;
  target_options.type = static_cast<std::uint8_t>(IBV_QPT_DRIVER);
  target_options.flags = MLX5_QP_FLAG_TYPE_DCT;
  target_options.sends = target_options.receives = 0;
  target_options.receive_cq = &received;
  target_options.srq = &srq;
  target_options.access_key = kDcKey;
  Mlx5QueuePair target(l, target_options);
  EXPECT_EQ(target.number, 0U);
  target.connect(0);
  ASSERT_NE(target.number, 0U);
  Mlx5QpOptions options;
  options.type = static_cast<std::uint8_t>(IBV_QPT_DRIVER);
  options.flags = MLX5_QP_FLAG_TYPE_DCI;
  options.receives = 0;
  Mlx5QueuePair initiator(l, options);
  initiator.connect(0);
  Mlx5CompletionQueue& sent = l.cq.front();
  for (const bool extended : {true, false}) {
    const std::uint16_t index = srq.post(l.memory.address(kThere), 64, l.mr.lkey);
    initiator.post(Mlx5Wqe(MLX5_OPCODE_SEND)
                       .datagram(target.number, kDcKey, extended, true)
                       .inline_data("by DC"));
    EXPECT_EQ(opcode_of(sent.wait()), MLX5_CQE_REQ);
    const mlx5_cqe64 e = received.wait();
    EXPECT_EQ(opcode_of(e), MLX5_CQE_RESP_SEND);
    EXPECT_EQ(counter_of(e), index);
    EXPECT_EQ(be32toh(e.sop_drop_qpn) & 0xff'ffff, target.number);
    EXPECT_EQ(user_index_of(e), target.user_index);
    EXPECT_EQ(l.memory.text(kThere, 5), "by DC");
    std::memset(l.memory.at(kThere), 0, 8);
    srq.release(index);
  }
  initiator.post(Mlx5Wqe(MLX5_OPCODE_RDMA_WRITE)
                     .datagram(target.number, kDcKey, true, true)
                     .remote(l.memory.address(kThere), l.mr.rkey)
                     .inline_data("stored"));
  EXPECT_EQ(opcode_of(sent.wait()), MLX5_CQE_REQ);
  EXPECT_EQ(l.memory.text(kThere, 6), "stored");
  initiator.put(Mlx5Wqe(MLX5_OPCODE_RDMA_WRITE)
                    .datagram(target.number, kDcKey + 1, true, true)
                    .remote(l.memory.address(kThere), l.mr.rkey)
                    .inline_data("denied"));
  initiator.post(Mlx5Wqe(MLX5_OPCODE_NOP));
  EXPECT_EQ(syndrome_of(sent.wait()), MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR);
  EXPECT_EQ(syndrome_of(sent.wait()), MLX5_CQE_SYNDROME_WR_FLUSH_ERR);
  EXPECT_EQ(l.memory.text(kThere, 6), "stored");
  EXPECT_EQ(initiator.state(), IBV_QPS_ERR);
  // From RESET it counts anew.
  ASSERT_EQ(initiator.modify(IBV_QPS_RESET), 0);
  initiator.connect(0);
  EXPECT_EQ(initiator.post(Mlx5Wqe(MLX5_OPCODE_NOP)), 0);
  EXPECT_EQ(counter_of(sent.wait()), 0);
}

TEST_F(Mlx5Device, ExtendedReliableConnections) {
  Mlx5Library l;
  const std::uint32_t domain = l.open_xrcd();
  Mlx5CompletionQueue received(l, 16, 64, -1, false);
  const std::uint32_t xrc[] = {domain, received.handle};
  Mlx5SharedQueue first(l, 15, 0, xrc), second(l, 15, 0, xrc);
  Mlx5QpOptions target_options;
  target_options.type = IBV_QPT_XRC_RECV;
  target_options.sends = target_options.receives = 0;
  target_options.xrcd = domain;
  Mlx5QueuePair target(l, target_options);
  Mlx5QpOptions options;
  options.type = IBV_QPT_XRC_SEND;
  options.receives = 0;
  Mlx5QueuePair initiator(l, options);
  target.connect(initiator.number);
  initiator.connect(target.number);
  // Another handle of the target.
  ib_uverbs_open_qp open{};
  open.pd_handle = domain;
  open.qpn = target.number;
  open.qp_type = IBV_QPT_XRC_RECV;
  ib_uverbs_create_qp_resp opened{};
  ASSERT_EQ(l.call(IB_USER_VERBS_CMD_OPEN_QP, open, &opened), 0);
  EXPECT_EQ(opened.qpn, target.number);

  std::uint32_t user_index = 0;
  for (Mlx5SharedQueue* const srq : {&first, &second}) {
    const std::uint16_t index = srq->post(l.memory.address(kThere), 64, l.mr.lkey);
    initiator.post(Mlx5Wqe(MLX5_OPCODE_SEND).shared_queue(srq->number).inline_data("by XRC"));
    EXPECT_EQ(opcode_of(l.cq.front().wait()), MLX5_CQE_REQ);
    const mlx5_cqe64 e = received.wait();
    EXPECT_EQ(counter_of(e), index);
    EXPECT_NE(user_index_of(e), user_index);  // of the shared queue
    user_index = user_index_of(e);
    EXPECT_EQ(l.memory.text(kThere, 6), "by XRC");
  }
  EXPECT_EQ(target.destroy(), 0);
  std::uint32_t events = 0;
  EXPECT_EQ(second.destroy(events), 0);
  const std::uint32_t gone = second.number;
  initiator.post(Mlx5Wqe(MLX5_OPCODE_SEND).shared_queue(gone).inline_data("nobody's"));
  EXPECT_EQ(syndrome_of(l.cq.front().wait()), MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR);
}

TEST_F(Mlx5Device, SharedQueuesGoByTheirList) {
  Mlx5Library l;
  Mlx5SharedQueue srq(l, 7);
  Mlx5QpOptions options;
  options.srq = &srq;
  options.receives = 0;
  Mlx5CompletionQueue received(l, 64, 64, -1, false);
  options.receive_cq = &received;
  Mlx5QueuePair a(l, options), b(l, options);
  a.connect(b.number);
  b.connect(a.number);
  const auto post = [&](std::size_t slot) {
    return srq.post(l.memory.address(kThere + slot * 64), 64, l.mr.lkey);
  };
  std::array<std::uint16_t, 4> index{};
  for (std::size_t i = 0; i < index.size(); ++i) index[i] = post(i);
  const auto send = [&](std::string_view text) {
    a.post(Mlx5Wqe(MLX5_OPCODE_SEND).inline_data(text));
    EXPECT_EQ(opcode_of(l.cq.front().wait()), MLX5_CQE_REQ);
    const mlx5_cqe64 e = received.wait();
    EXPECT_EQ(user_index_of(e), b.user_index);
    return counter_of(e);
  };
  for (const std::uint16_t i : index) EXPECT_EQ(send("abcd"), i);
  // Given back in another order: from the fourth that is posted on they come in it.
  for (const std::size_t i : {2U, 0U, 3U, 1U}) srq.release(index[i]);
  std::vector<std::uint16_t> posted;
  for (std::size_t i = 0; i < 7; ++i) posted.push_back(post(i));
  EXPECT_EQ((std::vector<std::uint16_t>{posted[4], posted[5], posted[6]}),
            (std::vector<std::uint16_t>{index[2], index[0], index[3]}));
  for (std::size_t i = 0; i < 7; ++i) {
    EXPECT_EQ(send("round two"), posted[i]);
    EXPECT_EQ(l.memory.text(kThere + i * 64, 9), "round two");
  }
}

TEST_F(Mlx5Device, LimitOfASharedQueue) {
  Mlx5Library l;
  Mlx5SharedQueue srq(l, 127);
  Mlx5QpOptions options;
  options.srq = &srq;
  options.receives = 0;
  Mlx5CompletionQueue received(l, 256, 64, -1, false);
  options.receive_cq = &received;
  Mlx5QueuePair a(l, options), b(l, options);
  a.connect(b.number);
  b.connect(a.number);
  for (int i = 0; i < 100; ++i) (void)srq.post(l.memory.address(kThere), 64, l.mr.lkey);
  ASSERT_EQ(srq.modify(50), 0);
  const auto send = [&] {
    a.post(Mlx5Wqe(MLX5_OPCODE_SEND).inline_data("x"));
    EXPECT_EQ(opcode_of(l.cq.front().wait()), MLX5_CQE_REQ);
  };
  // However far ahead the device has looked: 50 are left behind the fiftieth.
  for (int i = 0; i < 50; ++i) {
    send();
    ASSERT_FALSE(l.has_event()) << i;
  }
  send();
  const ib_uverbs_async_event_desc event = l.event();
  EXPECT_EQ(event.event_type, static_cast<std::uint32_t>(IBV_EVENT_SRQ_LIMIT_REACHED));
  EXPECT_EQ(event.element, address_of(&srq));
  ib_uverbs_query_srq query{};
  query.srq_handle = srq.handle;
  ib_uverbs_query_srq_resp attr{};
  EXPECT_EQ(l.call(IB_USER_VERBS_CMD_QUERY_SRQ, query, &attr), 0);
  EXPECT_EQ(attr.srq_limit, 0U);  // once
  EXPECT_EQ(attr.max_wr, 127U);
  for (int i = 0; i < 49; ++i) send();
  EXPECT_FALSE(l.has_event());
  EXPECT_EQ(a.destroy(), 0);
  EXPECT_EQ(b.destroy(), 0);
  std::uint32_t events = 0;
  EXPECT_EQ(srq.destroy(events), 0);
  EXPECT_EQ(events, 1U);
}

TEST_F(Mlx5Device, TwoContexts) {
  Mlx5Library first, second;
  Mlx5QueuePair a(first), b(second);
  a.connect(b.number);
  b.connect(a.number);
  b.receive(second.memory.address(kThere), 64, second.mr.lkey);
  first.memory.put(kHere, "across");
  a.post(Mlx5Wqe(MLX5_OPCODE_SEND).data(first.memory.address(kHere), 6, first.mr.lkey));
  EXPECT_EQ(opcode_of(first.cq.front().wait()), MLX5_CQE_REQ);
  EXPECT_EQ(opcode_of(second.cq.front().wait()), MLX5_CQE_RESP_SEND);
  EXPECT_EQ(second.memory.text(kThere, 6), "across");
  // A doorbell of one page is good for all: which queue it is of is in what was stored.
  b.receive(second.memory.address(kThere), 64, second.mr.lkey);
  a.put(Mlx5Wqe(MLX5_OPCODE_SEND).inline_data("other page"));
  a.set_posted(a.posted());
  second.store(0x800, 0, a.number << 8);
  EXPECT_EQ(opcode_of(first.cq.front().wait()), MLX5_CQE_REQ);
  EXPECT_EQ(second.memory.text(kThere, 10), "other page");
  // Handles are a context's own.
  EXPECT_EQ(second.call(IB_USER_VERBS_CMD_DEALLOC_PD, ib_uverbs_dealloc_pd{first.pd + 1}), EINVAL);
}

TEST_F(Mlx5Device, TwoThreadsWithAQueuePairEach) {
  Mlx5Library l;
  constexpr int kMessages = 2000;
  const auto work = [&](std::size_t where) {
    Mlx5CompletionQueue sent(l, 16, 64, -1, false), received(l, 16, 64, -1, false);
    Mlx5QpOptions options;
    options.send_cq = &sent;
    options.receive_cq = &received;
    Mlx5QueuePair a(l, options), b(l, options);
    a.connect(b.number);
    b.connect(a.number);
    for (int i = 0; i < kMessages; ++i) {
      b.receive(l.memory.address(where), 16, l.mr.lkey);
      a.post(Mlx5Wqe(MLX5_OPCODE_SEND).inline_data({reinterpret_cast<const char*>(&i), sizeof i}));
      EXPECT_EQ(opcode_of(sent.wait()), MLX5_CQE_REQ);
      EXPECT_EQ(opcode_of(received.wait()), MLX5_CQE_RESP_SEND);
      int got = -1;
      std::memcpy(&got, l.memory.at(where), sizeof got);
      EXPECT_EQ(got, i);
    }
    EXPECT_EQ(a.destroy(), 0);
    EXPECT_EQ(b.destroy(), 0);
    ib_uverbs_destroy_cq_resp answer{};
    EXPECT_EQ(sent.destroy(answer), 0);
    EXPECT_EQ(received.destroy(answer), 0);
  };
  std::thread other(work, 1024);
  work(2048);
  other.join();
}

// One thread for each end: receives are posted by the one while the other takes them.
TEST_F(Mlx5Device, TwoThreadsWithAnEndEach) {
  Mlx5Pair p;
  Mlx5Library& l = p.library;
  constexpr std::uint32_t kMessages = 5000;
  std::thread receiver([&] {
    std::uint32_t posted = 0;
    for (std::uint32_t done = 0; done < kMessages; ++done) {
      while (posted < kMessages && posted - done < 8) {
        p.b.receive(l.memory.address(kThere + posted++ % 8 * 64), 16, l.mr.lkey);
      }
      const mlx5_cqe64 e = p.receive_cq.wait();
      ASSERT_EQ(opcode_of(e), MLX5_CQE_RESP_SEND);
      std::uint32_t got = 0;
      std::memcpy(&got, l.memory.at(kThere + done % 8 * 64), sizeof got);
      ASSERT_EQ(got, done);
    }
  });
  for (std::uint32_t i = 0; i < kMessages; ++i) {
    p.a.post(Mlx5Wqe(MLX5_OPCODE_SEND).inline_data({reinterpret_cast<const char*>(&i), sizeof i}));
    ASSERT_EQ(opcode_of(p.send_cq.wait()), MLX5_CQE_REQ);
  }
  receiver.join();
}

// A store that does not say of which queue it is looks at all of them, while they come and go.
TEST_F(Mlx5Device, QueuesEndWhileAllAreLookedAt) {
  Mlx5Library l;
  Mlx5QueuePair a(l);
  a.connect(1);
  std::atomic<bool> over{false};
  std::thread others([&] {
    for (int i = 0; i < 300; ++i) {
      Mlx5QueuePair b(l);
      b.connect(1);
      EXPECT_EQ(b.destroy(), 0);
      Mlx5CompletionQueue cq(l, 16, 64, -1, false);
      ib_uverbs_destroy_cq_resp answer{};
      EXPECT_EQ(cq.destroy(answer), 0);
    }
    over.store(true);
  });
  while (!over.load()) {
    const std::uint16_t at = a.put(Mlx5Wqe(MLX5_OPCODE_NOP));
    a.set_posted(a.posted());
    l.store_half(0x800, 0);
    ASSERT_EQ(counter_of(l.cq.front().wait()), at);
    l.store_half(0x20, 0);
  }
  others.join();
}

TEST_F(Mlx5Device, CloseWithObjectsAlive) {
  for (int i = 0; i < 3; ++i) {
    Mlx5Library l;
    const std::int32_t channel = l.create_channel();
    Mlx5CompletionQueue cq(l, 16, 64, channel, false);
    Mlx5SharedQueue srq(l, 15);
    Mlx5QpOptions options;
    options.receive_cq = &cq;
    options.srq = &srq;
    options.receives = 0;
    Mlx5QueuePair a(l, options), b(l, options);
    a.connect(b.number);
    b.connect(a.number);
    a.post(Mlx5Wqe(MLX5_OPCODE_SEND).inline_data("waits for a receive"));
    l.close_commands();
    // What is left of it says that it is gone.
    ib_uverbs_async_event_desc event{};
    EXPECT_EQ(mlx5_device().read(l.async_fd, &event, sizeof event), -1);
    EXPECT_EQ(errno, EIO);
    ib_uverbs_comp_event_desc done{};
    EXPECT_EQ(mlx5_device().read(channel, &done, sizeof done), -1);
    EXPECT_EQ(errno, EIO);
    EXPECT_EQ(mlx5_device().close(channel), 0);
    // A doorbell of queues that are gone is of no interest.
    a.ring();
  }
}

}  // namespace
}  // namespace turnout::hca::test
