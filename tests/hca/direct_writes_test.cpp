// SPDX-License-Identifier: BSD-3-Clause
// RDMA writes that go where the one before went: what changes between the two is seen. See
// hca/live/direct_writes.h.
#include <sched.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "hca/live/engine.h"
#include "tests/hca/pair.h"

namespace turnout::hca::test {
namespace {

// Inline, or gathered from registered memory.
class DirectWrites : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override { use_own_fabric(); }
  void TearDown() override { EXPECT_FALSE(fabric_exists()); }

  // Writes `length` bytes of `value` from a to b.
  static ibv_wc_status write(Pair& p, std::uint64_t address, std::uint32_t key, std::uint8_t value,
                             std::size_t length = 8) {
    std::memset(p.local.data, value, length);
    post(p.a, IBV_WR_RDMA_WRITE, {p.local.sge(0, length)}, 1, address, key,
         IBV_SEND_SIGNALED | (GetParam() ? unsigned{IBV_SEND_INLINE} : 0U));
    return wait_wc(p.cq_a).status;
  }
  static ibv_wc_status write(Pair& p, const Region& to, std::uint8_t value, std::size_t at = 0) {
    return write(p, to.address(at), to.mr->rkey, value);
  }
  // So that the next one goes where these go.
  static void write_twice(Pair& p, const Region& to) {
    for (std::uint8_t value = 1; value <= 2; ++value) {
      EXPECT_EQ(write(p, to, value), IBV_WC_SUCCESS);
      EXPECT_EQ(to.data[7], value);
    }
  }
  static void reset(ibv_qp* qp) { ASSERT_EQ(modify_state(qp, IBV_QPS_RESET), 0); }
};
INSTANTIATE_TEST_SUITE_P(Of, DirectWrites, ::testing::Bool(), [](const auto& info) {
  return info.param ? "InlineBytes" : "RegisteredBytes";
});

TEST_P(DirectWrites, AlternateBetweenRegions) {
  Pair p;
  Region other = p.rig.memory(4096, false);
  for (std::uint8_t value = 1; value < 20; ++value) {
    const Region& to = value % 3 == 0 ? other : p.remote;
    EXPECT_EQ(write(p, to, value, value * 8U), IBV_WC_SUCCESS);
    EXPECT_EQ(to.data[value * 8U], value);
    EXPECT_EQ(to.data[value * 8U + 7], value);
    EXPECT_EQ(to.data[value * 8U + 8], 0);
  }
}

TEST_P(DirectWrites, EndWithTheRegion) {
  Pair p;
  Region target = p.rig.memory(4096);
  write_twice(p, target);
  const std::uint64_t end = target.address(target.size);
  EXPECT_EQ(write(p, end - 8, target.mr->rkey, 3), IBV_WC_SUCCESS);
  EXPECT_EQ(write(p, end - 7, target.mr->rkey, 4), IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(target.data[target.size - 7], 3);
}

TEST_P(DirectWrites, BeginWithTheRegion) {
  Pair p;
  Region target = p.rig.memory(4096);
  write_twice(p, target);
  EXPECT_EQ(write(p, target.address() - 1, target.mr->rkey, 3), IBV_WC_REM_ACCESS_ERR);
}

TEST_P(DirectWrites, RegionIsDeregistered) {
  Pair p;
  Region target = p.rig.memory(4096);
  write_twice(p, target);
  const std::uint64_t address = target.address();
  const std::uint32_t key = target.mr->rkey;
  p.rig.drop(target);
  EXPECT_EQ(write(p, address, key, 3), IBV_WC_REM_ACCESS_ERR);
}

TEST_P(DirectWrites, RegionIsRegisteredAnewElsewhere) {
  Pair p;
  Region target = p.rig.memory(4096, false);
  write_twice(p, target);
  alignas(64) std::uint8_t other[256] = {};
  ASSERT_EQ(
      ibv_rereg_mr(target.mr, IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, other, sizeof other, 0), 0);
  EXPECT_EQ(write(p, reinterpret_cast<std::uint64_t>(other), target.mr->rkey, 3), IBV_WC_SUCCESS);
  EXPECT_EQ(other[7], 3);
  EXPECT_EQ(write(p, target, 4), IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(target.data[0], 2);
}

TEST_P(DirectWrites, RegionLosesItsRights) {
  Pair p;
  Region target = p.rig.memory(4096, false);
  write_twice(p, target);
  ASSERT_EQ(ibv_rereg_mr(target.mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0,
                         IBV_ACCESS_LOCAL_WRITE),
            0);
  EXPECT_EQ(write(p, target, 3), IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(target.data[0], 2);
}

TEST_P(DirectWrites, TargetLosesItsRights) {
  Pair p;
  write_twice(p, p.remote);
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTS;
  attr.qp_access_flags = IBV_ACCESS_REMOTE_READ;
  ASSERT_EQ(ibv_modify_qp(p.b, &attr, IBV_QP_STATE | IBV_QP_ACCESS_FLAGS), 0);
  EXPECT_EQ(write(p, p.remote, 3), IBV_WC_REM_INV_REQ_ERR);
  EXPECT_EQ(p.remote.data[0], 2);
}

TEST_P(DirectWrites, TargetFails) {
  Pair p;
  write_twice(p, p.remote);
  ASSERT_EQ(modify_state(p.b, IBV_QPS_ERR), 0);
  EXPECT_EQ(write(p, p.remote, 3), IBV_WC_RETRY_EXC_ERR);
  EXPECT_EQ(p.remote.data[0], 2);
}

TEST_P(DirectWrites, TargetIsConnectedToAnother) {
  Pair p;
  ibv_qp* other = p.rig.rc();
  write_twice(p, p.remote);
  reset(p.b);
  connect(p.b, other->qp_num);
  EXPECT_EQ(write(p, p.remote, 3), IBV_WC_RETRY_EXC_ERR);
  EXPECT_EQ(p.remote.data[0], 2);
}

TEST_P(DirectWrites, TargetIsConnectedAnew) {
  Pair p;
  write_twice(p, p.remote);
  reset(p.b);
  connect(p.b, p.a->qp_num);  // the initiator goes on in the old sequence
  EXPECT_EQ(write(p, p.remote, 3), IBV_WC_RETRY_EXC_ERR);
  EXPECT_EQ(p.remote.data[0], 2);
}

TEST_P(DirectWrites, InitiatorIsConnectedToAnother) {
  Pair p;
  write_twice(p, p.remote);
  QpOptions options;
  options.pd = ibv_alloc_pd(p.rig.context);
  ibv_qp* other = p.rig.rc(options);  // may not write to the region
  reset(p.a);
  connect(p.a, other->qp_num);
  connect(other, p.a->qp_num);
  EXPECT_EQ(write(p, p.remote, 3), IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(p.remote.data[0], 2);
  p.rig.destroy(other);
  EXPECT_EQ(ibv_dealloc_pd(options.pd), 0);
}

TEST_P(DirectWrites, RouteLeadsNowhere) {
  Pair p;
  write_twice(p, p.remote);
  ASSERT_EQ(modify_state(p.a, IBV_QPS_SQD), 0);
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_SQD;
  attr.ah_attr.dlid = 77;
  attr.ah_attr.port_num = 1;
  ASSERT_EQ(ibv_modify_qp(p.a, &attr, IBV_QP_STATE | IBV_QP_AV), 0);
  ASSERT_EQ(modify_state(p.a, IBV_QPS_RTS), 0);
  EXPECT_EQ(write(p, p.remote, 3), IBV_WC_RETRY_EXC_ERR);
  EXPECT_EQ(p.remote.data[0], 2);
}

TEST_P(DirectWrites, QueueIsFull) {
  Pair p;
  write_twice(p, p.remote);
  std::uint32_t posted = 0;
  ibv_sge sge = p.local.sge(0, 8);
  ibv_send_wr wr{}, *bad = nullptr;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_RDMA_WRITE;
  wr.send_flags = GetParam() ? unsigned{IBV_SEND_INLINE} : 0U;
  wr.wr.rdma = {p.remote.address(), p.remote.mr->rkey};
  while (posted < 1000 && ibv_post_send(p.a, &wr, &bad) == 0) ++posted;
  EXPECT_EQ(posted, 64U);
  EXPECT_EQ(ibv_post_send(p.a, &wr, &bad), ENOMEM);
}

TEST_P(DirectWrites, WindowIsInvalidated) {
  Pair p;
  Region own = p.rig.memory(4096, false, kFullAccess | IBV_ACCESS_MW_BIND);
  ibv_mw* mw = ibv_alloc_mw(p.rig.pd, IBV_MW_TYPE_1);
  ASSERT_NE(mw, nullptr);
  EXPECT_EQ(p.bind(mw, {own.mr, own.address(), 64, IBV_ACCESS_REMOTE_WRITE}), IBV_WC_SUCCESS);
  const std::uint32_t key = mw->rkey;
  EXPECT_EQ(write(p, own.address(), key, 1), IBV_WC_SUCCESS);
  EXPECT_EQ(write(p, own.address(), key, 2), IBV_WC_SUCCESS);
  EXPECT_EQ(p.bind(mw, {own.mr, own.address(), 0, IBV_ACCESS_REMOTE_WRITE}), IBV_WC_SUCCESS);
  EXPECT_EQ(write(p, own.address(), key, 3), IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(own.data[0], 2);
  EXPECT_EQ(ibv_dealloc_mw(mw), 0);
}

TEST_P(DirectWrites, SourceIsDeregistered) {
  if (GetParam()) return;  // inline bytes need no key
  Pair p;
  Region source = p.rig.memory(4096, false);
  const ibv_sge sge = source.sge(0, 8);
  for (int i = 0; i < 2; ++i) {
    post(p.a, IBV_WR_RDMA_WRITE, {sge}, 1, p.remote.address(), p.remote.mr->rkey);
    EXPECT_EQ(wait_wc(p.cq_a).status, IBV_WC_SUCCESS);
  }
  p.rig.drop(source);
  post(p.a, IBV_WR_RDMA_WRITE, {sge}, 1, p.remote.address(), p.remote.mr->rkey);
  EXPECT_EQ(wait_wc(p.cq_a).status, IBV_WC_LOC_PROT_ERR);
}

TEST_P(DirectWrites, RecordsThatLie) {
  const auto lie = [](const auto& damage) {
    Pair p;
    write_twice(p, p.remote);
    auto fabric = Fabric::open(getenv("TURNOUT_FABRIC"), 1ULL << 29);
    ASSERT_TRUE(fabric.ok());
    damage(*fabric.value(), fabric.value()->qp(p.b->handle),
           fabric.value()->mr(p.remote.mr->handle));
    EXPECT_NE(write(p, p.remote, 3), IBV_WC_SUCCESS);
    EXPECT_EQ(p.remote.data[0], 2);
  };
  lie([](Fabric&, QpRecord& qp, MrRecord&) { qp.identity.store(0); });
  lie([](Fabric&, QpRecord& qp, MrRecord&) { qp.dest_qpn = 1; });
  lie([](Fabric&, QpRecord& qp, MrRecord&) { qp.access = 0; });
  lie([](Fabric&, QpRecord&, MrRecord& mr) { mr.key.fetch_add(1); });
}

// What the owner of a region writes to its memory after it has deregistered it stays there.
TEST_P(DirectWrites, NothingIsWrittenAfterDeregistration) {
  Pair p;
  std::atomic<std::uint32_t> key{0};
  std::atomic<bool> done{false};
  alignas(64) static std::uint8_t bytes[64];
  std::atomic_ref<std::uint64_t> word(*reinterpret_cast<std::uint64_t*>(bytes));
  std::uint64_t written = 0;
  std::thread initiator([&] {
    // Those that find the region gone break the connection: each has another pair.
    while (!done.load()) {
      Rig rig;
      ibv_qp *a = rig.rc(), *b = rig.rc({.pd = p.rig.pd});
      connect(a, b->qp_num);
      connect(b, a->qp_num);
      Region source = rig.memory(64);
      std::memset(source.data, 7, 8);
      for (ibv_wc_status status = IBV_WC_SUCCESS; status == IBV_WC_SUCCESS && !done.load();) {
        const std::uint32_t now = key.load();
        if (now == 0) continue;
        post(a, IBV_WR_RDMA_WRITE, {source.sge(0, 8)}, 1, reinterpret_cast<std::uint64_t>(bytes),
             now, IBV_SEND_SIGNALED | (GetParam() ? unsigned{IBV_SEND_INLINE} : 0U));
        status = wait_wc(rig.send_cq).status;
      }
    }
  });
  constexpr int kRounds = 5000;
  for (int round = 0; round < kRounds; ++round) {
    ibv_mr* mr = ibv_reg_mr(p.rig.pd, bytes, sizeof bytes, kFullAccess);
    ASSERT_NE(mr, nullptr);
    word.store(0);
    key.store(mr->rkey);
    for (int n = 0; n < 2000 && word.load() == 0; ++n) sched_yield();
    written += word.load() != 0;
    key.store(0);
    ASSERT_EQ(ibv_dereg_mr(mr), 0);
    word.store(1);
    for (int n = 0; n < 20; ++n) ASSERT_EQ(word.load(), 1U) << "round " << round;
  }
  done.store(true);
  initiator.join();
  EXPECT_GT(written, 0U);
}

}  // namespace
}  // namespace turnout::hca::test
