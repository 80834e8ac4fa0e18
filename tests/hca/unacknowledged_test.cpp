// SPDX-License-Identifier: BSD-3-Clause
// Unreliable connections: messages and writes as over RC, and what is lost without a word.
#include <cstring>

#include "tests/hca/rig.h"

namespace turnout::hca::test {
namespace {

class Unacknowledged : public ::testing::Test {
 protected:
  void SetUp() override { use_own_fabric(); }
  void TearDown() override { EXPECT_FALSE(fabric_exists()); }
};

struct UcPair {
  UcPair() {
    QpOptions oa, ob;
    oa.send_cq = oa.recv_cq = cq_a = rig.cq(64);
    ob.send_cq = ob.recv_cq = cq_b = rig.cq(64);
    a = rig.uc(oa);
    b = rig.uc(ob);
    connect(a, b->qp_num);
    connect(b, a->qp_num);
    local = rig.memory(65536);
    remote = rig.memory(65536);
    for (std::size_t i = 0; i < local.size; ++i) local.data[i] = static_cast<std::uint8_t>(i * 3);
  }
  Rig rig;
  ibv_cq *cq_a, *cq_b;
  ibv_qp *a, *b;
  Region local, remote;
};

TEST_F(Unacknowledged, SendsAndWrites) {
  UcPair p;
  post_recv(p.b, {p.remote.sge(0, 1000)}, 7);
  post(p.a, IBV_WR_SEND_WITH_IMM, {p.local.sge(0, 600)}, 1);
  EXPECT_EQ(wait_wc(p.cq_a).status, IBV_WC_SUCCESS);
  ibv_wc wc = wait_wc(p.cq_b);
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(wc.wr_id, 7U);
  EXPECT_EQ(wc.byte_len, 600U);
  EXPECT_EQ(wc.imm_data, 0x55U);
  EXPECT_EQ(std::memcmp(p.local.data, p.remote.data, 600), 0);

  post(p.a, IBV_WR_RDMA_WRITE, {p.local.sge(0, 5000)}, 2, p.remote.address(10000),
       p.remote.mr->rkey);
  EXPECT_EQ(wait_wc(p.cq_a).status, IBV_WC_SUCCESS);
  EXPECT_EQ(std::memcmp(p.local.data, p.remote.data + 10000, 5000), 0);
}

TEST_F(Unacknowledged, NeitherReadsNorAtomics) {
  UcPair p;
  for (const ibv_wr_opcode opcode : {IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD}) {
    post(p.a, opcode, {p.local.sge(0, 8)}, 1, p.remote.address(0), p.remote.mr->rkey,
         IBV_SEND_SIGNALED, EINVAL);
  }
}

TEST_F(Unacknowledged, WhatFindsNoReceiveOrNoRightIsLost) {
  UcPair p;
  post(p.a, IBV_WR_SEND, {p.local.sge(0, 10)}, 1);  // no receive
  EXPECT_EQ(wait_wc(p.cq_a).status, IBV_WC_SUCCESS);
  post(p.a, IBV_WR_RDMA_WRITE, {p.local.sge(0, 10)}, 2, p.remote.address(0), 0xdead00);
  EXPECT_EQ(wait_wc(p.cq_a).status, IBV_WC_SUCCESS);
  EXPECT_TRUE(empty(p.cq_b));
  EXPECT_EQ(p.remote.data[0], 0);
  // Both ends work on.
  EXPECT_EQ(state_of(p.a), IBV_QPS_RTS);
  EXPECT_EQ(state_of(p.b), IBV_QPS_RTS);
  post_recv(p.b, {p.remote.sge(0, 100)}, 3);
  post(p.a, IBV_WR_SEND, {p.local.sge(1, 10)}, 3);
  EXPECT_EQ(wait_wc(p.cq_b).status, IBV_WC_SUCCESS);
}

TEST_F(Unacknowledged, AMessageThatIsTooLongFailsTheReceiverAlone) {
  UcPair p;
  post_recv(p.b, {p.remote.sge(0, 10)}, 4);
  post(p.a, IBV_WR_SEND, {p.local.sge(0, 11)}, 1);
  EXPECT_EQ(wait_wc(p.cq_a).status, IBV_WC_SUCCESS);
  EXPECT_EQ(wait_wc(p.cq_b).status, IBV_WC_LOC_LEN_ERR);
  EXPECT_EQ(state_of(p.a), IBV_QPS_RTS);
  EXPECT_EQ(state_of(p.b), IBV_QPS_ERR);
}

TEST_F(Unacknowledged, ALostPeerIsNotNoticed) {
  UcPair p;
  p.rig.destroy(p.b);
  post(p.a, IBV_WR_SEND, {p.local.sge(0, 10)}, 1);
  EXPECT_EQ(wait_wc(p.cq_a).status, IBV_WC_SUCCESS);
}

TEST_F(Unacknowledged, ALocalErrorStopsTheSendQueueUntilItIsPutRight) {
  UcPair p;
  ibv_sge bad = p.local.sge(0, 10);
  bad.lkey = 0xdead00;
  post(p.a, IBV_WR_SEND, {bad}, 1);
  EXPECT_EQ(wait_wc(p.cq_a).status, IBV_WC_LOC_PROT_ERR);
  EXPECT_EQ(state_of(p.a), IBV_QPS_SQE);
  post(p.a, IBV_WR_SEND, {p.local.sge(0, 10)}, 2);
  EXPECT_EQ(wait_wc(p.cq_a).status, IBV_WC_WR_FLUSH_ERR);
  ASSERT_EQ(modify_state(p.a, IBV_QPS_RTS), 0);
  post_recv(p.b, {p.remote.sge(0, 10)}, 3);
  post(p.a, IBV_WR_SEND, {p.local.sge(0, 10)}, 3);
  EXPECT_EQ(wait_wc(p.cq_a).status, IBV_WC_SUCCESS);
  EXPECT_EQ(wait_wc(p.cq_b).status, IBV_WC_SUCCESS);
}

}  // namespace
}  // namespace turnout::hca::test
