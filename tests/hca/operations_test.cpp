// SPDX-License-Identifier: BSD-3-Clause
// Every operation of RC, DC and UD, within one process and between two, on shared and plain memory.
#include <arpa/inet.h>

#include <cstring>
#include <string>
#include <thread>

#include "tests/hca/rig.h"

namespace turnout::hca::test {
namespace {

// Does memory of each kind, in the same and in another process: direct stores and CMA.
struct Where {
  bool shared;
  bool other_process;
};

class Operations : public ::testing::TestWithParam<Where> {
 protected:
  void SetUp() override { use_own_fabric(); }
  void TearDown() override { EXPECT_FALSE(fabric_exists()); }
};

// Runs `initiator` and `target` in one or two processes. Words 0..15 of the exchange are theirs.
void play(bool two, const std::function<void(Exchange*)>& initiator,
          const std::function<void(Exchange*)>& target) {
  Exchange* x = exchange();
  if (two) {
    run(2, [&](unsigned rank) { rank == 0 ? initiator(x) : target(x); });
  } else {
    // Two contexts in two threads would do as well; a second process shares nothing by accident.
    run(1, [&](unsigned) {
      std::exception_ptr none;
      std::thread other([&] { target(x); });
      initiator(x);
      other.join();
    });
  }
}

enum : unsigned { kAddress, kKey, kNumber, kPeer, kPeer2 };

TEST_P(Operations, RcWriteReadSend) {
  play(
      GetParam().other_process,
      [&](Exchange* x) {
        Rig rig;
        Region local = rig.memory(1 << 20, GetParam().shared);
        ibv_qp* qp = rig.rc();
        set(x, kPeer, qp->qp_num);
        connect(qp, static_cast<std::uint32_t>(get(x, kNumber)));
        const std::uint64_t remote = get(x, kAddress);
        const auto rkey = static_cast<std::uint32_t>(get(x, kKey));
        for (std::size_t i = 0; i < local.size; ++i)
          local.data[i] = static_cast<std::uint8_t>(i * 7);
        meet(x, 0, 2);
        // Writes of several sizes side by side, then read all of it back.
        std::size_t at = 0;
        for (const std::size_t size : {1UL, 2UL, 63UL, 64UL, 4096UL, 5000UL, 300000UL}) {
          post(qp, IBV_WR_RDMA_WRITE, {local.sge(at, size)}, size, remote + at, rkey);
          const ibv_wc wc = wait_wc(rig.send_cq);
          EXPECT_EQ(wc.status, IBV_WC_SUCCESS) << size;
          EXPECT_EQ(wc.wr_id, size);
          EXPECT_EQ(wc.opcode, IBV_WC_RDMA_WRITE);
          EXPECT_EQ(wc.qp_num, qp->qp_num);
          at += size;
        }
        Region back = rig.memory(1 << 20, GetParam().shared);
        post(qp, IBV_WR_RDMA_READ, {back.sge(0, 1000), back.sge(5000, at - 1000)}, 1, remote, rkey);
        const ibv_wc wc = wait_wc(rig.send_cq);
        EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
        EXPECT_EQ(wc.opcode, IBV_WC_RDMA_READ);
        EXPECT_EQ(wc.byte_len, at);
        EXPECT_EQ(std::memcmp(back.data, local.data, 1000), 0);
        EXPECT_EQ(std::memcmp(back.data + 5000, local.data + 1000, at - 1000), 0);
        // Sends: gathered, inline, with immediate, of nothing.
        post(qp, IBV_WR_SEND, {local.sge(0, 100), local.sge(1000, 50)}, 10);
        post(qp, IBV_WR_SEND_WITH_IMM, {local.sge(3, 77)}, 11, 0, 0,
             IBV_SEND_INLINE | IBV_SEND_SIGNALED);
        post(qp, IBV_WR_SEND, {}, 12);
        post(qp, IBV_WR_RDMA_WRITE_WITH_IMM, {local.sge(0, 333)}, 13, remote + 600000, rkey);
        for (std::uint64_t id = 10; id <= 13; ++id) {
          const ibv_wc done = wait_wc(rig.send_cq);
          EXPECT_EQ(done.status, IBV_WC_SUCCESS);
          EXPECT_EQ(done.wr_id, id);
        }
        meet(x, 1, 2);
      },
      [&](Exchange* x) {
        Rig rig;
        Region target = rig.memory(1 << 20, GetParam().shared);
        ibv_qp* qp = rig.rc();
        set(x, kAddress, target.address());
        set(x, kKey, target.mr->rkey);
        set(x, kNumber, qp->qp_num);
        connect(qp, static_cast<std::uint32_t>(get(x, kPeer)));
        Region in = rig.memory(65536, GetParam().shared);
        post_recv(qp, {in.sge(0, 60), in.sge(1000, 200)}, 1);
        post_recv(qp, {in.sge(2000, 100)}, 2);
        post_recv(qp, {in.sge(3000, 100)}, 3);
        post_recv(qp, {}, 4);
        meet(x, 0, 2);
        ibv_wc wc = wait_wc(rig.recv_cq);
        EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
        EXPECT_EQ(wc.opcode, IBV_WC_RECV);
        EXPECT_EQ(wc.byte_len, 150U);
        EXPECT_EQ(wc.wr_id, 1U);
        EXPECT_EQ(wc.qp_num, qp->qp_num);
        std::uint8_t want[150];
        for (std::size_t i = 0; i < 100; ++i) want[i] = static_cast<std::uint8_t>(i * 7);
        for (std::size_t i = 0; i < 50; ++i)
          want[100 + i] = static_cast<std::uint8_t>((1000 + i) * 7);
        EXPECT_EQ(std::memcmp(in.data, want, 60), 0);
        EXPECT_EQ(std::memcmp(in.data + 1000, want + 60, 90), 0);
        wc = wait_wc(rig.recv_cq);
        EXPECT_EQ(wc.byte_len, 77U);
        EXPECT_EQ(wc.wc_flags, IBV_WC_WITH_IMM);
        EXPECT_EQ(wc.imm_data, 0x55U);
        EXPECT_EQ(in.data[2000], 21);
        wc = wait_wc(rig.recv_cq);
        EXPECT_EQ(wc.byte_len, 0U);
        EXPECT_EQ(wc.wr_id, 3U);
        wc = wait_wc(rig.recv_cq);
        EXPECT_EQ(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
        EXPECT_EQ(wc.byte_len, 333U);
        EXPECT_EQ(wc.imm_data, 0x55U);
        EXPECT_EQ(target.data[600000 + 100], static_cast<std::uint8_t>(700));
        meet(x, 1, 2);
      });
}

TEST_P(Operations, DcWriteReadSend) {
  play(
      GetParam().other_process,
      [&](Exchange* x) {
        Rig rig;
        Region local = rig.memory(65536, GetParam().shared);
        ibv_qp* qp = rig.dci();
        ready_dci(qp);
        ibv_ah* ah = rig.ah();
        const auto dctn = static_cast<std::uint32_t>(get(x, kNumber));
        const std::uint64_t remote = get(x, kAddress);
        const auto rkey = static_cast<std::uint32_t>(get(x, kKey));
        for (std::size_t i = 0; i < local.size; ++i)
          local.data[i] = static_cast<std::uint8_t>(i * 3);
        post_dc(qp, ah, dctn, IBV_WR_RDMA_WRITE, local.sge(0, 5000), 1, remote, rkey);
        EXPECT_EQ(wait_wc(rig.send_cq).status, IBV_WC_SUCCESS);
        Region back = rig.memory(65536, GetParam().shared);
        post_dc(qp, ah, dctn, IBV_WR_RDMA_READ, back.sge(0, 5000), 2, remote, rkey);
        EXPECT_EQ(wait_wc(rig.send_cq).status, IBV_WC_SUCCESS);
        EXPECT_EQ(std::memcmp(back.data, local.data, 5000), 0);
        post_dc(qp, ah, dctn, IBV_WR_SEND, local.sge(0, 100), 3, 0, 0, kDcKey,
                IBV_SEND_INLINE | IBV_SEND_SIGNALED);
        EXPECT_EQ(wait_wc(rig.send_cq).status, IBV_WC_SUCCESS);
        post_dc(qp, ah, dctn, IBV_WR_SEND_WITH_IMM, local.sge(0, 4096), 4);
        EXPECT_EQ(wait_wc(rig.send_cq).status, IBV_WC_SUCCESS);
        post_dc(qp, ah, dctn, IBV_WR_ATOMIC_FETCH_AND_ADD, back.sge(0, 8), 5, remote + 8192, rkey);
        EXPECT_EQ(wait_wc(rig.send_cq).status, IBV_WC_SUCCESS);
        meet(x, 1, 2);
      },
      [&](Exchange* x) {
        Rig rig;
        Region target = rig.memory(65536, GetParam().shared);
        Region in = rig.memory(65536, GetParam().shared);
        ibv_srq* srq = rig.srq(16);
        post_srq(srq, {in.sge(0, 4096)}, 1);
        post_srq(srq, {in.sge(4096, 4096)}, 2);
        ibv_qp* qp = rig.dct(srq);
        set(x, kAddress, target.address());
        set(x, kKey, target.mr->rkey);
        set(x, kNumber, qp->qp_num);
        ibv_wc wc = wait_wc(rig.recv_cq);
        EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
        EXPECT_EQ(wc.byte_len, 100U);
        EXPECT_EQ(wc.wr_id, 1U);
        EXPECT_EQ(wc.qp_num, qp->qp_num);
        EXPECT_EQ(in.data[99], static_cast<std::uint8_t>(297));
        wc = wait_wc(rig.recv_cq);
        EXPECT_EQ(wc.byte_len, 4096U);
        EXPECT_EQ(wc.imm_data, 0x55U);
        meet(x, 1, 2);
        EXPECT_EQ(target.data[8192], 1);
      });
}

TEST_P(Operations, Atomics) {
  play(
      GetParam().other_process,
      [&](Exchange* x) {
        Rig rig;
        Region local = rig.memory(4096, GetParam().shared);
        ibv_qp* qp = rig.rc();
        set(x, kPeer, qp->qp_num);
        connect(qp, static_cast<std::uint32_t>(get(x, kNumber)));
        const std::uint64_t remote = get(x, kAddress);
        const auto rkey = static_cast<std::uint32_t>(get(x, kKey));
        meet(x, 0, 2);
        const auto atomic = [&](ibv_wr_opcode opcode, std::uint64_t a, std::uint64_t b) {
          post_atomic(qp, opcode, local.sge(8, 8), remote + 16, rkey, a, b);
          EXPECT_EQ(wait_wc(rig.send_cq).status, IBV_WC_SUCCESS);
          std::uint64_t old = 0;
          std::memcpy(&old, local.data + 8, 8);
          return old;
        };
        EXPECT_EQ(atomic(IBV_WR_ATOMIC_FETCH_AND_ADD, 5, 0), 100U);
        EXPECT_EQ(atomic(IBV_WR_ATOMIC_FETCH_AND_ADD, 1, 0), 105U);
        EXPECT_EQ(atomic(IBV_WR_ATOMIC_CMP_AND_SWP, 7, 9), 106U);  // not equal: nothing
        EXPECT_EQ(atomic(IBV_WR_ATOMIC_CMP_AND_SWP, 106, 9), 106U);
        EXPECT_EQ(atomic(IBV_WR_ATOMIC_FETCH_AND_ADD, 0, 0), 9U);
        meet(x, 1, 2);
      },
      [&](Exchange* x) {
        Rig rig;
        Region target = rig.memory(4096, GetParam().shared);
        const std::uint64_t start = 100;
        std::memcpy(target.data + 16, &start, 8);
        ibv_qp* qp = rig.rc();
        set(x, kAddress, target.address());
        set(x, kKey, target.mr->rkey);
        set(x, kNumber, qp->qp_num);
        connect(qp, static_cast<std::uint32_t>(get(x, kPeer)));
        meet(x, 0, 2);
        meet(x, 1, 2);
      });
}

TEST_P(Operations, UdSend) {
  play(
      GetParam().other_process,
      [&](Exchange* x) {
        Rig rig;
        Region local = rig.memory(8192, GetParam().shared);
        ibv_qp* qp = rig.ud();
        ready_ud(qp);
        ibv_ah* ah = rig.ah();
        const auto number = static_cast<std::uint32_t>(get(x, kNumber));
        std::memset(local.data, 'a', local.size);
        const auto send = [&](std::uint32_t length, std::uint32_t qkey, std::uint32_t to,
                              ibv_wr_opcode opcode) {
          ibv_sge sge = local.sge(0, length);
          ibv_send_wr wr{}, *bad = nullptr;
          wr.sg_list = &sge;
          wr.num_sge = 1;
          wr.opcode = opcode;
          wr.imm_data = 0x77;
          wr.send_flags = IBV_SEND_SIGNALED;
          wr.wr.ud = {ah, to, qkey};
          EXPECT_EQ(ibv_post_send(qp, &wr, &bad), 0);
          return wait_wc(rig.send_cq).status;
        };
        EXPECT_EQ(send(100, kQkey + 1, number, IBV_WR_SEND), IBV_WC_SUCCESS);  // dropped
        EXPECT_EQ(send(100, kQkey, 0xfffff0, IBV_WR_SEND), IBV_WC_SUCCESS);    // to nobody
        EXPECT_EQ(send(200, kQkey, number, IBV_WR_SEND_WITH_IMM), IBV_WC_SUCCESS);
        ibv_qp_ex* ex = ibv_qp_to_qp_ex(qp);
        ibv_wr_start(ex);
        ex->wr_id = 5;
        ex->wr_flags = IBV_SEND_SIGNALED;
        ibv_wr_send(ex);
        ibv_wr_set_ud_addr(ex, ah, number, kQkey);
        ibv_wr_set_inline_data(ex, local.data, 30);
        EXPECT_EQ(ibv_wr_complete(ex), 0);
        EXPECT_EQ(wait_wc(rig.send_cq).status, IBV_WC_SUCCESS);
        EXPECT_EQ(send(4097, kQkey, number, IBV_WR_SEND), IBV_WC_LOC_LEN_ERR);  // above the MTU
        EXPECT_EQ(state_of(qp), IBV_QPS_SQE);
        ibv_qp_attr attr{};
        attr.qp_state = IBV_QPS_RTS;
        attr.cur_qp_state = IBV_QPS_SQE;
        EXPECT_EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_CUR_STATE), 0);
        EXPECT_EQ(send(10, kQkey, number, IBV_WR_SEND), IBV_WC_SUCCESS);
        set(x, kPeer, qp->qp_num);
        meet(x, 1, 2);
      },
      [&](Exchange* x) {
        Rig rig;
        Region in = rig.memory(65536, GetParam().shared);
        ibv_qp* qp = rig.ud();
        ready_ud(qp);
        for (std::uint64_t i = 0; i < 3; ++i) post_recv(qp, {in.sge(i * 5000, 4136)}, i);
        set(x, kNumber, qp->qp_num);
        ibv_wc wc = wait_wc(rig.recv_cq);
        EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
        EXPECT_EQ(wc.byte_len, 240U);
        EXPECT_EQ(wc.imm_data, 0x77U);
        EXPECT_EQ(in.data[40], 'a');
        EXPECT_EQ(in.data[239], 'a');
        EXPECT_EQ(in.data[240], 0);
        EXPECT_EQ(wc.slid, 1);
        const std::uint32_t source = wc.src_qp;
        EXPECT_EQ(wait_wc(rig.recv_cq).byte_len, 70U);
        EXPECT_EQ(wait_wc(rig.recv_cq).byte_len, 50U);
        EXPECT_EQ(source, get(x, kPeer));
        EXPECT_TRUE(empty(rig.recv_cq));
        meet(x, 1, 2);
      });
}

INSTANTIATE_TEST_SUITE_P(All, Operations,
                         ::testing::Values(Where{true, false}, Where{true, true},
                                           Where{false, false}, Where{false, true}),
                         [](const auto& info) {
                           return std::string(info.param.shared ? "Shared" : "Plain") +
                                  (info.param.other_process ? "TwoProcesses" : "OneProcess");
                         });

}  // namespace
}  // namespace turnout::hca::test
