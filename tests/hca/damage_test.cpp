// SPDX-License-Identifier: BSD-3-Clause
// Records of the shared state that somebody has damaged: requests fail or stall, this process does
// not, and nothing but registered memory is touched. See tests/fuzz/tables_fuzz.cpp, too.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "hca/live/engine.h"
#include "tests/hca/pair.h"

namespace turnout::hca::test {
namespace {

class Damage : public ::testing::Test {
 protected:
  void SetUp() override { use_own_fabric(); }
  void TearDown() override { EXPECT_FALSE(fabric_exists()); }
  // A second place on the fabric, with another copy of the code: it sees the tables and no objects.
  static std::shared_ptr<Fabric> tables() {
    auto fabric = Fabric::open(getenv("TURNOUT_FABRIC"), 1ULL << 29);
    EXPECT_TRUE(fabric.ok());
    return fabric.value();
  }
  static QpRecord& record_of(Fabric& fabric, const ibv_qp* qp) { return fabric.qp(qp->handle); }
  // Of the process under test.
  static ProcessRecord& us(Fabric& fabric) {
    const std::uint32_t mine = slot_of(fabric.me());
    EXPECT_LT(mine, 2U);
    return fabric.process(1 - mine);
  }
};

TEST_F(Damage, OwnMemoryIsWhereItWasRegistered) {
  Pair p;
  Region own = p.rig.memory(4096, false), beside = p.rig.memory(4096, false);
  const auto fabric = tables();
  MrRecord& r = fabric->mr(own.mr->handle);
  std::memset(p.local.data, 7, 64);
  for (const std::uint64_t address :
       {std::uint64_t{0}, std::uint64_t{4096}, ~std::uint64_t{0} - 64, beside.address()}) {
    std::memset(own.data, 0, 64);
    r.address = address;
    EXPECT_EQ(p.write(own.address(), own.mr->rkey, 64).status, IBV_WC_SUCCESS);
    EXPECT_EQ(own.data[63], 7);
    EXPECT_EQ(beside.data[0], 0);
  }
  // Larger than it was registered, and elsewhere.
  r.iova = 0;
  r.length = ~std::uint64_t{0};
  EXPECT_NE(p.write(beside.address(), own.mr->rkey, 64).status, IBV_WC_SUCCESS);
  EXPECT_EQ(beside.data[0], 0);
}

TEST_F(Damage, FilesAreNotLongerThanTheyWereRegistered) {
  Pair p;
  const auto fabric = tables();
  EXPECT_EQ(p.write(p.remote.address(), p.remote.mr->rkey, 64).status, IBV_WC_SUCCESS);
  MrRecord& r = fabric->mr(p.remote.mr->handle);
  r.iova = 0;
  r.length = ~std::uint64_t{0};
  EXPECT_NE(p.write(p.remote.address() + (1 << 30), p.remote.mr->rkey, 64).status, IBV_WC_SUCCESS);
}

TEST_F(Damage, RightsAreNotMoreThanWereRegistered) {
  Pair p;
  const auto fabric = tables();
  void* page = mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ibv_mr* mr = ibv_reg_mr(p.rig.pd, page, 4096, int{IBV_ACCESS_REMOTE_READ});
  ASSERT_NE(mr, nullptr);
  fabric->mr(mr->handle).access = kFullAccess;
  EXPECT_EQ(p.write(reinterpret_cast<std::uint64_t>(page), mr->rkey, 8).status,
            IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
  munmap(page, 4096);
}

TEST_F(Damage, AWindowEndsWithItsRegion) {
  Pair p;
  const auto fabric = tables();
  Region own = p.rig.memory(4096, false, kFullAccess | IBV_ACCESS_MW_BIND);
  ibv_mw* mw = ibv_alloc_mw(p.rig.pd, IBV_MW_TYPE_1);
  ASSERT_NE(mw, nullptr);
  EXPECT_EQ(p.bind(mw, {own.mr, own.address(), 4096, IBV_ACCESS_REMOTE_WRITE}), IBV_WC_SUCCESS);
  const std::uint64_t address = own.address();
  EXPECT_EQ(p.write(address, mw->rkey, 8).status, IBV_WC_SUCCESS);
  fabric->mr(mw->handle).bound_to = 0;
  p.rig.drop(own);  // not busy any more, as it seems
  EXPECT_NE(p.write(address, mw->rkey, 8).status, IBV_WC_SUCCESS);
  EXPECT_EQ(ibv_dealloc_mw(mw), 0);
}

TEST_F(Damage, NoOtherProcessIsTakenForAPeer) {
  Pair p;
  const auto fabric = tables();
  Region own = p.rig.memory(4096, false), beside = p.rig.memory(4096, false);
  // Owned by whom has our own process id: what lies there is not to be written.
  MrRecord& r = fabric->mr(own.mr->handle);
  r.owner.store(fabric->me());
  r.address = beside.address();
  std::memset(p.local.data, 7, 64);
  EXPECT_NE(p.write(own.address(), own.mr->rkey, 64).status, IBV_WC_SUCCESS);
  EXPECT_EQ(beside.data[0], 0);
}

TEST_F(Damage, OverlappingBytes) {
  Pair p;
  for (std::size_t i = 0; i < 300; ++i) p.local.data[i] = static_cast<std::uint8_t>(i);
  EXPECT_EQ(p.write(p.local.address(10), p.local.mr->rkey, 200).status, IBV_WC_SUCCESS);
  for (std::size_t i = 0; i < 200; ++i) EXPECT_EQ(p.local.data[10 + i], i & 0xff);
}

TEST_F(Damage, RingsThatBeginInsideAPage) {
  Pair p;
  const auto fabric = tables();
  post_recv(p.b, {p.remote.sge(0, 64)}, 1);
  record_of(*fabric, p.b).rq.ring += 4;
  post(p.a, IBV_WR_SEND, {p.local.sge(0, 8)}, 2);
  EXPECT_EQ(wait_wc(p.cq_a).status, IBV_WC_REM_OP_ERR);
}

TEST_F(Damage, AReceiveIsNotPutBackOutsideItsRing) {
  Pair p;
  const auto fabric = tables();
  constexpr Token kDead = make_token(2, 1);
  ProcessRecord& dead = fabric->process(2);
  QpRecord& victim = record_of(*fabric, p.b);
  QpRecord& ghost = fabric->qp(kMaxQps - 1);
  const auto put_back = [&] {
    dead.pid = 0x3fff'fff0;
    dead.token.store(kDead);
    fabric->header().process_high.store(3);
    fabric->header().qp_high.store(kMaxQps);
    ghost.taken.store(1);
    ghost.taken_index.store(p.b->handle);
    ghost.taken_owner.store(victim.owner.load());
    ghost.taken_sges = 1;
    ghost.taken_cq = kNone;
    ghost.owner.store(kDead);
    fabric->reap(kDead);
    EXPECT_EQ(ghost.owner.load(), 0U);
  };
  // slots * stride is 2^64.
  const ReceiveQueue& rq = victim.rq;
  const std::uint32_t slots = rq.slots, sges = rq.max_sge;
  victim.rq.slots = 1U << 31;
  victim.rq.max_sge = (1U << 29) - 1;
  victim.rq.head = victim.rq.tail = 1U << 30;
  put_back();
  victim.rq.slots = 3;
  victim.rq.max_sge = sges;
  put_back();
  EXPECT_EQ(victim.rq.tail, 1U << 30);
  victim.rq.slots = slots;
  put_back();
  EXPECT_EQ(victim.rq.tail, (1U << 30) + 1);
}

TEST_F(Damage, QueuesGiveBackTheirOwnPages) {
  Pair p;
  const auto fabric = tables();
  ibv_cq* other = p.rig.cq(64);
  CqRecord& damaged = fabric->cq(other->handle);
  post_recv(p.b, {p.remote.sge(0, 64)}, 1);
  post(p.a, IBV_WR_SEND, {p.local.sge(0, 8)}, 2);
  damaged.ring = fabric->cq(p.cq_b->handle).ring;
  ibv_srq* srq = p.rig.srq(8);
  fabric->srq(srq->handle).rq.ring = damaged.ring;
  EXPECT_EQ(ibv_resize_cq(other, 256), 0);
  p.rig.destroy(srq);
  EXPECT_EQ(wait_wc(p.cq_b).wr_id, 1U);  // still there
}

TEST_F(Damage, WaitsForNobodyEnd) {
  Pair p;
  const auto fabric = tables();
  Region own = p.rig.memory(4096, false);
  ibv_qp* third = p.rig.rc();
  // None of our queue pairs executes anything, whatever these say.
  fabric->hazard(p.a->handle).store(own.mr->rkey);
  p.rig.drop(own);
  fabric->hazard(p.a->handle).store(std::uint64_t{third->qp_num} << 32);
  fabric->hazard(third->handle).store(std::uint64_t{third->qp_num} << 32);
  p.rig.destroy(third);
  // A hazard of an index that no queue pair of ours has, owned by us.
  fabric->qp(500).owner.store(us(*fabric).token.load());
  fabric->header().qp_high.store(501);
  fabric->hazard(500).store(std::uint64_t{p.a->qp_num} << 32);
  EXPECT_EQ(modify_state(p.a, IBV_QPS_ERR), 0);
  fabric->hazard(500).store(0);
  ibv_xrcd* xrcd = p.rig.xrcd();
  ibv_srq* srq = p.rig.xrc_srq(xrcd, 8);
  QpRecord& taker = record_of(*fabric, p.b);
  taker.taken_index.store(srq->handle);
  taker.taken_owner.store(us(*fabric).token.load());
  taker.taken.store(2);
  p.rig.destroy(srq);
  taker.taken.store(0);
}

TEST_F(Damage, EventsOfAnotherKindAreNotHandedOut) {
  Pair p;
  const int async = context_of(p.rig.context).async_write;
  const auto say = [&](std::uint32_t type, std::uint32_t object) {
    const EventRecord event{0, p.a->handle, p.a->qp_num, type, object};
    EXPECT_EQ(write(async, &event, sizeof event), static_cast<ssize_t>(sizeof event));
  };
  say(IBV_EVENT_CQ_ERR, kQpEvent);
  say(IBV_EVENT_SRQ_ERR, kQpEvent);
  say(kCompletion, kQpEvent);
  say(IBV_EVENT_QP_FATAL, kCqEvent);
  say(0x1000'0000, kQpEvent);
  say(IBV_EVENT_COMM_EST, kQpEvent);
  EXPECT_EQ(p.event().event_type, IBV_EVENT_COMM_EST);
  EXPECT_FALSE(readable(p.rig.context->async_fd, 0));
}

TEST_F(Damage, AStateThatIsNoneIsUnknown) {
  Pair p;
  const auto fabric = tables();
  auto& identity = record_of(*fabric, p.a).identity;
  const std::uint64_t good = identity.load();
  identity.store((good & ~std::uint64_t{0xff}) | 0x55);
  EXPECT_EQ(state_of(p.a), IBV_QPS_UNKNOWN);
  EXPECT_EQ(modify_state(p.a, IBV_QPS_SQD), EINVAL);
  identity.store(good);
}

// The memory goes although the table says that we had left already.
TEST_F(Damage, LeavingIsNotForgotten) {
  Rig rig;
  const int fd = open_fabric();
  ASSERT_GE(fd, 0);
  const std::uint32_t left = 1;
  const off_t at = Layout::processes + offsetof(ProcessRecord, leaving);  // we are the only one
  EXPECT_EQ(pwrite(fd, &left, sizeof left, at), static_cast<ssize_t>(sizeof left));
  close(fd);
}

}  // namespace
}  // namespace turnout::hca::test
