// SPDX-License-Identifier: BSD-3-Clause
// What goes wrong with one request, as the IBTA says it shall: keys, bounds, domains, rights,
// lengths.
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "tests/hca/pair.h"

namespace turnout::hca::test {
namespace {

class Errors : public ::testing::Test {
 protected:
  void SetUp() override { use_own_fabric(); }
};

TEST_F(Errors, RemoteAccess) {
  struct Case {
    const char* name;
    std::function<ibv_wc(Pair&)> go;
  };
  const Case cases[] = {
      {"unknown key",
       [](Pair& p) { return p.write(p.remote.address(), p.remote.mr->rkey ^ 0x700, 8); }},
      {"old generation",
       [](Pair& p) { return p.write(p.remote.address(), p.remote.mr->rkey ^ 1, 8); }},
      {"key 0", [](Pair& p) { return p.write(p.remote.address(), 0, 8); }},
      {"past the end",
       [](Pair& p) { return p.write(p.remote.address(65530), p.remote.mr->rkey, 8); }},
      {"before it", [](Pair& p) { return p.write(p.remote.address() - 1, p.remote.mr->rkey, 8); }},
      {"wraps", [](Pair& p) { return p.write(~0ULL - 3, p.remote.mr->rkey, 8); }},
      {"no right to write",
       [](Pair& p) {
         const Region r = p.rig.memory(4096, true, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
         return p.write(r.address(), r.mr->rkey, 8);
       }},
      {"no right to read",
       [](Pair& p) {
         const Region r =
             p.rig.memory(4096, true, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
         return p.write(r.address(), r.mr->rkey, 8, IBV_WR_RDMA_READ);
       }},
      {"another domain",
       [](Pair& p) {
         ibv_pd* pd = ibv_alloc_pd(p.rig.context);
         Region r = p.rig.memory(4096, true, kFullAccess, pd);
         const ibv_wc wc = p.write(r.address(), r.mr->rkey, 8);
         p.rig.drop(r);
         EXPECT_EQ(ibv_dealloc_pd(pd), 0);
         return wc;
       }},
      {"deregistered",
       [](Pair& p) {
         Region r = p.rig.memory(4096);
         EXPECT_EQ(p.write(r.address(), r.mr->rkey, 8).status, IBV_WC_SUCCESS);
         const std::uint64_t address = r.address();
         const std::uint32_t key = r.mr->rkey;
         p.rig.drop(r);
         return p.write(address, key, 8);
       }},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    Pair p;
    post_recv(p.b, {p.remote.sge(0, 8)}, 77);
    const ibv_wc wc = c.go(p);
    EXPECT_EQ(wc.status, IBV_WC_REM_ACCESS_ERR);
    EXPECT_EQ(state_of(p.a), IBV_QPS_ERR);
    EXPECT_EQ(state_of(p.b), IBV_QPS_ERR);
    const ibv_async_event e = p.event();
    EXPECT_EQ(e.event_type, IBV_EVENT_QP_ACCESS_ERR);
    EXPECT_EQ(e.element.qp, p.b);
    const ibv_wc flushed = wait_wc(p.cq_b);
    EXPECT_EQ(flushed.status, IBV_WC_WR_FLUSH_ERR);
    EXPECT_EQ(flushed.wr_id, 77U);
    EXPECT_EQ(p.remote.data[0], 0);
  }
}

TEST_F(Errors, QueuePairWithoutRight) {
  ConnectOptions options;
  options.access = IBV_ACCESS_REMOTE_READ;
  Pair p(options);
  EXPECT_EQ(p.write(p.remote.address(), p.remote.mr->rkey, 8, IBV_WR_RDMA_READ).status,
            IBV_WC_SUCCESS);
  EXPECT_EQ(p.write(p.remote.address(), p.remote.mr->rkey, 8).status, IBV_WC_REM_INV_REQ_ERR);
  EXPECT_EQ(p.event().event_type, IBV_EVENT_QP_REQ_ERR);
}

TEST_F(Errors, LocalProtection) {
  {
    Pair p;
    ibv_sge bad = p.local.sge(0, 8);
    bad.lkey ^= 1;
    post(p.a, IBV_WR_RDMA_WRITE, {bad}, 1, p.remote.address(), p.remote.mr->rkey);
    EXPECT_EQ(wait_wc(p.cq_a).status, IBV_WC_LOC_PROT_ERR);
    EXPECT_EQ(state_of(p.a), IBV_QPS_ERR);
    EXPECT_EQ(state_of(p.b), IBV_QPS_RTS);  // the peer saw nothing
  }
  {
    Pair p;  // a read into memory without local write
    Region r = p.rig.memory(4096, true, IBV_ACCESS_REMOTE_READ);
    post(p.a, IBV_WR_RDMA_READ, {r.sge(0, 8)}, 1, p.remote.address(), p.remote.mr->rkey);
    EXPECT_EQ(wait_wc(p.cq_a).status, IBV_WC_LOC_PROT_ERR);
  }
}

TEST_F(Errors, MessageLongerThanReceive) {
  Pair p;
  post_recv(p.b, {p.remote.sge(0, 10), p.remote.sge(100, 10)}, 5);
  post_recv(p.b, {p.remote.sge(0, 10)}, 6);
  post(p.a, IBV_WR_SEND, {p.local.sge(0, 21)}, 1);
  EXPECT_EQ(wait_wc(p.cq_a).status, IBV_WC_REM_INV_REQ_ERR);
  ibv_wc wc = wait_wc(p.cq_b);
  EXPECT_EQ(wc.status, IBV_WC_LOC_LEN_ERR);
  EXPECT_EQ(wc.wr_id, 5U);
  wc = wait_wc(p.cq_b);
  EXPECT_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(wc.wr_id, 6U);
  EXPECT_EQ(p.event().event_type, IBV_EVENT_QP_REQ_ERR);
}

TEST_F(Errors, ReceiveWithBadKey) {
  Pair p;
  ibv_sge bad = p.remote.sge(0, 64);
  bad.lkey ^= 1;
  post_recv(p.b, {bad}, 5);
  post(p.a, IBV_WR_SEND, {p.local.sge(0, 8)}, 1);
  EXPECT_EQ(wait_wc(p.cq_a).status, IBV_WC_REM_OP_ERR);
  EXPECT_EQ(wait_wc(p.cq_b).status, IBV_WC_LOC_PROT_ERR);
  EXPECT_EQ(p.event().event_type, IBV_EVENT_QP_FATAL);
}

TEST_F(Errors, ShorterMessageThanReceive) {
  Pair p;
  std::memset(p.local.data, 9, 100);
  post_recv(p.b, {p.remote.sge(0, 100)}, 5);
  post(p.a, IBV_WR_SEND, {p.local.sge(0, 10)}, 1);
  EXPECT_EQ(wait_wc(p.cq_b).byte_len, 10U);
  EXPECT_EQ(p.remote.data[9], 9);
  EXPECT_EQ(p.remote.data[10], 0);
}

TEST_F(Errors, UnalignedAtomic) {
  Pair p;
  post(p.a, IBV_WR_ATOMIC_FETCH_AND_ADD, {p.local.sge(0, 8)}, 1, p.remote.address(4),
       p.remote.mr->rkey);
  EXPECT_EQ(wait_wc(p.cq_a).status, IBV_WC_REM_INV_REQ_ERR);
}

TEST_F(Errors, DctSurvivesDciDoesNot) {
  Rig rig;
  ibv_srq* srq = rig.srq(8);
  Region in = rig.memory(4096);
  ibv_qp* dct = rig.dct(srq);
  ibv_qp* dci = rig.dci();
  ready_dci(dci);
  ibv_ah* ah = rig.ah();
  post_dc(dci, ah, dct->qp_num, IBV_WR_RDMA_WRITE, in.sge(0, 8), 1, in.address(4090), in.mr->rkey);
  EXPECT_EQ(wait_wc(rig.send_cq).status, IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(state_of(dci), IBV_QPS_ERR);
  EXPECT_EQ(state_of(dct), IBV_QPS_RTR);
  // Through RESET it works again; a wrong access key is refused.
  EXPECT_EQ(modify_state(dci, IBV_QPS_RESET), 0);
  ready_dci(dci);
  post_dc(dci, ah, dct->qp_num, IBV_WR_RDMA_WRITE, in.sge(0, 8), 2, in.address(), in.mr->rkey);
  EXPECT_EQ(wait_wc(rig.send_cq).status, IBV_WC_SUCCESS);
  post_dc(dci, ah, dct->qp_num, IBV_WR_RDMA_WRITE, in.sge(0, 8), 3, in.address(), in.mr->rkey,
          kDcKey + 1);
  EXPECT_EQ(wait_wc(rig.send_cq).status, IBV_WC_REM_ACCESS_ERR);
  // A message too long for the SRQ's buffer: the DCT lives on, too.
  EXPECT_EQ(modify_state(dci, IBV_QPS_RESET), 0);
  ready_dci(dci);
  post_srq(srq, {in.sge(0, 4)}, 9);
  post_dc(dci, ah, dct->qp_num, IBV_WR_SEND, in.sge(0, 8), 4);
  EXPECT_EQ(wait_wc(rig.send_cq).status, IBV_WC_REM_INV_REQ_ERR);
  const ibv_wc wc = wait_wc(rig.recv_cq);
  EXPECT_EQ(wc.status, IBV_WC_LOC_LEN_ERR);
  EXPECT_EQ(wc.wr_id, 9U);
  EXPECT_EQ(state_of(dct), IBV_QPS_RTR);
}

TEST_F(Errors, Registration) {
  Rig rig;
  std::uint8_t bytes[16];
  errno = 0;
  EXPECT_EQ(ibv_reg_mr(rig.pd, bytes, sizeof bytes, int{IBV_ACCESS_REMOTE_WRITE}), nullptr);
  EXPECT_EQ(errno, EINVAL);  // remote write needs local write
  Region r = rig.memory(4096);
  EXPECT_EQ(ibv_reg_dmabuf_mr(rig.pd, 4000, 200, 0, r.fd, IBV_ACCESS_LOCAL_WRITE), nullptr);
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  EXPECT_EQ(ibv_reg_dmabuf_mr(rig.pd, 0, 1, 0, ends[0], IBV_ACCESS_LOCAL_WRITE), nullptr);
  close(ends[0]);
  close(ends[1]);
}

TEST_F(Errors, GlobalDatagramCarriesItsRoute) {
  Rig rig;
  Region m = rig.memory(4096);
  ibv_qp* a = rig.ud();
  ibv_qp* b = rig.ud();
  ready_ud(a);
  ready_ud(b);
  post_recv(b, {m.sge(0, 1000)}, 1);
  ibv_ah_attr attr{};
  attr.port_num = 1;
  attr.is_global = 1;
  EXPECT_EQ(ibv_query_gid(rig.context, 1, 0, &attr.grh.dgid), 0);
  ibv_ah* ah = ibv_create_ah(rig.pd, &attr);
  ASSERT_NE(ah, nullptr);
  ibv_sge sge = m.sge(2000, 10);
  ibv_send_wr wr{}, *bad = nullptr;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_SEND;
  wr.wr.ud = {ah, b->qp_num, kQkey};
  EXPECT_EQ(ibv_post_send(a, &wr, &bad), 0);
  ibv_wc wc = wait_wc(rig.recv_cq);
  EXPECT_EQ(wc.wc_flags, IBV_WC_GRH);
  EXPECT_EQ(wc.byte_len, 50U);
  // Answered by what it brought.
  ibv_ah* back = ibv_create_ah_from_wc(rig.pd, &wc, reinterpret_cast<ibv_grh*>(m.data), 1);
  ASSERT_NE(back, nullptr);
  post_recv(a, {m.sge(0, 1000)}, 2);
  wr.wr.ud = {back, wc.src_qp, kQkey};
  EXPECT_EQ(ibv_post_send(b, &wr, &bad), 0);
  EXPECT_EQ(wait_wc(rig.recv_cq).wr_id, 2U);
  EXPECT_EQ(ibv_destroy_ah(ah), 0);
  EXPECT_EQ(ibv_destroy_ah(back), 0);
}

}  // namespace
}  // namespace turnout::hca::test
