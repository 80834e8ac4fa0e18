// What goes wrong, as the IBTA says it shall: keys, bounds, domains, rights, lengths, states, retries.
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "tests/hca/rig.h"

namespace turnout::hca::test {
namespace {

// Two RC queue pairs of one process, connected; their own CQs.
class Errors : public ::testing::Test {
 protected:
  void SetUp() override { use_own_fabric(); }

  struct Pair {
    explicit Pair(const ConnectOptions& options = {}, const QpOptions& b_options = {}) {
      QpOptions oa, ob = b_options;
      oa.send_cq = oa.recv_cq = cq_a = rig.cq(64);
      ob.send_cq = ob.recv_cq = cq_b = rig.cq(64);
      a = rig.rc(oa);
      b = rig.rc(ob);
      connect(a, b->qp_num, options);
      connect(b, a->qp_num, options);
      local = rig.memory(65536);
      remote = rig.memory(65536);
    }
    ibv_wc write(std::uint64_t address, std::uint32_t key, std::size_t length,
                 ibv_wr_opcode opcode = IBV_WR_RDMA_WRITE) {
      post(a, opcode, {local.sge(0, length)}, 1, address, key);
      return wait_wc(cq_a);
    }
    ibv_async_event event() {
      ibv_async_event e{};
      EXPECT_TRUE(readable(rig.context->async_fd, 10000));
      EXPECT_EQ(ibv_get_async_event(rig.context, &e), 0);
      ibv_ack_async_event(&e);
      return e;
    }
    Rig rig;
    ibv_cq *cq_a, *cq_b;
    ibv_qp *a, *b;
    Region local, remote;
  };
};

TEST_F(Errors, RemoteAccess) {
  struct Case {
    const char* name;
    std::function<ibv_wc(Pair&)> go;
  };
  const Case cases[] = {
      {"unknown key", [](Pair& p) { return p.write(p.remote.address(), p.remote.mr->rkey ^ 0x700, 8); }},
      {"old generation", [](Pair& p) { return p.write(p.remote.address(), p.remote.mr->rkey ^ 1, 8); }},
      {"key 0", [](Pair& p) { return p.write(p.remote.address(), 0, 8); }},
      {"past the end", [](Pair& p) { return p.write(p.remote.address(65530), p.remote.mr->rkey, 8); }},
      {"before it", [](Pair& p) { return p.write(p.remote.address() - 1, p.remote.mr->rkey, 8); }},
      {"wraps", [](Pair& p) { return p.write(~0ULL - 3, p.remote.mr->rkey, 8); }},
      {"no right to write",
       [](Pair& p) {
         const Region r = p.rig.memory(4096, true, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
         return p.write(r.address(), r.mr->rkey, 8);
       }},
      {"no right to read",
       [](Pair& p) {
         const Region r = p.rig.memory(4096, true, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
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
  EXPECT_EQ(p.write(p.remote.address(), p.remote.mr->rkey, 8).status, IBV_WC_REM_ACCESS_ERR);
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

TEST_F(Errors, FlushInOrder) {
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

TEST_F(Errors, RnrLateReceive) {
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

TEST_F(Errors, RnrRetriedByFirmwareAlone) {
  // Nobody polls or posts at the sender: the firmware thread delivers.
  Pair p;
  post(p.a, IBV_WR_SEND, {p.local.sge(0, 16)}, 1, 0, 0, 0);
  post_recv(p.b, {p.remote.sge(0, 16)}, 9);
  EXPECT_TRUE(eventually([&] {
    ibv_wc wc{};
    return ibv_poll_cq(p.cq_b, 1, &wc) == 1;
  }));
}

TEST_F(Errors, RnrExhausted) {
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
}

TEST_F(Errors, RnrZeroRetriesFailsAtOnce) {
  ConnectOptions options;
  options.rnr_retry = 0;
  Pair p(options);
  post(p.a, IBV_WR_SEND, {p.local.sge(0, 16)}, 1);
  EXPECT_EQ(wait_wc(p.cq_a).status, IBV_WC_RNR_RETRY_EXC_ERR);
}

TEST_F(Errors, RetryExceeded) {
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

TEST_F(Errors, TargetReadyLaterIsReached) {
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

TEST_F(Errors, ResetPurges) {
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

TEST_F(Errors, DestroyRemovesCompletions) {
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

TEST_F(Errors, QueueLimits) {
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

TEST_F(Errors, BatchIsAllOrNothing) {
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

TEST_F(Errors, Transitions) {
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
  EXPECT_EQ(ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_CUR_STATE | IBV_QP_SQ_PSN |
                                      IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_RETRY_CNT |
                                      IBV_QP_RNR_RETRY | IBV_QP_TIMEOUT),
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

TEST_F(Errors, DrainedQueueSendsAfterwards) {
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

TEST_F(Errors, BusyObjectsStay) {
  Rig rig;
  ibv_qp* qp = rig.rc();
  EXPECT_EQ(ibv_dealloc_pd(rig.pd), EBUSY);
  EXPECT_EQ(ibv_destroy_cq(rig.send_cq), EBUSY);
  EXPECT_EQ(ibv_close_device(rig.context), EBUSY);
  rig.destroy(qp);
}

TEST_F(Errors, Registration) {
  Rig rig;
  std::uint8_t bytes[16];
  errno = 0;
  EXPECT_EQ(ibv_reg_mr(rig.pd, bytes, sizeof bytes, IBV_ACCESS_REMOTE_WRITE), nullptr);
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

TEST_F(Errors, CompletionQueueOverflow) {
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

TEST_F(Errors, ResizeKeepsEntries) {
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

TEST_F(Errors, SrqLimitEvent) {
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
