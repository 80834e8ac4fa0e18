// SPDX-License-Identifier: BSD-3-Clause
// Multicast groups: everybody who is attached gets a copy, in every process; who leaves gets none.
#include <arpa/inet.h>

#include <cstdlib>
#include <cstring>

#include "hca/live/fabric.h"
#include "tests/hca/rig.h"

namespace turnout::hca::test {
namespace {

constexpr std::size_t kGrh = 40;

class Multicast : public ::testing::Test {
 protected:
  void SetUp() override { use_own_fabric(); }
  void TearDown() override { EXPECT_FALSE(fabric_exists()); }
};

ibv_gid group(std::uint8_t last) {
  ibv_gid gid{};
  gid.raw[0] = 0xff;
  gid.raw[1] = 0x12;
  gid.raw[15] = last;
  return gid;
}

ibv_ah* group_handle(Rig& rig, const ibv_gid& gid) {
  ibv_ah_attr attr{};
  attr.is_global = 1;
  attr.grh.dgid = gid;
  attr.grh.hop_limit = 1;
  attr.dlid = 0xc001;
  attr.port_num = 1;
  ibv_ah* ah = ibv_create_ah(rig.pd, &attr);
  EXPECT_NE(ah, nullptr);
  return ah;
}

void send(ibv_qp* qp, ibv_ah* ah, const ibv_sge& sge, std::uint32_t qkey = kQkey) {
  ibv_sge piece = sge;
  ibv_send_wr wr{}, *bad = nullptr;
  wr.sg_list = &piece;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_SEND;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.wr.ud = {ah, 0xffffff, qkey};
  EXPECT_EQ(ibv_post_send(qp, &wr, &bad), 0);
}

TEST_F(Multicast, EverybodyAttachedGetsACopy) {
  Rig rig;
  const ibv_gid gid = group(1), other = group(2);
  QpOptions options[3];
  ibv_qp* qps[3];
  ibv_cq* cqs[3];
  Region memory = rig.memory(4096);
  std::memset(memory.data, 0, memory.size);
  std::memcpy(memory.data + 3000, "to all", 7);
  for (unsigned i = 0; i < 3; ++i) {
    options[i].recv_cq = cqs[i] = rig.cq(16);
    qps[i] = rig.ud(options[i]);
    ready_ud(qps[i]);
    post_recv(qps[i], {memory.sge(i * 500, 500)}, i);
  }
  ASSERT_EQ(ibv_attach_mcast(qps[0], &gid, 0xc001), 0);  // the sender is one of them
  ASSERT_EQ(ibv_attach_mcast(qps[1], &gid, 0xc001), 0);
  ASSERT_EQ(ibv_attach_mcast(qps[1], &gid, 0xc001), 0);  // twice is once
  ASSERT_EQ(ibv_attach_mcast(qps[2], &other, 0xc001), 0);
  ibv_ah* ah = group_handle(rig, gid);
  send(qps[0], ah, memory.sge(3000, 7));
  EXPECT_EQ(wait_wc(rig.send_cq).status, IBV_WC_SUCCESS);
  for (unsigned i = 0; i < 2; ++i) {
    const ibv_wc wc = wait_wc(cqs[i]);
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
    EXPECT_EQ(wc.byte_len, kGrh + 7);
    EXPECT_EQ(wc.src_qp, qps[0]->qp_num);
    ASSERT_NE(wc.wc_flags & IBV_WC_GRH, 0U);
    ibv_grh grh;
    std::memcpy(&grh, memory.data + i * 500, sizeof grh);
    EXPECT_EQ(std::memcmp(grh.dgid.raw, gid.raw, sizeof gid.raw), 0);
    EXPECT_STREQ(reinterpret_cast<char*>(memory.data + i * 500 + kGrh), "to all");
    EXPECT_TRUE(empty(cqs[i]));
  }
  EXPECT_TRUE(empty(cqs[2]));

  // One that is attached is not destroyed; one that left gets no more.
  EXPECT_EQ(ibv_destroy_qp(qps[1]), EBUSY);
  EXPECT_EQ(ibv_detach_mcast(qps[1], &gid, 0xc001), 0);
  EXPECT_EQ(ibv_detach_mcast(qps[1], &gid, 0xc001), EINVAL);
  EXPECT_EQ(ibv_detach_mcast(qps[0], &gid, 0xc001), 0);
  EXPECT_EQ(ibv_detach_mcast(qps[2], &other, 0xc001), 0);
  post_recv(qps[1], {memory.sge(500, 500)}, 9);
  send(qps[0], ah, memory.sge(3000, 7));
  EXPECT_EQ(wait_wc(rig.send_cq).status, IBV_WC_SUCCESS);
  EXPECT_TRUE(empty(cqs[1]));
  ibv_destroy_ah(ah);
}

TEST_F(Multicast, OneThatDoesNotWantToHearItself) {
  Rig rig;
  const ibv_gid gid = group(3);
  ibv_qp_init_attr_ex attr{};
  attr.send_cq = rig.send_cq;
  attr.recv_cq = rig.recv_cq;
  attr.cap = {4, 4, 1, 1, 0};
  attr.qp_type = IBV_QPT_UD;
  attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS;
  attr.pd = rig.pd;
  attr.create_flags = IBV_QP_CREATE_BLOCK_SELF_MCAST_LB;
  ibv_qp* quiet = ibv_create_qp_ex(rig.context, &attr);
  ASSERT_NE(quiet, nullptr);
  QpOptions options;
  options.recv_cq = rig.cq(4);
  ibv_qp* other = rig.ud(options);
  Region memory = rig.memory(4096);
  for (ibv_qp* qp : {quiet, other}) {
    ready_ud(qp);
    post_recv(qp, {memory.sge(0, 500)}, 1);
    ASSERT_EQ(ibv_attach_mcast(qp, &gid, 0xc001), 0);
  }
  ibv_ah* ah = group_handle(rig, gid);
  send(quiet, ah, memory.sge(1000, 7));
  EXPECT_EQ(wait_wc(options.recv_cq).status, IBV_WC_SUCCESS);
  EXPECT_TRUE(empty(rig.recv_cq));
  ibv_destroy_ah(ah);
  for (ibv_qp* qp : {quiet, other}) EXPECT_EQ(ibv_detach_mcast(qp, &gid, 0xc001), 0);
  EXPECT_EQ(ibv_destroy_qp(quiet), 0);
  attr.qp_type = IBV_QPT_RC;
  EXPECT_EQ(ibv_create_qp_ex(rig.context, &attr), nullptr);
}

TEST_F(Multicast, OnlyDatagramsAndGroupsCanMeet) {
  Rig rig;
  const ibv_gid gid = group(1);
  ibv_gid unicast = gid;
  unicast.raw[0] = 0xfe;
  EXPECT_EQ(ibv_attach_mcast(rig.rc(), &gid, 0), EINVAL);
  EXPECT_EQ(ibv_attach_mcast(rig.ud(), &unicast, 0), EINVAL);
}

TEST_F(Multicast, AnotherKeyIsLost) {
  Rig rig;
  const ibv_gid gid = group(1);
  ibv_qp* qp = rig.ud();
  ready_ud(qp);
  Region memory = rig.memory(4096);
  post_recv(qp, {memory.sge(0, 500)}, 1);
  ASSERT_EQ(ibv_attach_mcast(qp, &gid, 0xc001), 0);
  ibv_ah* ah = group_handle(rig, gid);
  send(qp, ah, memory.sge(1000, 7), kQkey + 1);
  EXPECT_EQ(wait_wc(rig.send_cq).status, IBV_WC_SUCCESS);
  EXPECT_TRUE(empty(rig.recv_cq));
  EXPECT_EQ(ibv_detach_mcast(qp, &gid, 0xc001), 0);
  ibv_destroy_ah(ah);
}

// Three processes in a group; one is killed: the two others go on, and its place is free.
TEST_F(Multicast, BetweenProcessesOneOfWhichDies) {
  Exchange* x = exchange();
  run(3, [x](unsigned rank) {
    const ibv_gid gid = group(7);
    Rig rig;
    ibv_qp* qp = rig.ud();
    ready_ud(qp);
    Region memory = rig.memory(8192);
    for (unsigned i = 0; i < 4; ++i) post_recv(qp, {memory.sge(i * 500, 500)}, i);
    ASSERT_EQ(ibv_attach_mcast(qp, &gid, 0xc001), 0);
    meet(x, 0, 3);
    ibv_ah* ah = group_handle(rig, gid);
    if (rank == 0) send(qp, ah, memory.sge(4000, 8));
    EXPECT_EQ(wait_wc(rig.recv_cq).status, IBV_WC_SUCCESS);
    meet(x, 1, 3);
    if (rank == 2) kill_self();
    if (rank == 1) send(qp, ah, memory.sge(4000, 8));
    EXPECT_EQ(wait_wc(rig.recv_cq).status, IBV_WC_SUCCESS);
    {
      auto fabric = Fabric::open(std::getenv("TURNOUT_FABRIC"), 1ULL << 29);
      ASSERT_TRUE(fabric.ok());
      EXPECT_TRUE(eventually([&] {
        unsigned attached = 0;
        for (std::uint32_t i = 0; i < 8; ++i) {
          attached += fabric.value()->multicast(i).qpn.load() != 0 ? 1U : 0U;
        }
        return attached == 2;
      }));
    }
    meet(x, 2, 2);
    EXPECT_EQ(ibv_detach_mcast(qp, &gid, 0xc001), 0);
    ibv_destroy_ah(ah);
  });
}

}  // namespace
}  // namespace turnout::hca::test
