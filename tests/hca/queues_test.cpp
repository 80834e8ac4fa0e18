// SPDX-License-Identifier: BSD-3-Clause
// Limits of queues: full send, receive and completion queues, SRQ limit events, batches, busy
// objects.
#include <cerrno>
#include <vector>

#include "tests/hca/pair.h"

namespace turnout::hca::test {
namespace {

class Queues : public ::testing::Test {
 protected:
  void SetUp() override { use_own_fabric(); }
};

TEST_F(Queues, QueueLimits) {
  Pair p;
  QpOptions small;
  small.send_wr = 4;
  small.recv_wr = 3;
  ibv_qp* c = p.rig.rc(small);
  ibv_qp* d = p.rig.rc();
  connect(c, d->qp_num);
  connect(d, c->qp_num);
  const auto write = [&](unsigned flags, int expect) {
    post(c, IBV_WR_RDMA_WRITE, {p.local.sge(0, 8)}, 1, p.remote.address(), p.remote.mr->rkey, flags,
         expect);
  };
  // Entries come back when a completion is polled, not before: as on real adapters.
  for (int i = 0; i < 3; ++i) write(0, 0);
  write(IBV_SEND_SIGNALED, 0);
  write(0, ENOMEM);
  EXPECT_EQ(wait_wc(p.rig.send_cq).status, IBV_WC_SUCCESS);
  write(0, 0);
  for (std::uint64_t i = 0; i < 3; ++i) post_recv(c, {p.local.sge(0, 8)}, i);
  post_recv(c, {p.local.sge(0, 8)}, 4, ENOMEM);
  // Too many segments, too much inline.
  const ibv_sge s = p.local.sge(0, 1);
  post(c, IBV_WR_SEND, {s, s, s, s, s}, 1, 0, 0, 0, EINVAL);
  post(c, IBV_WR_SEND, {p.local.sge(0, 257)}, 1, 0, 0, IBV_SEND_INLINE, ENOMEM);
  post_recv(d, {s, s, s, s, s}, 1, EINVAL);
}

TEST_F(Queues, BatchIsAllOrNothing) {
  Pair p;
  ibv_qp_ex* ex = ibv_qp_to_qp_ex(p.a);
  std::uint8_t byte = 7;
  ibv_wr_start(ex);
  for (std::uint64_t i = 0; i < 3; ++i) {
    ex->wr_id = i;
    ex->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_rdma_write(ex, p.remote.mr->rkey, p.remote.address(i));
    ibv_wr_set_inline_data(ex, &byte, 1);
  }
  ibv_wr_abort(ex);
  EXPECT_TRUE(empty(p.cq_a));
  ibv_wr_start(ex);
  for (std::uint64_t i = 0; i < 3; ++i) {
    ex->wr_id = i;
    ibv_wr_rdma_write(ex, p.remote.mr->rkey, p.remote.address(i));
    if (i == 2) {
      const std::vector<std::uint8_t> big(300);
      ibv_wr_set_inline_data(ex, const_cast<std::uint8_t*>(big.data()), big.size());
    } else {
      ibv_wr_set_inline_data(ex, &byte, 1);
    }
  }
  EXPECT_EQ(ibv_wr_complete(ex), EINVAL);
  EXPECT_EQ(p.remote.data[0], 0);
  ibv_wr_start(ex);
  for (std::uint64_t i = 0; i < 3; ++i) {
    ex->wr_id = i;
    ibv_wr_rdma_write(ex, p.remote.mr->rkey, p.remote.address(i));
    ibv_wr_set_inline_data(ex, &byte, 1);
  }
  EXPECT_EQ(ibv_wr_complete(ex), 0);
  for (std::uint64_t i = 0; i < 3; ++i) EXPECT_EQ(wait_wc(p.cq_a).wr_id, i);
  EXPECT_EQ(p.remote.data[2], 7);
}

TEST_F(Queues, BusyObjectsStay) {
  Rig rig;
  ibv_qp* qp = rig.rc();
  EXPECT_EQ(ibv_dealloc_pd(rig.pd), EBUSY);
  EXPECT_EQ(ibv_destroy_cq(rig.send_cq), EBUSY);
  // The device alone closes; what is left works on and can be destroyed.
  EXPECT_EQ(ibv_close_device(rig.context), 0);
  EXPECT_EQ(modify_state(qp, IBV_QPS_RESET), 0);
  rig.destroy(qp);
}

TEST_F(Queues, CompletionQueueOverflow) {
  Pair p;
  ibv_cq* tiny = p.rig.cq(2);
  QpOptions o;
  o.send_cq = tiny;
  o.recv_cq = p.rig.cq(8);
  ibv_qp* c = p.rig.rc(o);
  ibv_qp* d = p.rig.rc();
  connect(c, d->qp_num);
  connect(d, c->qp_num);
  for (std::uint64_t i = 0; i < 3; ++i) {
    post(c, IBV_WR_RDMA_WRITE, {p.local.sge(0, 8)}, i, p.remote.address(), p.remote.mr->rkey);
  }
  const ibv_async_event e = p.event();
  EXPECT_EQ(e.event_type, IBV_EVENT_CQ_ERR);
  EXPECT_EQ(e.element.cq, tiny);
  const ibv_async_event q = p.event();
  EXPECT_EQ(q.event_type, IBV_EVENT_QP_FATAL);
  EXPECT_EQ(q.element.qp, c);
  // What was in it can be polled; then the queue says that it is broken.
  ibv_wc wc{};
  EXPECT_EQ(ibv_poll_cq(tiny, 1, &wc), 1);
  EXPECT_EQ(ibv_poll_cq(tiny, 1, &wc), 1);
  EXPECT_EQ(ibv_poll_cq(tiny, 1, &wc), -1);
  EXPECT_EQ(state_of(c), IBV_QPS_ERR);
}

TEST_F(Queues, ResizeKeepsEntries) {
  Pair p;
  for (std::uint64_t i = 0; i < 40; ++i) {
    post(p.a, IBV_WR_RDMA_WRITE, {p.local.sge(0, 8)}, i, p.remote.address(), p.remote.mr->rkey);
  }
  EXPECT_EQ(ibv_resize_cq(p.cq_a, 16), EINVAL);  // does not hold what is there
  EXPECT_EQ(ibv_resize_cq(p.cq_a, 500), 0);
  EXPECT_GE(p.cq_a->cqe, 500);
  for (std::uint64_t i = 0; i < 40; ++i) EXPECT_EQ(wait_wc(p.cq_a).wr_id, i);
  EXPECT_EQ(ibv_resize_cq(p.cq_a, 4), 0);
  post(p.a, IBV_WR_RDMA_WRITE, {p.local.sge(0, 8)}, 77, p.remote.address(), p.remote.mr->rkey);
  EXPECT_EQ(wait_wc(p.cq_a).wr_id, 77U);
}

TEST_F(Queues, SrqLimitEvent) {
  Rig rig;
  ibv_srq* srq = rig.srq(16);
  Region m = rig.memory(4096);
  ibv_qp* dct = rig.dct(srq);
  ibv_qp* dci = rig.dci();
  ready_dci(dci);
  ibv_ah* ah = rig.ah();
  for (std::uint64_t i = 0; i < 8; ++i) post_srq(srq, {m.sge(0, 64)}, i);
  ibv_srq_attr attr{};
  attr.srq_limit = 6;
  EXPECT_EQ(ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT), 0);
  const auto send = [&] {
    post_dc(dci, ah, dct->qp_num, IBV_WR_SEND, m.sge(0, 8), 1);
    EXPECT_EQ(wait_wc(rig.send_cq).status, IBV_WC_SUCCESS);
  };
  send();  // 7 left
  send();  // 6
  EXPECT_FALSE(readable(rig.context->async_fd, 0));
  send();  // 5: below
  ibv_async_event e{};
  ASSERT_TRUE(readable(rig.context->async_fd, 10000));
  EXPECT_EQ(ibv_get_async_event(rig.context, &e), 0);
  EXPECT_EQ(e.event_type, IBV_EVENT_SRQ_LIMIT_REACHED);
  EXPECT_EQ(e.element.srq, srq);
  ibv_ack_async_event(&e);
  send();  // one event only
  EXPECT_FALSE(readable(rig.context->async_fd, 0));
  EXPECT_EQ(ibv_query_srq(srq, &attr), 0);
  EXPECT_EQ(attr.srq_limit, 0U);
  attr.srq_limit = 10;  // armed when it is below already
  EXPECT_EQ(ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT), 0);
  EXPECT_EQ(ibv_get_async_event(rig.context, &e), 0);
  ibv_ack_async_event(&e);
}

}  // namespace
}  // namespace turnout::hca::test
