// SPDX-License-Identifier: BSD-3-Clause
// Memory windows of both types: keys of their own to a part of a region, with fewer rights, that
// end when they are bound anew, invalidated from either side, or freed.
#include <cstring>

#include "tests/hca/pair.h"

namespace turnout::hca::test {
namespace {

constexpr int kBindable = kFullAccess | IBV_ACCESS_MW_BIND;

class Windows : public ::testing::TestWithParam<bool> {  // is the region in shared memory?
 protected:
  void SetUp() override { use_own_fabric(); }
  void TearDown() override { EXPECT_FALSE(fabric_exists()); }
};

// The windows are b's, a reaches through them.
struct WindowPair : Pair {
  explicit WindowPair(bool shared) { region = rig.memory(65536, shared, kBindable); }
  // Through b; the completion's status.
  ibv_wc_status bind_1(ibv_mw* mw, std::uint64_t address, std::uint64_t length, unsigned access) {
    return bind(mw, {length != 0 ? region.mr : nullptr, address, length, access});
  }
  ibv_wc_status bind_2(ibv_mw* mw, std::uint32_t key, std::uint64_t address, std::uint64_t length,
                       unsigned access) {
    ibv_send_wr wr{}, *bad = nullptr;
    wr.opcode = IBV_WR_BIND_MW;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.bind_mw.mw = mw;
    wr.bind_mw.rkey = key;
    wr.bind_mw.bind_info = {region.mr, address, length, access};
    EXPECT_EQ(ibv_post_send(b, &wr, &bad), 0);
    const ibv_wc wc = wait_wc(cq_b);
    if (wc.status == IBV_WC_SUCCESS) {
      EXPECT_EQ(wc.opcode, IBV_WC_BIND_MW);
    }
    return wc.status;
  }
  Region region;
};

TEST_P(Windows, Type1OpensAPartAndIsBoundAnew) {
  WindowPair p(GetParam());
  ibv_mw* mw = ibv_alloc_mw(p.rig.pd, IBV_MW_TYPE_1);
  ASSERT_NE(mw, nullptr);
  const std::uint32_t unbound = mw->rkey;
  ASSERT_EQ(p.bind_1(mw, p.region.address(100), 50, IBV_ACCESS_REMOTE_WRITE), IBV_WC_SUCCESS);
  EXPECT_NE(mw->rkey, unbound);
  p.local.data[0] = 0x5a;
  EXPECT_EQ(p.write(p.region.address(100), mw->rkey, 50).status, IBV_WC_SUCCESS);
  EXPECT_EQ(p.region.data[100], 0x5a);
  // A region with windows stays.
  EXPECT_EQ(ibv_dereg_mr(p.region.mr), EBUSY);
  // Bound elsewhere: the old key is nothing any more. The failure takes both ends with it.
  const std::uint32_t old = mw->rkey;
  ASSERT_EQ(p.bind_1(mw, p.region.address(1000), 8, IBV_ACCESS_REMOTE_READ), IBV_WC_SUCCESS);
  EXPECT_EQ(p.write(p.region.address(100), old, 50).status, IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(ibv_dealloc_mw(mw), 0);
}

TEST_P(Windows, Type1OfNoLengthIsClosed) {
  WindowPair p(GetParam());
  ibv_mw* mw = ibv_alloc_mw(p.rig.pd, IBV_MW_TYPE_1);
  ASSERT_EQ(p.bind_1(mw, p.region.address(0), 50, IBV_ACCESS_REMOTE_WRITE), IBV_WC_SUCCESS);
  ASSERT_EQ(p.bind_1(mw, 0, 0, 0), IBV_WC_SUCCESS);
  EXPECT_EQ(p.write(p.region.address(0), mw->rkey, 8).status, IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(ibv_dealloc_mw(mw), 0);
}

struct Refusal {
  const char* what;
  std::size_t offset, length;
  unsigned access;
  ibv_wr_opcode opcode;
};

TEST_P(Windows, BoundsAndRightsAreItsOwn) {
  const Refusal refusals[] = {
      {"before it", 99, 8, IBV_ACCESS_REMOTE_WRITE, IBV_WR_RDMA_WRITE},
      {"beyond it", 143, 8, IBV_ACCESS_REMOTE_WRITE, IBV_WR_RDMA_WRITE},
      {"no right to read", 100, 8, IBV_ACCESS_REMOTE_WRITE, IBV_WR_RDMA_READ},
      {"no right to write", 100, 8, IBV_ACCESS_REMOTE_READ, IBV_WR_RDMA_WRITE},
  };
  for (const Refusal& r : refusals) {
    WindowPair p(GetParam());
    ibv_mw* mw = ibv_alloc_mw(p.rig.pd, IBV_MW_TYPE_2);
    const std::uint32_t key = ibv_inc_rkey(mw->rkey);
    ASSERT_EQ(p.bind_2(mw, key, p.region.address(100), 50, r.access), IBV_WC_SUCCESS);
    EXPECT_EQ(p.write(p.region.address(r.offset), key, r.length, r.opcode).status,
              IBV_WC_REM_ACCESS_ERR)
        << r.what;
    EXPECT_EQ(ibv_dealloc_mw(mw), 0);
  }
}

TEST_P(Windows, Type2AnswersItsQueuePairOnly) {
  WindowPair p(GetParam());
  QpOptions options;
  options.send_cq = options.recv_cq = p.cq_a;
  ibv_qp *c = p.rig.rc(options), *d = p.rig.rc(options);
  connect(c, d->qp_num);
  connect(d, c->qp_num);
  ibv_mw* mw = ibv_alloc_mw(p.rig.pd, IBV_MW_TYPE_2);
  const std::uint32_t key = ibv_inc_rkey(mw->rkey);
  ASSERT_EQ(p.bind_2(mw, key, p.region.address(0), 100, IBV_ACCESS_REMOTE_WRITE), IBV_WC_SUCCESS);
  EXPECT_EQ(p.write(p.region.address(0), key, 100).status, IBV_WC_SUCCESS);
  post(c, IBV_WR_RDMA_WRITE, {p.local.sge(0, 8)}, 5, p.region.address(0), key);
  EXPECT_EQ(wait_wc(p.cq_a).status, IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(ibv_dealloc_mw(mw), 0);
}

TEST_P(Windows, Type2IsInvalidatedHere) {
  WindowPair p(GetParam());
  ibv_mw* mw = ibv_alloc_mw(p.rig.pd, IBV_MW_TYPE_2);
  std::uint32_t key = ibv_inc_rkey(mw->rkey);
  ASSERT_EQ(p.bind_2(mw, key, p.region.address(0), 100, IBV_ACCESS_REMOTE_WRITE), IBV_WC_SUCCESS);
  ibv_send_wr wr{}, *bad = nullptr;
  wr.opcode = IBV_WR_LOCAL_INV;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.invalidate_rkey = key;
  ASSERT_EQ(ibv_post_send(p.b, &wr, &bad), 0);
  const ibv_wc wc = wait_wc(p.cq_b);
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(wc.opcode, IBV_WC_LOCAL_INV);
  // Free for another part and key; then the first is refused.
  const std::uint32_t second = ibv_inc_rkey(key);
  ASSERT_EQ(p.bind_2(mw, second, p.region.address(500), 8, IBV_ACCESS_REMOTE_WRITE),
            IBV_WC_SUCCESS);
  EXPECT_EQ(p.write(p.region.address(500), second, 8).status, IBV_WC_SUCCESS);
  EXPECT_EQ(p.write(p.region.address(0), key, 8).status, IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(ibv_dealloc_mw(mw), 0);
}

TEST_P(Windows, Type2IsInvalidatedByAMessage) {
  WindowPair p(GetParam());
  ibv_mw* mw = ibv_alloc_mw(p.rig.pd, IBV_MW_TYPE_2);
  const std::uint32_t key = ibv_inc_rkey(mw->rkey);
  ASSERT_EQ(p.bind_2(mw, key, p.region.address(0), 100, IBV_ACCESS_REMOTE_WRITE), IBV_WC_SUCCESS);
  post_recv(p.b, {p.region.sge(1000, 100)}, 4);
  ibv_sge sge = p.local.sge(0, 8);
  ibv_send_wr wr{}, *bad = nullptr;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_SEND_WITH_INV;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.invalidate_rkey = key;
  ASSERT_EQ(ibv_post_send(p.a, &wr, &bad), 0);
  EXPECT_EQ(wait_wc(p.cq_a).status, IBV_WC_SUCCESS);
  const ibv_wc wc = wait_wc(p.cq_b);
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(wc.wc_flags, unsigned{IBV_WC_WITH_INV});
  EXPECT_EQ(wc.invalidated_rkey, key);
  EXPECT_EQ(p.write(p.region.address(0), key, 8).status, IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(ibv_dealloc_mw(mw), 0);
}

TEST_P(Windows, ThroughTheBuilders) {
  WindowPair p(GetParam());
  ibv_qp_init_attr_ex attr{};
  attr.send_cq = attr.recv_cq = p.cq_b;
  attr.cap = {8, 8, 1, 1, 0};
  attr.qp_type = IBV_QPT_RC;
  attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  attr.pd = p.rig.pd;
  attr.send_ops_flags =
      IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_SEND_WITH_INV;
  ibv_qp* qp = ibv_create_qp_ex(p.rig.context, &attr);
  ASSERT_NE(qp, nullptr);
  connect(qp, 0xfffffe);
  ibv_mw* mw = ibv_alloc_mw(p.rig.pd, IBV_MW_TYPE_2);
  const std::uint32_t key = ibv_inc_rkey(mw->rkey);
  ibv_qp_ex* ex = ibv_qp_to_qp_ex(qp);
  const ibv_mw_bind_info info{p.region.mr, p.region.address(0), 16, IBV_ACCESS_REMOTE_READ};
  ibv_wr_start(ex);
  ex->wr_flags = IBV_SEND_SIGNALED;
  ex->wr_id = 1;
  ibv_wr_bind_mw(ex, mw, key, &info);
  ex->wr_id = 2;
  ibv_wr_local_inv(ex, key);
  ASSERT_EQ(ibv_wr_complete(ex), 0);
  for (const ibv_wc_opcode opcode : {IBV_WC_BIND_MW, IBV_WC_LOCAL_INV}) {
    const ibv_wc wc = wait_wc(p.cq_b);
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
    EXPECT_EQ(wc.opcode, opcode);
  }
  EXPECT_EQ(ibv_dealloc_mw(mw), 0);
  EXPECT_EQ(ibv_destroy_qp(qp), 0);
}

TEST_P(Windows, BindingsThatCannotBe) {
  struct Case {
    const char* what;
    std::size_t offset, length;
    unsigned access;
    bool plain;  // a region that allows no windows
  };
  const Case cases[] = {
      {"beyond the region", 65530, 8, IBV_ACCESS_REMOTE_READ, false},
      {"unknown right", 0, 8, IBV_ACCESS_MW_BIND, false},
      {"a region without windows", 0, 8, IBV_ACCESS_REMOTE_READ, true},
      {"no length", 0, 0, IBV_ACCESS_REMOTE_READ, false},
  };
  for (const Case& c : cases) {
    WindowPair p(GetParam());
    if (c.plain) p.region = p.rig.memory(65536, GetParam());
    ibv_mw* mw = ibv_alloc_mw(p.rig.pd, IBV_MW_TYPE_2);
    EXPECT_EQ(p.bind_2(mw, ibv_inc_rkey(mw->rkey), p.region.address(c.offset), c.length, c.access),
              IBV_WC_MW_BIND_ERR)
        << c.what;
    EXPECT_EQ(ibv_dealloc_mw(mw), 0);
  }
  {
    WindowPair p(GetParam());
    Region read_only = p.rig.memory(4096, GetParam(), IBV_ACCESS_MW_BIND);
    p.region = read_only;
    ibv_mw* mw = ibv_alloc_mw(p.rig.pd, IBV_MW_TYPE_2);
    EXPECT_EQ(
        p.bind_2(mw, ibv_inc_rkey(mw->rkey), read_only.address(0), 8, IBV_ACCESS_REMOTE_WRITE),
        IBV_WC_MW_BIND_ERR)
        << "writing where the region is for reading";
    EXPECT_EQ(ibv_dealloc_mw(mw), 0);
  }
  {
    WindowPair p(GetParam());
    ibv_mw* mw = ibv_alloc_mw(p.rig.pd, IBV_MW_TYPE_2);
    const std::uint32_t key = ibv_inc_rkey(mw->rkey);
    ASSERT_EQ(p.bind_2(mw, key, p.region.address(0), 8, IBV_ACCESS_REMOTE_READ), IBV_WC_SUCCESS);
    EXPECT_EQ(p.bind_2(mw, ibv_inc_rkey(key), p.region.address(0), 8, IBV_ACCESS_REMOTE_READ),
              IBV_WC_MW_BIND_ERR)
        << "bound already";
    EXPECT_EQ(ibv_dealloc_mw(mw), 0);
  }
}

TEST_P(Windows, AKeyOfAWindowIsNoLocalKey) {
  WindowPair p(GetParam());
  ibv_mw* mw = ibv_alloc_mw(p.rig.pd, IBV_MW_TYPE_2);
  const std::uint32_t key = ibv_inc_rkey(mw->rkey);
  ASSERT_EQ(p.bind_2(mw, key, p.region.address(0), 100, IBV_ACCESS_REMOTE_READ), IBV_WC_SUCCESS);
  ibv_sge sge = p.region.sge(0, 8);
  sge.lkey = key;
  post(p.b, IBV_WR_SEND, {sge}, 1);
  EXPECT_EQ(wait_wc(p.cq_b).status, IBV_WC_LOC_PROT_ERR);
  EXPECT_EQ(ibv_dealloc_mw(mw), 0);
}

INSTANTIATE_TEST_SUITE_P(Memory, Windows, ::testing::Bool(), [](const auto& info) {
  return std::string(info.param ? "Shared" : "Plain");
});

}  // namespace
}  // namespace turnout::hca::test
