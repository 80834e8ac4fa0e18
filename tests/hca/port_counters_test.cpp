// SPDX-License-Identifier: BSD-3-Clause
// The port's counters: what each kind of request adds, and that queue pairs and processes leave
// theirs behind.
#include "hca/live/port_counters.h"

#include <unistd.h>

#include <cstring>

#include "tests/hca/pair.h"

extern "C" {
const char* turnout_counter_name(unsigned index);
bool turnout_counter(const char* name, std::uint64_t* value);
}

namespace turnout::hca::test {
namespace {

// What the file of that name would say.
std::uint64_t counter(const char* name) {
  std::uint64_t value = 0;
  EXPECT_TRUE(turnout_counter(name, &value)) << name;
  return value;
}

struct Counts {
  std::uint64_t packets = 0, bytes = 0, sends = 0;
  bool operator==(const Counts&) const = default;
};
Counts counts() {
  const PortTraffic t = read_traffic(std::getenv("TURNOUT_FABRIC"));
  return {t.packets, t.bytes, t.sends};
}

class PortCounters : public ::testing::Test {
 protected:
  void SetUp() override { use_own_fabric(); }
  void TearDown() override { EXPECT_FALSE(fabric_exists()); }
  // Since the last time.
  Counts more() {
    const Counts now = counts(), before = std::exchange(last_, now);
    return {now.packets - before.packets, now.bytes - before.bytes, now.sends - before.sends};
  }

 private:
  Counts last_;
};

TEST_F(PortCounters, OfEachRequest) {
  Pair p;
  const auto done = [&] { EXPECT_EQ(wait_wc(p.cq_a).status, IBV_WC_SUCCESS); };
  EXPECT_EQ(more(), Counts{});
  // Three times: the second and later ones go where the first went.
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(p.write(p.remote.address(), p.remote.mr->rkey, 100).status, IBV_WC_SUCCESS);
    EXPECT_EQ(more(), (Counts{1, 100, 0})) << i;
    post(p.a, IBV_WR_RDMA_WRITE, {p.local.sge(0, 8)}, 1, p.remote.address(), p.remote.mr->rkey,
         IBV_SEND_SIGNALED | IBV_SEND_INLINE);
    done();
    EXPECT_EQ(more(), (Counts{1, 8, 0})) << i;
  }
  // The MTU is 4096.
  EXPECT_EQ(p.write(p.remote.address(), p.remote.mr->rkey, 4097).status, IBV_WC_SUCCESS);
  EXPECT_EQ(more(), (Counts{2, 4097, 0}));
  EXPECT_EQ(p.write(p.remote.address(), p.remote.mr->rkey, 0).status, IBV_WC_SUCCESS);
  EXPECT_EQ(more(), (Counts{1, 0, 0}));
  post(p.a, IBV_WR_RDMA_READ, {p.local.sge(0, 8192)}, 1, p.remote.address(), p.remote.mr->rkey);
  done();
  EXPECT_EQ(more(), (Counts{3, 8192, 0}));  // and the request
  post_atomic(p.a, IBV_WR_ATOMIC_FETCH_AND_ADD, p.local.sge(0, 8), p.remote.address(),
              p.remote.mr->rkey, 1);
  done();
  EXPECT_EQ(more(), (Counts{2, 8, 0}));
  for (const ibv_wr_opcode opcode : {IBV_WR_SEND, IBV_WR_SEND_WITH_IMM}) {
    post_recv(p.b, {p.remote.sge(0, 65536)}, 2);
    post(p.a, opcode, {p.local.sge(0, 65536)}, 3);
    done();
    EXPECT_EQ(more(), (Counts{16, 65536, 1}));
  }
  post_recv(p.b, {}, 2);
  EXPECT_EQ(p.write(p.remote.address(), p.remote.mr->rkey, 4, IBV_WR_RDMA_WRITE_WITH_IMM).status,
            IBV_WC_SUCCESS);
  EXPECT_EQ(more(), (Counts{1, 4, 0}));
  // What is refused moves nothing.
  EXPECT_EQ(p.write(p.remote.address(), p.remote.mr->rkey ^ 1, 100).status, IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(more(), Counts{});
}

TEST_F(PortCounters, InUnitsOfInfiniBand) {
  Pair p;
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(p.write(p.remote.address(), p.remote.mr->rkey, 4096).status, IBV_WC_SUCCESS);
  }
  // Words of four bytes, 24 bytes of headers and checksum in each packet.
  EXPECT_EQ(counter("counters/port_xmit_data"), 10U * (4096 + 24) / 4);
  EXPECT_EQ(counter("counters/port_rcv_data"), 10U * (4096 + 24) / 4);
  EXPECT_EQ(counter("counters/port_xmit_packets"), 10U);
  EXPECT_EQ(counter("counters/unicast_rcv_packets"), 10U);
  EXPECT_EQ(counter("hw_counters/sent_pkts"), 10U);
  EXPECT_EQ(counter("hw_counters/rdma_sends"), 0U);
  std::uint64_t value = 0;
  EXPECT_FALSE(turnout_counter("counters/port_xmit_datagrams", &value));
  EXPECT_FALSE(turnout_counter("state", &value));
  unsigned names = 0;
  while (const char* const name = turnout_counter_name(names)) {
    ++names;
    EXPECT_TRUE(turnout_counter(name, &value)) << name;
  }
  EXPECT_EQ(names, port_counters().size());
}

TEST_F(PortCounters, Datagrams) {
  Rig rig;
  ibv_qp *a = rig.ud(), *b = rig.ud();
  ready_ud(a);
  ready_ud(b);
  Region memory = rig.memory(4096);
  ibv_gid group{};
  group.raw[0] = 0xff;
  group.raw[1] = 0x12;
  ibv_ah_attr attr{};
  attr.port_num = 1;
  attr.is_global = 1;
  attr.grh.dgid = group;
  attr.dlid = 0xc001;
  ibv_ah* const to_group = ibv_create_ah(rig.pd, &attr);
  ASSERT_NE(to_group, nullptr);
  ibv_sge text = memory.sge(0, 100);
  ibv_send_wr wr{}, *bad = nullptr;
  wr.opcode = IBV_WR_SEND;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.sg_list = &text;
  wr.num_sge = 1;
  wr.wr.ud.remote_qkey = kQkey;
  // Without a receive it is sent, too.
  wr.wr.ud.ah = rig.ah();
  wr.wr.ud.remote_qpn = b->qp_num;
  ASSERT_EQ(ibv_post_send(a, &wr, &bad), 0);
  EXPECT_EQ(wait_wc(rig.send_cq).status, IBV_WC_SUCCESS);
  wr.wr.ud.ah = to_group;
  wr.wr.ud.remote_qpn = 0xffffff;
  ASSERT_EQ(ibv_post_send(a, &wr, &bad), 0);
  EXPECT_EQ(wait_wc(rig.send_cq).status, IBV_WC_SUCCESS);
  EXPECT_EQ(counter("counters/port_xmit_packets"), 2U);
  EXPECT_EQ(counter("counters/unicast_xmit_packets"), 1U);
  EXPECT_EQ(counter("counters/multicast_xmit_packets"), 1U);
  EXPECT_EQ(ibv_destroy_ah(to_group), 0);
}

TEST_F(PortCounters, Retries) {
  ConnectOptions options;
  options.rnr_retry = 2;
  Pair p(options);
  post(p.a, IBV_WR_SEND, {p.local.sge(0, 8)}, 1);
  EXPECT_EQ(wait_wc(p.cq_a).status, IBV_WC_RNR_RETRY_EXC_ERR);
  EXPECT_EQ(counter("hw_counters/rcvd_rnr_err"), 3U);
  EXPECT_EQ(counter("hw_counters/send_rnr_err"), 3U);
  EXPECT_EQ(counter("hw_counters/retry_rnr_exceeded_err"), 1U);
  EXPECT_EQ(counter("hw_counters/retry_exceeded_err"), 0U);
  Pair q;  // three retries
  ASSERT_EQ(modify_state(q.b, IBV_QPS_RESET), 0);
  EXPECT_EQ(q.write(q.remote.address(), q.remote.mr->rkey, 8).status, IBV_WC_RETRY_EXC_ERR);
  EXPECT_EQ(counter("hw_counters/completer_retry_err"), 3U);
  EXPECT_EQ(counter("hw_counters/retry_exceeded_err"), 1U);
  EXPECT_EQ(counts(), Counts{});
}

TEST_F(PortCounters, StayWhenTheirQueuePairGoes) {
  Rig keeps;
  for (int i = 1; i <= 3; ++i) {
    {
      Pair p;
      EXPECT_EQ(p.write(p.remote.address(), p.remote.mr->rkey, 100).status, IBV_WC_SUCCESS);
    }
    EXPECT_EQ(counts(),
              (Counts{static_cast<std::uint64_t>(i), 100U * static_cast<unsigned>(i), 0}));
  }
}

TEST_F(PortCounters, OfAllProcesses) {
  Exchange* const x = exchange();
  Children children = start(3, [&](unsigned me) {
    Pair p;
    meet(x, 0, 3);
    EXPECT_EQ(p.write(p.remote.address(), p.remote.mr->rkey, 10).status, IBV_WC_SUCCESS);
    meet(x, 1, 3);
    if (me == 0) kill_self();
    if (me == 1) {
      EXPECT_EQ(counts(), (Counts{3, 30, 0}));
      set(x, 0, 1);
      EXPECT_TRUE(eventually([&] { return get(x, 1) != 0; }));
    }
    // Reads what is not its own, with one process dead.
    if (me == 2) {
      get(x, 0);
      EXPECT_EQ(counts(), (Counts{3, 30, 0}));
      set(x, 1, 1);
    }
  });
  finish(children);
  EXPECT_TRUE(children.killed[0]);
  EXPECT_EQ(counts(), Counts{});  // with the fabric they are gone
}

}  // namespace
}  // namespace turnout::hca::test
