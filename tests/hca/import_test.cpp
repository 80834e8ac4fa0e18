// SPDX-License-Identifier: BSD-3-Clause
// Objects of one context used in another, of the same process and of another one.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <string>

#include "tests/hca/rig.h"

namespace turnout::hca::test {
namespace {

class Import : public ::testing::Test {
 protected:
  void SetUp() override { use_own_fabric(); }
  void TearDown() override { EXPECT_FALSE(fabric_exists()); }
};

TEST_F(Import, DomainAndRegionInTheSameProcess) {
  Rig rig;
  Region memory = rig.memory(4096, false);
  ibv_context* context = ibv_import_device(dup(rig.context->cmd_fd));
  ASSERT_NE(context, nullptr);
  ibv_pd* pd = ibv_import_pd(context, rig.pd->handle);
  ASSERT_NE(pd, nullptr);
  ibv_mr* mr = ibv_import_mr(pd, memory.mr->handle);
  ASSERT_NE(mr, nullptr);
  EXPECT_EQ(mr->rkey, memory.mr->rkey);
  EXPECT_EQ(mr->addr, nullptr);
  EXPECT_EQ(mr->length, 4096U);
  // A queue pair of the imported domain works with it; another of the original writes to it.
  ibv_cq* cq = ibv_create_cq(context, 16, nullptr, nullptr, 0);
  ibv_qp_init_attr attr{};
  attr.send_cq = attr.recv_cq = cq;
  attr.cap = {8, 8, 1, 1, 0};
  attr.qp_type = IBV_QPT_RC;
  ibv_qp* qp = ibv_create_qp(pd, &attr);
  ASSERT_NE(qp, nullptr);
  ibv_qp* other = rig.rc();
  connect(qp, other->qp_num);
  connect(other, qp->qp_num);
  memory.data[0] = 42;
  post(qp, IBV_WR_RDMA_WRITE, {{memory.address(0), 1, mr->lkey}}, 1, memory.address(9),
       memory.mr->rkey);
  EXPECT_EQ(wait_wc(cq).status, IBV_WC_SUCCESS);
  EXPECT_EQ(memory.data[9], 42);
  EXPECT_EQ(ibv_destroy_qp(qp), 0);
  EXPECT_EQ(ibv_destroy_cq(cq), 0);
  ibv_unimport_mr(mr);
  ibv_unimport_pd(pd);
  EXPECT_EQ(ibv_close_device(context), 0);
  // The originals live.
  post(other, IBV_WR_SEND, {memory.sge(0, 8)}, 1);
}

TEST_F(Import, WhatIsNotThere) {
  Rig rig;
  Region memory = rig.memory(4096, false);
  EXPECT_EQ(ibv_import_device(-1), nullptr);
  const int other = memfd_create("something", 0);
  ASSERT_EQ(write(other, "turnout-uverbs x\n", 17), 17);
  EXPECT_EQ(ibv_import_device(other), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(ibv_import_dm(rig.context, static_cast<std::uint32_t>(other)), nullptr);
  close(other);
  EXPECT_EQ(ibv_import_pd(rig.context, 0xfffffff0), nullptr);
  EXPECT_EQ(ibv_import_mr(rig.pd, memory.mr->handle + 1), nullptr);
  ibv_pd* pd = ibv_alloc_pd(rig.context);
  EXPECT_EQ(ibv_import_mr(pd, memory.mr->handle), nullptr);  // of another domain
  EXPECT_EQ(ibv_dealloc_pd(pd), 0);
}

TEST_F(Import, DeviceMemoryOfAnotherProcess) {
  Exchange* x = exchange();
  enum : unsigned { kPid, kCommand, kHandle };
  run(2, [x](unsigned rank) {
    if (rank == 0) {
      Rig rig;
      ibv_alloc_dm_attr attr{};
      attr.length = 4096;
      ibv_dm* dm = ibv_alloc_dm(rig.context, &attr);
      ASSERT_NE(dm, nullptr);
      set(x, kPid, static_cast<std::uint64_t>(getpid()));
      set(x, kCommand, static_cast<std::uint64_t>(rig.context->cmd_fd));
      set(x, kHandle, dm->handle);
      meet(x, 0, 2);
      char text[8] = {};
      EXPECT_EQ(ibv_memcpy_from_dm(text, dm, 64, 8), 0);
      EXPECT_EQ(std::memcmp(text, "imported", 8), 0);
      EXPECT_EQ(ibv_free_dm(dm), 0);
    } else {
      const std::string path =
          "/proc/" + std::to_string(get(x, kPid)) + "/fd/" + std::to_string(get(x, kCommand));
      ibv_context* context = ibv_import_device(open(path.c_str(), O_RDONLY));
      ASSERT_NE(context, nullptr);
      ibv_dm* dm = ibv_import_dm(context, static_cast<std::uint32_t>(get(x, kHandle)));
      ASSERT_NE(dm, nullptr);
      EXPECT_EQ(ibv_memcpy_to_dm(dm, 64, "imported", 8), 0);
      ibv_unimport_dm(dm);
      meet(x, 0, 2);
      EXPECT_EQ(ibv_close_device(context), 0);
    }
  });
}

}  // namespace
}  // namespace turnout::hca::test
