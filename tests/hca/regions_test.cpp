// SPDX-License-Identifier: BSD-3-Clause
// Regions beside plain registration: registered anew, of device memory, of all memory (implicit
// on-demand paging), prefetched, counted from zero; and parent domains.
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
