// SPDX-License-Identifier: BSD-3-Clause
// The life of a queue pair: transitions, flushing, stalls and retries, reset.
#include <dlfcn.h>

#include <cerrno>
#include <cstring>

#include "tests/hca/pair.h"

namespace turnout::hca::test {
namespace {

class States : public ::testing::Test {
 protected:
  void SetUp() override { use_own_fabric(); }
};

TEST_F(States, FlushInOrder) {
  ConnectOptions options;
  options.min_rnr_timer = 31;  // 491 ms: stalled as far as this test is concerned
  Pair p(options);
  for (std::uint64_t i = 0; i < 5; ++i) post(p.a, IBV_WR_SEND, {p.local.sge(0, 8)}, i, 0, 0, 0);
  for (std::uint64_t i = 0; i < 5; ++i) post_recv(p.a, {p.local.sge(100, 8)}, 100 + i);
  EXPECT_TRUE(empty(p.cq_a));
  EXPECT_EQ(modify_state(p.a, IBV_QPS_ERR), 0);
  for (std::uint64_t i = 0; i < 5; ++i) {
    const ibv_wc wc = wait_wc(p.cq_a);
    EXPECT_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
    EXPECT_EQ(wc.wr_id, 100 + i);
  }
  for (std::uint64_t i = 0; i < 5; ++i) {
    const ibv_wc wc = wait_wc(p.cq_a);
    EXPECT_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
    EXPECT_EQ(wc.wr_id, i);
  }
  // Posting to a queue pair in error: accepted, and flushed at once.
  post(p.a, IBV_WR_SEND, {p.local.sge(0, 8)}, 50, 0, 0, 0);
  EXPECT_EQ(wait_wc(p.cq_a).wr_id, 50U);
  post_recv(p.a, {p.local.sge(0, 8)}, 51);
  EXPECT_EQ(wait_wc(p.cq_a).wr_id, 51U);
  EXPECT_TRUE(empty(p.cq_a));
}

TEST_F(States, RnrLateReceive) {
  Pair p;
  std::memset(p.local.data, 3, 64);
  for (std::uint64_t i = 0; i < 4; ++i) post(p.a, IBV_WR_SEND, {p.local.sge(0, 16)}, i);
  EXPECT_TRUE(empty(p.cq_a));
  for (std::uint64_t i = 0; i < 4; ++i) {
    post_recv(p.b, {p.remote.sge(i * 16, 16)}, i);
    EXPECT_EQ(wait_wc(p.cq_b).wr_id, i);
    const ibv_wc wc = wait_wc(p.cq_a);
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
    EXPECT_EQ(wc.wr_id, i);
  }
  EXPECT_EQ(p.remote.data[63], 3);
}

TEST_F(States, RnrRetriedByFirmwareAlone) {
  // Nobody polls or posts at the sender: the firmware thread delivers.
  Pair p;
  post(p.a, IBV_WR_SEND, {p.local.sge(0, 16)}, 1, 0, 0, 0);
  post_recv(p.b, {p.remote.sge(0, 16)}, 9);
  EXPECT_TRUE(eventually([&] {
    ibv_wc wc{};
    return ibv_poll_cq(p.cq_b, 1, &wc) == 1;
  }));
}

TEST_F(States, RnrExhausted) {
  ConnectOptions options;
  options.rnr_retry = 3;
  Pair p(options);
  post(p.a, IBV_WR_SEND, {p.local.sge(0, 16)}, 1, 0, 0, 0);
  post(p.a, IBV_WR_SEND, {p.local.sge(0, 16)}, 2, 0, 0, 0);
  ibv_wc wc = wait_wc(p.cq_a);
  EXPECT_EQ(wc.status, IBV_WC_RNR_RETRY_EXC_ERR);
  EXPECT_EQ(wc.wr_id, 1U);
  wc = wait_wc(p.cq_a);
  EXPECT_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(wc.wr_id, 2U);
  EXPECT_EQ(state_of(p.a), IBV_QPS_ERR);
  EXPECT_EQ(state_of(p.b), IBV_QPS_RTS);
  // What a kernel would count: the first attempt and three more were told that nobody is ready.
  auto* const count =
      reinterpret_cast<std::uint64_t (*)(ibv_context*)>(dlsym(RTLD_DEFAULT, "turnout_rnr_retries"));
  ASSERT_NE(count, nullptr);
  EXPECT_EQ(count(p.a->context), 4u);
}

TEST_F(States, RnrZeroRetriesFailsAtOnce) {
  ConnectOptions options;
  options.rnr_retry = 0;
  Pair p(options);
  post(p.a, IBV_WR_SEND, {p.local.sge(0, 16)}, 1);
  EXPECT_EQ(wait_wc(p.cq_a).status, IBV_WC_RNR_RETRY_EXC_ERR);
}

TEST_F(States, RetryExceeded) {
  const std::function<void(Pair&)> ways[] = {
      [](Pair& p) { p.rig.destroy(p.b); },
      [](Pair& p) { EXPECT_EQ(modify_state(p.b, IBV_QPS_RESET), 0); },
      [](Pair& p) { EXPECT_EQ(modify_state(p.b, IBV_QPS_ERR), 0); },
      [](Pair& p) {  // connected to somebody else
        EXPECT_EQ(modify_state(p.b, IBV_QPS_RESET), 0);
        connect(p.b, 0x123456);
      },
  };
  for (const auto& way : ways) {
    Pair p;
    way(p);
    post(p.a, IBV_WR_RDMA_WRITE, {p.local.sge(0, 8)}, 1, p.remote.address(), p.remote.mr->rkey);
    post(p.a, IBV_WR_SEND, {p.local.sge(0, 8)}, 2);
    EXPECT_EQ(wait_wc(p.cq_a).status, IBV_WC_RETRY_EXC_ERR);
    EXPECT_EQ(wait_wc(p.cq_a).status, IBV_WC_WR_FLUSH_ERR);
    EXPECT_EQ(state_of(p.a), IBV_QPS_ERR);
  }
}

// Of a connection both ends begin anew, or neither.
TEST_F(States, PacketSequencesThatDisagree) {
  const auto again = [](ibv_qp* qp, ibv_qp* peer, std::uint32_t rq_psn, std::uint32_t sq_psn) {
    ConnectOptions options;
    options.rq_psn = rq_psn;
    options.sq_psn = sq_psn;
    EXPECT_EQ(modify_state(qp, IBV_QPS_RESET), 0);
    connect(qp, peer->qp_num, options);
  };
  const std::function<void(Pair&)> wrong[] = {
      [&](Pair& p) { again(p.b, p.a, 0, 0); },
      [&](Pair& p) { again(p.a, p.b, 0, 0); },
      [&](Pair& p) {
        again(p.a, p.b, 0, 7);
        again(p.b, p.a, 8, 0);
      },
  };
  for (const auto& way : wrong) {
    Pair p;
    EXPECT_EQ(p.write(p.remote.address(), p.remote.mr->rkey, 8).status, IBV_WC_SUCCESS);
    way(p);
    p.local.data[0] = 77;
    EXPECT_EQ(p.write(p.remote.address(), p.remote.mr->rkey, 8).status, IBV_WC_RETRY_EXC_ERR);
    EXPECT_EQ(p.remote.data[0], 0);
  }
  const std::function<void(Pair&)> right[] = {
      [&](Pair& p) {
        again(p.a, p.b, 0, 0);
        again(p.b, p.a, 0, 0);
      },
      [&](Pair& p) {  // nothing has come to b yet, and a begins where it should have
        again(p.b, p.a, 9, 0);
        again(p.a, p.b, 0, 9);
        again(p.a, p.b, 0, 0x0100'0009);  // 24 bits count
      },
      [](Pair& p) {  // without RESET the sequence goes on
        EXPECT_EQ(modify_state(p.a, IBV_QPS_SQD), 0);
        EXPECT_EQ(modify_state(p.a, IBV_QPS_RTS), 0);
      },
  };
  for (const auto& way : right) {
    Pair p;
    EXPECT_EQ(p.write(p.remote.address(), p.remote.mr->rkey, 8).status, IBV_WC_SUCCESS);
    way(p);
    for (int i = 0; i < 2; ++i) {
      EXPECT_EQ(p.write(p.remote.address(), p.remote.mr->rkey, 8).status, IBV_WC_SUCCESS);
    }
  }
}

TEST_F(States, TargetReadyLaterIsReached) {
  Rig rig;
  ibv_qp* a = rig.rc();
  ibv_qp* b = rig.rc();
  Region m = rig.memory(4096);
  ConnectOptions options;
  options.timeout = 12;  // 17 ms a try
  options.retry_cnt = 7;
  connect(a, b->qp_num, options);
  m.data[0] = 42;
  post(a, IBV_WR_RDMA_WRITE, {m.sge(0, 8)}, 1, m.address(100), m.mr->rkey);
  EXPECT_TRUE(empty(rig.send_cq));
  connect(b, a->qp_num, options);
  EXPECT_EQ(wait_wc(rig.send_cq).status, IBV_WC_SUCCESS);
  EXPECT_EQ(m.data[100], 42);
}

TEST_F(States, ResetPurges) {
  ConnectOptions options;
  options.min_rnr_timer = 31;
  Pair p(options);
  post(p.a, IBV_WR_RDMA_WRITE, {p.local.sge(0, 8)}, 1, p.remote.address(), p.remote.mr->rkey);
  post(p.a, IBV_WR_SEND, {p.local.sge(0, 8)}, 2);  // stalls
  post_recv(p.a, {p.local.sge(0, 8)}, 3);
  EXPECT_EQ(modify_state(p.a, IBV_QPS_RESET), 0);
  EXPECT_TRUE(empty(p.cq_a));
  connect(p.a, p.b->qp_num);
  post_recv(p.a, {p.local.sge(64, 8)}, 4);
  post(p.b, IBV_WR_SEND, {p.remote.sge(0, 8)}, 5);
  const ibv_wc wc = wait_wc(p.cq_a);
  EXPECT_EQ(wc.wr_id, 4U);
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_TRUE(empty(p.cq_a));
}

TEST_F(States, DestroyRemovesCompletions) {
  Pair p;
  ibv_qp* c = p.rig.rc([&] {
    QpOptions o;
    o.send_cq = o.recv_cq = p.cq_a;
    return o;
  }());
  ibv_qp* d = p.rig.rc();
  connect(c, d->qp_num);
  connect(d, c->qp_num);
  post(c, IBV_WR_RDMA_WRITE, {p.local.sge(0, 8)}, 1, p.remote.address(), p.remote.mr->rkey);
  post(p.a, IBV_WR_RDMA_WRITE, {p.local.sge(0, 8)}, 2, p.remote.address(), p.remote.mr->rkey);
  p.rig.destroy(c);
  EXPECT_EQ(wait_wc(p.cq_a).wr_id, 2U);
  EXPECT_TRUE(empty(p.cq_a));
}

TEST_F(States, Transitions) {
  Rig rig;
  ibv_qp* qp = rig.rc();
  ibv_qp_attr a{};
  EXPECT_EQ(modify_state(qp, IBV_QPS_RTR), EINVAL);
  EXPECT_EQ(modify_state(qp, IBV_QPS_RTS), EINVAL);
  EXPECT_EQ(modify_state(qp, IBV_QPS_INIT), EINVAL);  // attributes missing
  a.qp_state = IBV_QPS_INIT;
  a.port_num = 2;
  constexpr int kInit = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
  EXPECT_EQ(ibv_modify_qp(qp, &a, kInit), EINVAL);  // no such port
  a.port_num = 1;
  EXPECT_EQ(ibv_modify_qp(qp, &a, kInit | IBV_QP_QKEY), EINVAL);  // not for RC
  EXPECT_EQ(ibv_modify_qp(qp, &a, kInit), 0);
  post(qp, IBV_WR_SEND, {}, 1, 0, 0, 0, EINVAL);  // not in INIT
  EXPECT_EQ(modify_state(qp, IBV_QPS_RTS), EINVAL);
  EXPECT_EQ(modify_state(qp, IBV_QPS_RTR), EINVAL);
  to_rtr(qp, 5);
  a = {};
  a.qp_state = IBV_QPS_RTS;
  a.cur_qp_state = IBV_QPS_INIT;
  EXPECT_EQ(
      ibv_modify_qp(qp, &a,
                    IBV_QP_STATE | IBV_QP_CUR_STATE | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC |
                        IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_TIMEOUT),
      EINVAL);  // it is not in INIT
  to_rts(qp);
  ibv_qp_attr got{};
  ibv_qp_init_attr init{};
  EXPECT_EQ(ibv_query_qp(qp, &got, 0, &init), 0);
  EXPECT_EQ(got.qp_state, IBV_QPS_RTS);
  EXPECT_EQ(got.dest_qp_num, 5U);
  EXPECT_EQ(got.retry_cnt, 3);
  EXPECT_EQ(init.cap.max_send_wr, 64U);
  EXPECT_EQ(modify_state(qp, IBV_QPS_SQD), 0);
  EXPECT_EQ(modify_state(qp, IBV_QPS_RTS), 0);
  EXPECT_EQ(modify_state(qp, IBV_QPS_ERR), 0);
  EXPECT_EQ(modify_state(qp, IBV_QPS_RTS), EINVAL);
  EXPECT_EQ(modify_state(qp, IBV_QPS_RESET), 0);
  // A DCT goes to RTR and no further; without its SRQ it is not even made.
  ibv_qp* dct = rig.dct(rig.srq(4));
  EXPECT_EQ(modify_state(dct, IBV_QPS_RTS), EINVAL);
  EXPECT_EQ(modify_state(dct, IBV_QPS_ERR), EINVAL);
}

TEST_F(States, DrainedQueueSendsAfterwards) {
  Pair p;
  EXPECT_EQ(modify_state(p.a, IBV_QPS_SQD), 0);
  p.local.data[0] = 5;
  post(p.a, IBV_WR_RDMA_WRITE, {p.local.sge(0, 8)}, 1, p.remote.address(), p.remote.mr->rkey);
  EXPECT_TRUE(empty(p.cq_a));
  EXPECT_EQ(p.remote.data[0], 0);
  EXPECT_EQ(modify_state(p.a, IBV_QPS_RTS), 0);
  EXPECT_EQ(wait_wc(p.cq_a).status, IBV_WC_SUCCESS);
  EXPECT_EQ(p.remote.data[0], 5);
}

}  // namespace
}  // namespace turnout::hca::test
