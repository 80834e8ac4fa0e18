// SPDX-License-Identifier: BSD-3-Clause
// Regions beside plain registration: registered anew, of device memory, of all memory (implicit
// on-demand paging), prefetched, counted from zero; null regions; and parent domains.
#include <sys/mman.h>

#include <cstring>

#include "tests/hca/pair.h"

namespace turnout::hca::test {
namespace {

class Regions : public ::testing::Test {
 protected:
  void SetUp() override { use_own_fabric(); }
  void TearDown() override { EXPECT_FALSE(fabric_exists()); }
};

TEST_F(Regions, RegisteredAnewWithOtherRights) {
  Pair p;
  Region target = p.rig.memory(4096, false, IBV_ACCESS_LOCAL_WRITE);
  const std::uint32_t key = target.mr->rkey;
  ASSERT_EQ(ibv_rereg_mr(target.mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, kFullAccess),
            0);
  EXPECT_EQ(target.mr->rkey, key);
  EXPECT_EQ(p.write(target.address(), key, 100).status, IBV_WC_SUCCESS);
  ASSERT_EQ(ibv_rereg_mr(target.mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0,
                         IBV_ACCESS_LOCAL_WRITE),
            0);
  EXPECT_EQ(p.write(target.address(), key, 100).status, IBV_WC_REM_ACCESS_ERR);
}

TEST_F(Regions, RegisteredAnewElsewhere) {
  Pair p;
  Region target = p.rig.memory(4096, false);
  alignas(64) std::uint8_t other[256] = {};
  ASSERT_EQ(
      ibv_rereg_mr(target.mr, IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, other, sizeof other, 0), 0);
  EXPECT_EQ(target.mr->addr, other);
  p.local.data[0] = 9;
  EXPECT_EQ(p.write(reinterpret_cast<std::uint64_t>(other), target.mr->rkey, 256).status,
            IBV_WC_SUCCESS);
  EXPECT_EQ(other[0], 9);
  EXPECT_EQ(p.write(target.address(), target.mr->rkey, 1).status, IBV_WC_REM_ACCESS_ERR);
}

TEST_F(Regions, NoAddressesThatWrap) {
  Rig rig;
  Region target = rig.memory(4096, false);
  void* const high = reinterpret_cast<void*>(~std::uintptr_t{0} - 4095);
  errno = 0;
  EXPECT_EQ(ibv_reg_mr(rig.pd, high, 8192, kFullAccess), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(ibv_rereg_mr(target.mr, IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, high, 8192, 0),
            IBV_REREG_MR_ERR_INPUT);
}

TEST_F(Regions, RegisteredAnewInAnotherDomain) {
  Pair p;
  ibv_pd* pd = ibv_alloc_pd(p.rig.context);
  ibv_mr* mr = ibv_reg_mr(p.rig.pd, p.remote.data, 4096, kFullAccess);
  ASSERT_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, pd, nullptr, 0, 0), 0);
  EXPECT_EQ(mr->pd, pd);
  EXPECT_EQ(ibv_dealloc_pd(pd), EBUSY);
  EXPECT_EQ(p.write(p.remote.address(), mr->rkey, 1).status, IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
  EXPECT_EQ(ibv_dealloc_pd(pd), 0);
}

TEST_F(Regions, WhatCannotBeRegisteredAnewStays) {
  Pair p;
  Region target = p.rig.memory(4096, false);
  ibv_mr* mr = target.mr;
  EXPECT_EQ(ibv_rereg_mr(mr, 0, nullptr, nullptr, 0, 0), IBV_REREG_MR_ERR_INPUT);
  EXPECT_EQ(ibv_rereg_mr(mr, 1 << 5, nullptr, nullptr, 0, 0), IBV_REREG_MR_ERR_INPUT);
  EXPECT_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, nullptr, nullptr, 0, 0),
            IBV_REREG_MR_ERR_INPUT);
  EXPECT_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0,
                         IBV_ACCESS_REMOTE_WRITE),  // remote writes need local ones
            IBV_REREG_MR_ERR_INPUT);
  EXPECT_EQ(p.write(target.address(), mr->rkey, 100).status, IBV_WC_SUCCESS);
}

TEST_F(Regions, DeviceMemory) {
  Pair p;
  ibv_device_attr_ex device{};
  ASSERT_EQ(ibv_query_device_ex(p.rig.context, nullptr, &device), 0);
  ASSERT_GT(device.max_dm_size, 0U);
  ibv_alloc_dm_attr attr{};
  attr.length = 4096;
  ibv_dm* dm = ibv_alloc_dm(p.rig.context, &attr);
  ASSERT_NE(dm, nullptr);
  constexpr unsigned kAccess = IBV_ACCESS_ZERO_BASED | kFullAccess;
  EXPECT_EQ(ibv_reg_dm_mr(p.rig.pd, dm, 0, 4096, kFullAccess), nullptr);  // not from zero
  EXPECT_EQ(ibv_reg_dm_mr(p.rig.pd, dm, 4, 4096, kAccess), nullptr);      // beyond its end
  ibv_mr* mr = ibv_reg_dm_mr(p.rig.pd, dm, 1024, 1024, kAccess);
  ASSERT_NE(mr, nullptr);
  std::memcpy(p.local.data, "chip", 4);
  EXPECT_EQ(p.write(4, mr->rkey, 4).status, IBV_WC_SUCCESS);
  char read[8] = {};
  EXPECT_EQ(ibv_memcpy_from_dm(read, dm, 1024, sizeof read), 0);
  EXPECT_EQ(std::memcmp(read + 4, "chip", 4), 0);
  EXPECT_EQ(ibv_memcpy_to_dm(dm, 1024, "atad", 4), 0);
  // As a local buffer, too: key and offset.
  ibv_sge sge{0, 8, mr->lkey};
  post(p.a, IBV_WR_RDMA_WRITE, {sge}, 1, p.remote.address(), p.remote.mr->rkey);
  EXPECT_EQ(wait_wc(p.cq_a).status, IBV_WC_SUCCESS);
  EXPECT_EQ(std::memcmp(p.remote.data, "atadchip", 8), 0);
  EXPECT_EQ(ibv_memcpy_to_dm(dm, 2, read, 4), EINVAL);     // not a multiple of 4
  EXPECT_EQ(ibv_memcpy_from_dm(read, dm, 0, 6), EINVAL);   // nor is this
  EXPECT_EQ(ibv_memcpy_to_dm(dm, 4092, read, 8), EINVAL);  // beyond its end
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
  EXPECT_EQ(ibv_free_dm(dm), 0);
  // There is so much of it and no more; what was freed can be had again.
  attr.length = device.max_dm_size;
  dm = ibv_alloc_dm(p.rig.context, &attr);
  ASSERT_NE(dm, nullptr);
  attr.length = 4;
  EXPECT_EQ(ibv_alloc_dm(p.rig.context, &attr), nullptr);
  EXPECT_EQ(errno, ENOMEM);
  EXPECT_EQ(ibv_free_dm(dm), 0);
}

TEST_F(Regions, CountedFromZero) {
  Pair p;
  ibv_mr* mr = ibv_reg_mr(p.rig.pd, p.remote.data + 512, 100, kFullAccess | IBV_ACCESS_ZERO_BASED);
  ASSERT_NE(mr, nullptr);
  p.local.data[0] = 3;
  EXPECT_EQ(p.write(7, mr->rkey, 1).status, IBV_WC_SUCCESS);
  EXPECT_EQ(p.remote.data[519], 3);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
}

TEST_F(Regions, AllOfMemory) {
  Pair p;
  ibv_mr* mr = ibv_reg_mr(p.rig.pd, nullptr, SIZE_MAX, kFullAccess | IBV_ACCESS_ON_DEMAND);
  ASSERT_NE(mr, nullptr);
  EXPECT_EQ(ibv_reg_mr(p.rig.pd, nullptr, SIZE_MAX, kFullAccess), nullptr);  // pages cannot stay
  // Mapped after the registration.
  auto* late = static_cast<std::uint8_t*>(
      mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  p.local.data[0] = 11;
  EXPECT_EQ(p.write(reinterpret_cast<std::uint64_t>(late), mr->rkey, 1).status, IBV_WC_SUCCESS);
  EXPECT_EQ(late[0], 11);
  ibv_sge sge{reinterpret_cast<std::uint64_t>(late), 4096, mr->lkey};
  EXPECT_EQ(ibv_advise_mr(p.rig.pd, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, IBV_ADVISE_MR_FLAG_FLUSH,
                          &sge, 1),
            0);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
  munmap(late, 4096);
}

// Addresses of a null region: any.
ibv_sge nowhere(const ibv_mr* null, std::uint32_t length,
                std::uint64_t address = 0xdead'0000'0000) {
  return {address, length, null->lkey};
}

TEST_F(Regions, NullGivesZeros) {
  Pair p;
  ibv_mr* const null = ibv_alloc_null_mr(p.rig.pd);
  ASSERT_NE(null, nullptr);
  EXPECT_EQ(null->addr, nullptr);
  EXPECT_EQ(null->length, SIZE_MAX);
  std::memset(p.local.data, 0x11, 64);
  std::memset(p.remote.data, 0x22, 65536);
  // Between bytes of memory, in a write and in a message.
  const std::vector<ibv_sge> parts{p.local.sge(0, 4), nowhere(null, 100), p.local.sge(4, 4)};
  post(p.a, IBV_WR_RDMA_WRITE, parts, 1, p.remote.address(), p.remote.mr->rkey);
  EXPECT_EQ(wait_wc(p.cq_a).status, IBV_WC_SUCCESS);
  post_recv(p.b, {p.remote.sge(1000, 200)}, 2);
  post(p.a, IBV_WR_SEND, parts, 3);
  EXPECT_EQ(wait_wc(p.cq_a).status, IBV_WC_SUCCESS);
  EXPECT_EQ(wait_wc(p.cq_b).byte_len, 108U);
  for (const std::size_t at : {std::size_t{0}, std::size_t{1000}}) {
    std::uint8_t expected[109] = {};
    std::memset(expected, 0x11, 4);
    std::memset(expected + 104, 0x11, 4);
    expected[108] = 0x22;
    EXPECT_EQ(std::memcmp(p.remote.data + at, expected, sizeof expected), 0) << at;
  }
  // Twice, as the key of the latest write's source is kept; and more than a page.
  for (int i = 0; i < 2; ++i) {
    p.remote.data[65535] = 1;
    post(p.a, IBV_WR_RDMA_WRITE, {nowhere(null, 65536, 0)}, 4, p.remote.address(),
         p.remote.mr->rkey);
    EXPECT_EQ(wait_wc(p.cq_a).status, IBV_WC_SUCCESS);
    EXPECT_EQ(p.remote.data[65535], 0);
  }
  const ibv_sge former = nowhere(null, 8);
  EXPECT_EQ(ibv_dereg_mr(null), 0);
  post(p.a, IBV_WR_RDMA_WRITE, {former}, 5, p.remote.address(), p.remote.mr->rkey);
  EXPECT_EQ(wait_wc(p.cq_a).status, IBV_WC_LOC_PROT_ERR);
}

TEST_F(Regions, NullKeepsNothing) {
  Pair p;
  ibv_mr* const null = ibv_alloc_null_mr(p.rig.pd);
  ASSERT_NE(null, nullptr);
  for (std::size_t i = 0; i < 256; ++i) p.remote.data[i] = static_cast<std::uint8_t>(i);
  std::memset(p.local.data, 0x33, 256);
  // The bytes between go.
  post(p.a, IBV_WR_RDMA_READ, {p.local.sge(0, 2), nowhere(null, 100), p.local.sge(2, 2)}, 1,
       p.remote.address(), p.remote.mr->rkey);
  EXPECT_EQ(wait_wc(p.cq_a).status, IBV_WC_SUCCESS);
  EXPECT_EQ(std::memcmp(p.local.data, "\x00\x01\x66\x67\x33", 5), 0);
  // The result of an atomic goes, what it does stays.
  std::uint64_t word = 40;
  std::memcpy(p.remote.data, &word, 8);
  post_atomic(p.a, IBV_WR_ATOMIC_FETCH_AND_ADD, nowhere(null, 8), p.remote.address(),
              p.remote.mr->rkey, 2);
  EXPECT_EQ(wait_wc(p.cq_a).status, IBV_WC_SUCCESS);
  post_atomic(p.a, IBV_WR_ATOMIC_CMP_AND_SWP, nowhere(null, 8), p.remote.address(),
              p.remote.mr->rkey, 42, 43);
  EXPECT_EQ(wait_wc(p.cq_a).status, IBV_WC_SUCCESS);
  std::memcpy(&word, p.remote.data, 8);
  EXPECT_EQ(word, 43U);
  // A message is scattered around it; one that is longer than all of it still does not fit.
  post_recv(p.b, {nowhere(null, 100), p.remote.sge(500, 4), nowhere(null, 4)}, 2);
  std::memcpy(p.local.data + 100, "here", 4);
  post(p.a, IBV_WR_SEND_WITH_IMM, {p.local.sge(0, 106)}, 3);
  EXPECT_EQ(wait_wc(p.cq_a).status, IBV_WC_SUCCESS);
  EXPECT_EQ(wait_wc(p.cq_b).byte_len, 106U);
  EXPECT_EQ(std::memcmp(p.remote.data + 500, "here", 4), 0);
  // What was dropped is not given back.
  post(p.b, IBV_WR_RDMA_WRITE, {nowhere(null, 100)}, 4, p.local.address(), p.local.mr->rkey);
  EXPECT_EQ(wait_wc(p.cq_b).status, IBV_WC_SUCCESS);
  EXPECT_EQ(p.local.data[99], 0);
  post_recv(p.b, {nowhere(null, 3)}, 5);
  post(p.a, IBV_WR_SEND, {p.local.sge(0, 4)}, 6);
  EXPECT_EQ(wait_wc(p.cq_a).status, IBV_WC_REM_INV_REQ_ERR);
  EXPECT_EQ(wait_wc(p.cq_b).status, IBV_WC_LOC_LEN_ERR);
  EXPECT_EQ(ibv_dereg_mr(null), 0);
}

TEST_F(Regions, NullTakesDatagrams) {
  Rig rig;
  ibv_qp *a = rig.ud(), *b = rig.ud();
  ready_ud(a);
  ready_ud(b);
  ibv_mr* const null = ibv_alloc_null_mr(rig.pd);
  Region memory = rig.memory(4096);
  std::memcpy(memory.data, "text", 4);
  post_recv(b, {nowhere(null, 40), memory.sge(100, 8)}, 1);  // without its route header
  ibv_sge text = memory.sge(0, 4);
  ibv_send_wr wr{}, *bad = nullptr;
  wr.opcode = IBV_WR_SEND;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.sg_list = &text;
  wr.num_sge = 1;
  wr.wr.ud.ah = rig.ah();
  wr.wr.ud.remote_qpn = b->qp_num;
  wr.wr.ud.remote_qkey = kQkey;
  ASSERT_EQ(ibv_post_send(a, &wr, &bad), 0);
  EXPECT_EQ(wait_wc(rig.recv_cq).byte_len, 44U);
  EXPECT_EQ(std::memcmp(memory.data + 100, "text", 4), 0);
  EXPECT_EQ(ibv_dereg_mr(null), 0);
}

TEST_F(Regions, NullHasALocalKeyOnly) {
  Pair p;
  ibv_mr* const null = ibv_alloc_null_mr(p.rig.pd);
  ASSERT_NE(null, nullptr);
  EXPECT_EQ(null->rkey, 0U);
  EXPECT_EQ(ibv_rereg_mr(null, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, kFullAccess),
            IBV_REREG_MR_ERR_INPUT);
  ibv_sge sge = nowhere(null, 100);
  EXPECT_EQ(ibv_advise_mr(p.rig.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &sge, 1), EINVAL);
  EXPECT_EQ(ibv_import_mr(p.rig.pd, null->handle), nullptr);
  ibv_mw* const mw = ibv_alloc_mw(p.rig.pd, IBV_MW_TYPE_1);
  EXPECT_EQ(p.bind(mw, {null, 4096, 100, IBV_ACCESS_REMOTE_READ}), IBV_WC_MW_BIND_ERR);
  EXPECT_EQ(ibv_dealloc_mw(mw), 0);
  Pair q;
  EXPECT_EQ(q.write(4096, null->lkey, 100).status, IBV_WC_REM_ACCESS_ERR);
  // And of its domain.
  Pair r;
  ibv_pd* const other = ibv_alloc_pd(r.rig.context);
  ibv_mr* const of_other = ibv_alloc_null_mr(other);
  ASSERT_NE(of_other, nullptr);
  EXPECT_EQ(ibv_dealloc_pd(other), EBUSY);
  post(r.a, IBV_WR_RDMA_WRITE, {nowhere(of_other, 8)}, 1, r.remote.address(), r.remote.mr->rkey);
  EXPECT_EQ(wait_wc(r.cq_a).status, IBV_WC_LOC_PROT_ERR);
  EXPECT_EQ(ibv_dereg_mr(of_other), 0);
  EXPECT_EQ(ibv_dealloc_pd(other), 0);
  EXPECT_EQ(ibv_dereg_mr(null), 0);
}

// The sender of the other process has no null region itself.
TEST_F(Regions, NullOfAnotherProcess) {
  Exchange* const x = exchange();
  constexpr std::size_t kLarge = 2 << 20;
  run(2, [&](unsigned me) {
    Rig rig;
    ibv_qp* const qp = rig.rc();
    set(x, me, qp->qp_num);
    connect(qp, static_cast<std::uint32_t>(get(x, 1 - me)));
    Region memory = rig.memory(kLarge, false);
    std::memset(memory.data, 0x44, kLarge);
    if (me == 1) {
      ibv_mr* const null = ibv_alloc_null_mr(rig.pd);
      post_recv(qp, {nowhere(null, kLarge - 1), memory.sge(0, 1)}, 1);
      memory.data[0] = 0;
      set(x, 2, null->lkey);
      set(x, 3, memory.address());
      set(x, 4, memory.mr->rkey);
      EXPECT_EQ(wait_wc(rig.recv_cq).byte_len, kLarge);
      EXPECT_EQ(memory.data[0], 0x44);
      EXPECT_EQ(memory.data[1], 0x44);
      // Of ordinary memory of the other, and to it.
      const std::uint64_t theirs = get(x, 5);
      const auto key = static_cast<std::uint32_t>(get(x, 6));
      post(qp, IBV_WR_RDMA_READ, {nowhere(null, kLarge)}, 2, theirs, key);
      EXPECT_EQ(wait_wc(rig.send_cq).status, IBV_WC_SUCCESS);
      post(qp, IBV_WR_RDMA_WRITE, {nowhere(null, kLarge)}, 3, theirs, key);
      EXPECT_EQ(wait_wc(rig.send_cq).status, IBV_WC_SUCCESS);
      meet(x, 0, 2);
      EXPECT_EQ(ibv_dereg_mr(null), 0);
      meet(x, 1, 2);
      return;
    }
    const auto null = static_cast<std::uint32_t>(get(x, 2));
    get(x, 4);
    post(qp, IBV_WR_SEND, {memory.sge(0, kLarge)}, 1);
    EXPECT_EQ(wait_wc(rig.send_cq).status, IBV_WC_SUCCESS);
    set(x, 5, memory.address());
    set(x, 6, memory.mr->rkey);
    meet(x, 0, 2);
    EXPECT_EQ(memory.data[0], 0);
    EXPECT_EQ(memory.data[kLarge - 1], 0);
    // The other's key is no local key here.
    post(qp, IBV_WR_RDMA_WRITE, {{0, 8, null}}, 2, get(x, 3),
         static_cast<std::uint32_t>(get(x, 4)));
    EXPECT_EQ(wait_wc(rig.send_cq).status, IBV_WC_LOC_PROT_ERR);
    meet(x, 1, 2);
  });
}

TEST_F(Regions, AdviceThatIsRefused) {
  Rig rig;
  Region memory = rig.memory(4096, false, IBV_ACCESS_REMOTE_READ);
  ibv_pd* other = ibv_alloc_pd(rig.context);
  const auto advise = [&](ibv_pd* pd, ibv_advise_mr_advice advice, std::size_t offset,
                          std::uint32_t key) {
    ibv_sge sge = memory.sge(offset, 100);
    sge.lkey = key;
    return ibv_advise_mr(pd, advice, 0, &sge, 1);
  };
  const std::uint32_t key = memory.mr->lkey;
  EXPECT_EQ(advise(rig.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, key), 0);
  EXPECT_EQ(advise(rig.pd, IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT, 0, key), 0);
  EXPECT_EQ(advise(rig.pd, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, 0, key), EPERM);
  EXPECT_EQ(advise(rig.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 4000, key), EFAULT);
  EXPECT_EQ(advise(rig.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, 0xdead00), EINVAL);
  EXPECT_EQ(advise(other, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, key), EINVAL);
  EXPECT_EQ(advise(rig.pd, static_cast<ibv_advise_mr_advice>(3), 0, key), EOPNOTSUPP);
  EXPECT_EQ(ibv_dealloc_pd(other), 0);
}

TEST_F(Regions, ParentDomain) {
  Rig rig;
  ibv_td_init_attr thread{};
  ibv_td* td = ibv_alloc_td(rig.context, &thread);
  ASSERT_NE(td, nullptr);
  ibv_parent_domain_init_attr attr{};
  attr.pd = rig.pd;
  attr.td = td;
  ibv_pd* parent = ibv_alloc_parent_domain(rig.context, &attr);
  ASSERT_NE(parent, nullptr);
  EXPECT_EQ(ibv_dealloc_td(td), EBUSY);
  EXPECT_EQ(ibv_dealloc_pd(rig.pd), EBUSY);
  // Its objects and those of its protection domain are of one domain.
  QpOptions options;
  options.pd = parent;
  ibv_qp *a = rig.rc(options), *b = rig.rc();
  connect(a, b->qp_num);
  connect(b, a->qp_num);
  Region memory = rig.memory(4096);
  ibv_mr* mr = ibv_reg_mr(parent, memory.data, 4096, kFullAccess);
  ASSERT_NE(mr, nullptr);
  post(a, IBV_WR_RDMA_WRITE, {memory.sge(0, 8)}, 1, memory.address(100), mr->rkey);
  EXPECT_EQ(wait_wc(rig.send_cq).status, IBV_WC_SUCCESS);
  EXPECT_EQ(ibv_dealloc_pd(parent), EBUSY);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
  rig.destroy(a);
  EXPECT_EQ(ibv_dealloc_pd(parent), 0);
  EXPECT_EQ(ibv_dealloc_td(td), 0);
  attr.comp_mask = 1U << 20;
  EXPECT_EQ(ibv_alloc_parent_domain(rig.context, &attr), nullptr);
}

}  // namespace
}  // namespace turnout::hca::test
