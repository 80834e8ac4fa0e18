// SPDX-License-Identifier: BSD-3-Clause
// Faults on demand (TURNOUT_FAULT), as a program sees them: what a real adapter would show.
#include <unistd.h>

#include <cerrno>

#include "hca/device/objects.h"
#include "hca/live/port_counters.h"
#include "tests/hca/pair.h"

namespace turnout::hca::test {
namespace {

extern "C" std::uint64_t turnout_rnr_retries(ibv_context* context);

class Faults : public ::testing::Test {
 protected:
  void SetUp() override {
    use_own_fabric();
    ::setenv("TURNOUT_LOG", "off", 1);
  }
  void TearDown() override { ::unsetenv("TURNOUT_FAULT"); }
  static void ask_for(const char* faults) { ::setenv("TURNOUT_FAULT", faults, 1); }
};

ibv_async_event next_event(ibv_context* context) {
  ibv_async_event e{};
  EXPECT_TRUE(readable(context->async_fd, 10000));
  EXPECT_EQ(ibv_get_async_event(context, &e), 0);
  ibv_ack_async_event(&e);
  return e;
}
ibv_port_state port_state(ibv_context* context) {
  ibv_port_attr attr{};
  EXPECT_EQ(ibv_query_port(context, 1, &attr), 0);
  return attr.state;
}
void reconnect(Pair& p) {
  ASSERT_EQ(modify_state(p.a, IBV_QPS_RESET), 0);
  ASSERT_EQ(modify_state(p.b, IBV_QPS_RESET), 0);
  connect(p.a, p.b->qp_num);
  connect(p.b, p.a->qp_num);
}
std::uint64_t now() {
  return clock_ns(CLOCK_MONOTONIC);
}

// Which of so many datagrams arrive.
std::vector<std::uint64_t> arrivals(std::uint32_t count) {
  use_own_fabric();
  Rig rig;
  ibv_qp* const from = rig.ud();
  QpOptions options;
  options.recv_wr = count;
  ibv_qp* const to = rig.ud(options);
  ready_ud(from);
  ready_ud(to);
  ibv_ah* const ah = rig.ah();
  const Region memory = rig.memory(8192);
  for (std::uint32_t i = 0; i < count; ++i) post_recv(to, {memory.sge(0, 4096)}, i);
  for (std::uint32_t i = 0; i < count; ++i) {
    const ibv_sge sge = memory.sge(4096, 8);
    ibv_send_wr wr{}, *bad = nullptr;
    wr.wr_id = i;
    wr.sg_list = const_cast<ibv_sge*>(&sge);
    wr.num_sge = 1;
    wr.opcode = IBV_WR_SEND_WITH_IMM;
    wr.imm_data = htobe32(i);
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.wr.ud = {ah, to->qp_num, kQkey};
    EXPECT_EQ(ibv_post_send(from, &wr, &bad), 0);
    EXPECT_EQ(wait_wc(rig.send_cq).status, IBV_WC_SUCCESS);
  }
  std::vector<std::uint64_t> all;
  for (ibv_wc wc{}; ibv_poll_cq(rig.recv_cq, 1, &wc) == 1;) all.push_back(be32toh(wc.imm_data));
  return all;
}

TEST_F(Faults, LossTakesTheSameDatagramsInEachRun) {
  constexpr std::uint32_t kMany = 200;
  EXPECT_EQ(arrivals(kMany).size(), kMany);
  ask_for("loss:probability=0.3");
  const auto first = arrivals(kMany);
  EXPECT_GT(first.size(), kMany / 2);
  EXPECT_LT(first.size(), kMany);
  EXPECT_EQ(arrivals(kMany), first);
  ask_for("loss:probability=0.3; seed=2");
  EXPECT_NE(arrivals(kMany), first);
  ask_for("loss:after=3,count=2");
  const auto two = arrivals(8);
  EXPECT_EQ(two, (std::vector<std::uint64_t>{0, 1, 2, 5, 6, 7}));
}

TEST_F(Faults, DelayHoldsUpARequestAndThoseBehindIt) {
  ask_for("delay:time=500ms,count=1");
  Pair p;
  p.local.data[0] = 1;
  const std::uint64_t before = now();
  post(p.a, IBV_WR_RDMA_WRITE, {p.local.sge(0, 8)}, 1, p.remote.address(), p.remote.mr->rkey);
  post(p.a, IBV_WR_RDMA_WRITE, {p.local.sge(0, 8)}, 2, p.remote.address(8), p.remote.mr->rkey);
  EXPECT_EQ(p.remote.data[0], 0);
  EXPECT_EQ(p.remote.data[8], 0);
  EXPECT_EQ(wait_wc(p.cq_a).wr_id, 1U);
  EXPECT_GE(now() - before, 500'000'000U);
  EXPECT_EQ(wait_wc(p.cq_a).wr_id, 2U);
  EXPECT_EQ(p.remote.data[8], 1);
}

// A queue pair that is reset while a request waits for its time begins anew.
TEST_F(Faults, ResetForgetsWhatWasDelayed) {
  ask_for("delay:time=24000s,count=1");
  Pair p;
  post(p.a, IBV_WR_RDMA_WRITE, {p.local.sge(0, 8)}, 1, p.remote.address(), p.remote.mr->rkey);
  reconnect(p);
  EXPECT_EQ(p.write(p.remote.address(), p.remote.mr->rkey, 8).status, IBV_WC_SUCCESS);
}

TEST_F(Faults, ReceiverNotReadyIsRetriedAndThenFails) {
  ask_for("rnr:times=2,count=1");
  {
    Pair p;
    post_recv(p.b, {p.remote.sge(0, 8)}, 5);
    post(p.a, IBV_WR_SEND, {p.local.sge(0, 8)}, 1);
    EXPECT_EQ(wait_wc(p.cq_a).status, IBV_WC_SUCCESS);
    EXPECT_EQ(wait_wc(p.cq_b).wr_id, 5U);
    EXPECT_EQ(turnout_rnr_retries(p.rig.context), 2U);
    // What takes no receive is not refused for the lack of one.
    EXPECT_EQ(p.write(p.remote.address(), p.remote.mr->rkey, 8).status, IBV_WC_SUCCESS);
  }
  use_own_fabric();
  ask_for("rnr");
  ConnectOptions few;
  few.rnr_retry = 2;
  Pair p(few);
  post_recv(p.b, {p.remote.sge(0, 8)}, 5);
  post(p.a, IBV_WR_SEND, {p.local.sge(0, 8)}, 1);
  EXPECT_EQ(wait_wc(p.cq_a).status, IBV_WC_RNR_RETRY_EXC_ERR);
  EXPECT_EQ(state_of(p.a), IBV_QPS_ERR);
  EXPECT_EQ(state_of(p.b), IBV_QPS_RTS);
  EXPECT_EQ(turnout_rnr_retries(p.rig.context), 3U);
}

TEST_F(Faults, MissingAcknowledgementsAreRetriedAndThenFail) {
  ask_for("timeout:times=3,count=1; timeout:after=1");
  Pair p;
  EXPECT_EQ(p.write(p.remote.address(), p.remote.mr->rkey, 8).status, IBV_WC_SUCCESS);
  post(p.a, IBV_WR_RDMA_WRITE, {p.local.sge(0, 8)}, 2, p.remote.address(), p.remote.mr->rkey);
  post(p.a, IBV_WR_RDMA_WRITE, {p.local.sge(0, 8)}, 3, p.remote.address(), p.remote.mr->rkey);
  EXPECT_EQ(wait_wc(p.cq_a).status, IBV_WC_RETRY_EXC_ERR);
  EXPECT_EQ(wait_wc(p.cq_a).status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(state_of(p.a), IBV_QPS_ERR);
}

TEST_F(Faults, ErrorsOfTheTargetEndBothQueuePairs) {
  struct Case {
    const char* faults;
    ibv_wc_status status;
    ibv_event_type event;
  };
  const Case cases[] = {
      {"error:status=rem_access_err,after=1", IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR},
      {"error:status=rem_inv_req_err,after=1", IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR},
      {"error:status=rem_op_err,after=1", IBV_WC_REM_OP_ERR, IBV_EVENT_QP_FATAL}};
  for (const Case& c : cases) {
    SCOPED_TRACE(c.faults);
    use_own_fabric();
    ask_for(c.faults);
    Pair p;
    p.local.data[0] = 1;
    EXPECT_EQ(p.write(p.remote.address(), p.remote.mr->rkey, 8).status, IBV_WC_SUCCESS);
    EXPECT_EQ(p.write(p.remote.address(8), p.remote.mr->rkey, 8).status, c.status);
    EXPECT_EQ(p.remote.data[8], 0);
    EXPECT_EQ(state_of(p.a), IBV_QPS_ERR);
    EXPECT_EQ(state_of(p.b), IBV_QPS_ERR);
    const ibv_async_event e = p.event();
    EXPECT_EQ(e.event_type, c.event);
    EXPECT_EQ(e.element.qp, p.b);
  }
}

TEST_F(Faults, LocalErrorsEndOneQueuePair) {
  ask_for("error:opcode=read");
  Pair p;
  EXPECT_EQ(p.write(p.remote.address(), p.remote.mr->rkey, 8).status, IBV_WC_SUCCESS);
  EXPECT_EQ(p.write(p.remote.address(), p.remote.mr->rkey, 8, IBV_WR_RDMA_READ).status,
            IBV_WC_LOC_QP_OP_ERR);
  EXPECT_EQ(state_of(p.a), IBV_QPS_ERR);
  EXPECT_EQ(state_of(p.b), IBV_QPS_RTS);
  // One that is connected anew works: the fault hits once.
  reconnect(p);
  EXPECT_EQ(p.write(p.remote.address(), p.remote.mr->rkey, 8, IBV_WR_RDMA_READ).status,
            IBV_WC_SUCCESS);
}

TEST_F(Faults, AQueuePairFailsAsAWhole) {
  ask_for("qp_fatal:after=1");
  Pair p;
  post_recv(p.a, {p.local.sge(0, 8)}, 9);
  EXPECT_EQ(p.write(p.remote.address(), p.remote.mr->rkey, 8).status, IBV_WC_SUCCESS);
  post(p.a, IBV_WR_RDMA_WRITE, {p.local.sge(0, 8)}, 2, p.remote.address(), p.remote.mr->rkey);
  const ibv_async_event e = p.event();
  EXPECT_EQ(e.event_type, IBV_EVENT_QP_FATAL);
  EXPECT_EQ(e.element.qp, p.a);
  EXPECT_EQ(state_of(p.a), IBV_QPS_ERR);
  std::vector<std::uint64_t> flushed;
  for (int i = 0; i < 2; ++i) {
    const ibv_wc wc = wait_wc(p.cq_a);
    EXPECT_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
    flushed.push_back(wc.wr_id);
  }
  EXPECT_EQ(flushed, (std::vector<std::uint64_t>{9, 2}));
}

TEST_F(Faults, ObjectsCannotBeCreated) {
  ask_for(
      "create:object=mr,after=1,count=1,errno=EAGAIN; create:object=qp,after=2; "
      "create:object=channel");
  Rig rig;
  std::uint8_t bytes[64] = {};
  ibv_mr* const first = ibv_reg_mr(rig.pd, bytes, sizeof bytes, kFullAccess);
  ASSERT_NE(first, nullptr);
  errno = 0;
  EXPECT_EQ(ibv_reg_mr(rig.pd, bytes, sizeof bytes, kFullAccess), nullptr);
  EXPECT_EQ(errno, EAGAIN);
  ibv_mr* const third = ibv_reg_mr(rig.pd, bytes, sizeof bytes, kFullAccess);
  ASSERT_NE(third, nullptr);
  EXPECT_EQ(ibv_dereg_mr(first), 0);
  EXPECT_EQ(ibv_dereg_mr(third), 0);
  ASSERT_NE(rig.rc(), nullptr);
  ASSERT_NE(rig.ud(), nullptr);
  ibv_qp_init_attr attr{};
  attr.qp_type = IBV_QPT_RC;
  attr.send_cq = attr.recv_cq = rig.send_cq;
  attr.cap = {4, 4, 1, 1, 0};
  errno = 0;
  EXPECT_EQ(ibv_create_qp(rig.pd, &attr), nullptr);
  EXPECT_EQ(errno, ENOMEM);
  errno = 0;
  EXPECT_EQ(ibv_create_comp_channel(rig.context), nullptr);
  EXPECT_EQ(errno, ENOMEM);
}

TEST_F(Faults, AnAdapterHasSoManyObjects) {
  ask_for("create:object=qp,limit=2");
  Rig rig;
  ibv_qp* const first = rig.rc();
  ASSERT_NE(rig.ud(), nullptr);
  ibv_qp_init_attr attr{};
  attr.qp_type = IBV_QPT_RC;
  attr.send_cq = attr.recv_cq = rig.send_cq;
  attr.cap = {4, 4, 1, 1, 0};
  for (int i = 0; i < 3; ++i) EXPECT_EQ(ibv_create_qp(rig.pd, &attr), nullptr);
  rig.destroy(first);
  ASSERT_NE(rig.rc(), nullptr);
  EXPECT_EQ(ibv_create_qp(rig.pd, &attr), nullptr);
}

TEST_F(Faults, ASlowProcessHandlesItsCompletionsLate) {
  ask_for("slow:time=2ms");
  Pair p;
  const std::uint64_t before = now();
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(p.write(p.remote.address(), p.remote.mr->rkey, 8).status, IBV_WC_SUCCESS);
  }
  EXPECT_GE(now() - before, 10'000'000U);
}

TEST_F(Faults, ACompletionQueueOverruns) {
  ask_for("cq_overrun:after=1");
  Pair p;
  EXPECT_EQ(p.write(p.remote.address(), p.remote.mr->rkey, 8).status, IBV_WC_SUCCESS);
  EXPECT_EQ(p.write(p.remote.address(), p.remote.mr->rkey, 8).status, IBV_WC_SUCCESS);
  ibv_async_event e = p.event();
  EXPECT_EQ(e.event_type, IBV_EVENT_CQ_ERR);
  EXPECT_EQ(e.element.cq, p.cq_a);
  ibv_wc wc{};
  EXPECT_LT(ibv_poll_cq(p.cq_a, 1, &wc), 0);
  // A completion that cannot be delivered ends its queue pair.
  post(p.a, IBV_WR_RDMA_WRITE, {p.local.sge(0, 8)}, 2, p.remote.address(), p.remote.mr->rkey);
  e = p.event();
  EXPECT_EQ(e.event_type, IBV_EVENT_QP_FATAL);
  EXPECT_EQ(e.element.qp, p.a);
  EXPECT_EQ(state_of(p.a), IBV_QPS_ERR);
}

TEST_F(Faults, ThePortGoesDownAndComesUp) {
  ask_for("link_down:at=1s,time=2s");
  ConnectOptions short_timeout;
  short_timeout.timeout = 4;  // 65 us
  short_timeout.retry_cnt = 1;
  Pair p(short_timeout);
  EXPECT_EQ(p.event().event_type, IBV_EVENT_PORT_ERR);
  EXPECT_EQ(port_state(p.rig.context), IBV_PORT_DOWN);
  EXPECT_EQ(p.write(p.remote.address(), p.remote.mr->rkey, 8).status, IBV_WC_RETRY_EXC_ERR);
  EXPECT_EQ(read_traffic(std::getenv("TURNOUT_FABRIC")).links_downed, 1U);
  const ibv_async_event e = p.event();
  EXPECT_EQ(e.event_type, IBV_EVENT_PORT_ACTIVE);
  EXPECT_EQ(e.element.port_num, 1);
  EXPECT_EQ(port_state(p.rig.context), IBV_PORT_ACTIVE);
  reconnect(p);
  EXPECT_EQ(p.write(p.remote.address(), p.remote.mr->rkey, 8).status, IBV_WC_SUCCESS);
}

TEST_F(Faults, APortThatStaysDownLosesDatagrams) {
  ask_for("link_down");
  EXPECT_TRUE(arrivals(4).empty());
  Rig rig;
  EXPECT_EQ(port_state(rig.context), IBV_PORT_DOWN);
  EXPECT_EQ(next_event(rig.context).event_type, IBV_EVENT_PORT_ERR);
}

// The other process has no faults: it sees those of its peer.
TEST_F(Faults, APeerSeesThePortGoDown) {
  Exchange* const x = exchange();
  run(2, [&](unsigned me) {
    if (me == 1) {
      ask_for("link_down:at=1s");
    }
    ConnectOptions options;
    options.timeout = 8;
    Rig rig;
    ibv_qp* const qp = rig.rc();
    const Region memory = rig.memory(4096);
    set(x, me * 3, qp->qp_num);
    set(x, me * 3 + 1, memory.address());
    set(x, me * 3 + 2, memory.mr->rkey);
    const unsigned other = 1 - me;
    connect(qp, static_cast<std::uint32_t>(get(x, other * 3)), options);
    meet(x, 0, 2);
    if (me == 0) {
      // Writes, as a ring's, until the peer is gone.
      std::uint64_t done = 0;
      ibv_wc wc{};
      EXPECT_TRUE(eventually([&] {
        post(qp, IBV_WR_RDMA_WRITE, {memory.sge(0, 8)}, 1, get(x, 4),
             static_cast<std::uint32_t>(get(x, 5)), IBV_SEND_SIGNALED | IBV_SEND_INLINE);
        wc = wait_wc(rig.send_cq);
        if (wc.status == IBV_WC_SUCCESS) ++done;
        return wc.status != IBV_WC_SUCCESS;
      }));
      EXPECT_EQ(wc.status, IBV_WC_RETRY_EXC_ERR);
      EXPECT_GT(done, 0U);
      EXPECT_EQ(port_state(rig.context), IBV_PORT_ACTIVE);
    } else {
      EXPECT_EQ(next_event(rig.context).event_type, IBV_EVENT_PORT_ERR);
    }
    meet(x, 1, 2);
  });
}

// Who takes the place of a process whose port was down is not down.
TEST_F(Faults, APortThatIsDownEndsWithItsProcess) {
  Exchange* const x = exchange();
  Children children = start(3, [&](unsigned me) {
    if (me == 2) {
      ask_for("link_down");
      Rig rig;
      ASSERT_NE(rig.rc(), nullptr);
      set(x, 0, 1);
      kill_self();
    }
    if (me == 1) {
      get(x, 1);  // the first has gone
      Rig rig;
      ibv_qp* const qp = rig.rc();
      const Region memory = rig.memory(4096);
      set(x, 2, qp->qp_num);
      set(x, 3, memory.address());
      set(x, 4, memory.mr->rkey);
      connect(qp, static_cast<std::uint32_t>(get(x, 5)));
      meet(x, 0, 2);
      meet(x, 1, 2);
    } else if (me == 0) {
      Rig rig;  // keeps the fabric
      ibv_qp* const qp = rig.rc();
      const Region memory = rig.memory(4096);
      get(x, 0);
      set(x, 5, qp->qp_num);
      set(x, 1, 1);
      connect(qp, static_cast<std::uint32_t>(get(x, 2)));
      meet(x, 0, 2);
      post(qp, IBV_WR_RDMA_WRITE, {memory.sge(0, 8)}, 1, get(x, 3),
           static_cast<std::uint32_t>(get(x, 4)));
      EXPECT_EQ(wait_wc(rig.send_cq).status, IBV_WC_SUCCESS);
      meet(x, 1, 2);
    }
  });
  finish(children);
}

TEST_F(Faults, AnAdapterThatHasFailedSaysSo) {
  ask_for("device_fatal");
  ibv_device** const list = ibv_get_device_list(nullptr);
  ibv_context* const context = ibv_open_device(list[0]);
  ASSERT_NE(context, nullptr);
  EXPECT_EQ(next_event(context).event_type, IBV_EVENT_PORT_ERR);
  EXPECT_EQ(next_event(context).event_type, IBV_EVENT_DEVICE_FATAL);
  EXPECT_EQ(ibv_alloc_pd(context), nullptr);
  EXPECT_EQ(ibv_close_device(context), 0);
  ibv_free_device_list(list);
}

TEST_F(Faults, TheAdapterFails) {
  ask_for("device_fatal:at=1s");
  Pair p;
  post_recv(p.a, {p.local.sge(0, 8)}, 9);
  EXPECT_EQ(p.event().event_type, IBV_EVENT_PORT_ERR);
  EXPECT_EQ(p.event().event_type, IBV_EVENT_DEVICE_FATAL);
  const ibv_wc wc = wait_wc(p.cq_a);
  EXPECT_EQ(wc.wr_id, 9U);
  EXPECT_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(state_of(p.a), IBV_QPS_ERR);
  errno = 0;
  EXPECT_EQ(ibv_alloc_pd(p.rig.context), nullptr);
  EXPECT_EQ(errno, EIO);
}

// Every kind of queue pair passes through the same place.
TEST_F(Faults, HitDcAndXrc) {
  ask_for("error:status=rem_access_err,qp=dc; timeout:times=1,qp=xrc");
  {
    Rig rig;
    ibv_srq* const srq = rig.srq(4);
    ibv_qp* const dct = rig.dct(srq);
    ibv_qp* const dci = rig.dci();
    ready_dci(dci);
    const Region memory = rig.memory(4096);
    post_dc(dci, rig.ah(), dct->qp_num, IBV_WR_RDMA_WRITE, memory.sge(0, 8), 1, memory.address(8),
            memory.mr->rkey);
    EXPECT_EQ(wait_wc(rig.send_cq).status, IBV_WC_REM_ACCESS_ERR);
    EXPECT_EQ(state_of(dci), IBV_QPS_ERR);
    EXPECT_EQ(state_of(dct), IBV_QPS_RTR);  // it serves others
  }
  use_own_fabric();
  Rig rig;
  ibv_xrcd* const domain = rig.xrcd();
  ibv_srq* const srq = rig.xrc_srq(domain, 4);
  ibv_qp* const target = rig.xrc_target(domain);
  ibv_qp* const initiator = rig.xrc_initiator();
  connect(target, initiator->qp_num);
  connect(initiator, target->qp_num);
  const Region memory = rig.memory(4096);
  post_srq(srq, {memory.sge(0, 8)}, 5);
  post_xrc(initiator, srq_number(srq), IBV_WR_SEND, memory.sge(8, 8), 1);
  EXPECT_EQ(wait_wc(rig.send_cq).status, IBV_WC_SUCCESS);
}

TEST_F(Faults, AMistakeInThePlanIsTheReasonWhyTheDeviceDoesNotOpen) {
  ask_for("rnr:tims=3");
  ibv_device** const list = ibv_get_device_list(nullptr);
  ASSERT_NE(list[0], nullptr);
  EXPECT_EQ(ibv_open_device(list[0]), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_NE(std::string(open_error(list[0])).find("\"tims=3\": rnr takes"), std::string::npos);
  ibv_free_device_list(list);
}

}  // namespace
}  // namespace turnout::hca::test
