// SPDX-License-Identifier: BSD-3-Clause
// XRC within one process: domains, shared receive queues, targets and their handles, every
// operation, the errors of each, order over several receive queues.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "tests/hca/rig.h"

namespace turnout::hca::test {
namespace {

class Xrc : public ::testing::Test {
 protected:
  void SetUp() override {
    use_own_fabric();
    file_ = memfd_create("domain", MFD_CLOEXEC);
  }
  void TearDown() override {
    close(file_);
    EXPECT_FALSE(fabric_exists());
  }
  int file_ = -1;
};

// An initiator connected to a target, with one SRQ of the domain.
struct XrcPair {
  explicit XrcPair(int file = -1, const ConnectOptions& options = {}) {
    xrcd = rig.xrcd(file);
    srq = rig.xrc_srq(xrcd, 64);
    srqn = srq_number(srq);
    target = rig.xrc_target(xrcd);
    initiator = rig.xrc_initiator();
    connect(target, initiator->qp_num, options);
    connect(initiator, target->qp_num, options);
    local = rig.memory(65536);
    remote = rig.memory(65536);
  }
  ibv_wc send(std::uint32_t to, std::uint64_t id = 1) {
    post_xrc(initiator, to, IBV_WR_SEND, local.sge(0, 16), id);
    return wait_wc(rig.send_cq);
  }
  ibv_async_event event() {
    ibv_async_event e{};
    EXPECT_TRUE(readable(rig.context->async_fd, 10000));
    EXPECT_EQ(ibv_get_async_event(rig.context, &e), 0);
    ibv_ack_async_event(&e);
    return e;
  }
  Rig rig;
  ibv_xrcd* xrcd;
  ibv_srq* srq;
  std::uint32_t srqn;
  ibv_qp *target, *initiator;
  Region local, remote;
};

ibv_xrcd* open_domain(const Rig& rig, int fd, int oflags,
                      unsigned mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS) {
  ibv_xrcd_init_attr attr{};
  attr.comp_mask = mask;
  attr.fd = fd;
  attr.oflags = oflags;
  errno = 0;
  return ibv_open_xrcd(rig.context, &attr);
}

TEST_F(Xrc, DeviceTells) {
  Rig rig;
  ibv_device_attr attr{};
  EXPECT_EQ(ibv_query_device(rig.context, &attr), 0);
  EXPECT_NE(attr.device_cap_flags & IBV_DEVICE_XRC, 0U);
}

TEST_F(Xrc, DomainsOfFiles) {
  Rig rig;
  EXPECT_EQ(open_domain(rig, file_, 0), nullptr);  // there is none yet
  EXPECT_EQ(errno, EAGAIN);
  EXPECT_EQ(open_domain(rig, 9999, O_CREAT), nullptr);
  EXPECT_EQ(errno, EBADF);
  EXPECT_EQ(open_domain(rig, file_, O_CREAT, IBV_XRCD_INIT_ATTR_FD), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(open_domain(rig, file_, O_CREAT, 7), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  ibv_xrcd* first = open_domain(rig, file_, O_CREAT | O_EXCL);
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(open_domain(rig, file_, O_CREAT | O_EXCL), nullptr);
  EXPECT_EQ(errno, EINVAL);
  // By inode: another descriptor of the file, and no flag is needed now.
  const int again = open(("/proc/self/fd/" + std::to_string(file_)).c_str(), O_RDWR | O_CLOEXEC);
  ibv_xrcd* second = open_domain(rig, again, 0);
  ASSERT_NE(second, nullptr);
  close(again);
  EXPECT_EQ(ibv_close_xrcd(first), 0);
  ibv_xrcd* third = open_domain(rig, file_, 0);
  ASSERT_NE(third, nullptr);
  EXPECT_EQ(ibv_close_xrcd(second), 0);
  EXPECT_EQ(ibv_close_xrcd(third), 0);
  EXPECT_EQ(open_domain(rig, file_, 0), nullptr);  // the last one took it along
}

TEST_F(Xrc, DomainInUseStays) {
  Rig rig;
  ibv_xrcd* xrcd = rig.xrcd(file_);
  ibv_srq* srq = rig.xrc_srq(xrcd, 4);
  EXPECT_EQ(ibv_close_xrcd(xrcd), EBUSY);
  EXPECT_EQ(ibv_destroy_cq(rig.recv_cq), EBUSY);
  rig.destroy(srq);
  ibv_qp* target = rig.xrc_target(xrcd);
  EXPECT_EQ(ibv_close_xrcd(xrcd), EBUSY);
  ibv_xrcd* other = rig.xrcd(file_);
  ibv_qp* handle = rig.open_target(other, target->qp_num);
  rig.destroy(target);
  rig.close(xrcd);
  EXPECT_EQ(ibv_close_xrcd(other), EBUSY);
  rig.destroy(handle);
  rig.close(other);
}

TEST_F(Xrc, PrivateDomainsAreTwo) {
  Rig rig;
  ibv_xrcd* one = rig.xrcd();
  ibv_xrcd* two = rig.xrcd();
  ibv_qp* target = rig.xrc_target(one);
  ibv_qp_open_attr attr{};
  attr.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
  attr.qp_num = target->qp_num;
  attr.qp_type = IBV_QPT_XRC_RECV;
  attr.xrcd = two;
  EXPECT_EQ(ibv_open_qp(rig.context, &attr), nullptr);
  EXPECT_EQ(errno, EINVAL);
  attr.xrcd = one;
  attr.qp_num ^= 1U << 16;  // a former queue pair of this index
  EXPECT_EQ(ibv_open_qp(rig.context, &attr), nullptr);
  attr.qp_num ^= 1U << 16;
  attr.qp_type = IBV_QPT_XRC_SEND;
  EXPECT_EQ(ibv_open_qp(rig.context, &attr), nullptr);
  attr.qp_type = IBV_QPT_XRC_RECV;
  attr.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD;
  EXPECT_EQ(ibv_open_qp(rig.context, &attr), nullptr);
  attr.comp_mask = 0xff;
  EXPECT_EQ(ibv_open_qp(rig.context, &attr), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  ibv_qp* rc = rig.rc();
  attr.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
  attr.qp_num = rc->qp_num;
  EXPECT_EQ(ibv_open_qp(rig.context, &attr), nullptr);
}

TEST_F(Xrc, CreationIsChecked) {
  Rig rig;
  ibv_xrcd* xrcd = rig.xrcd();
  ibv_srq* basic = rig.srq(4);
  ibv_srq* srq = rig.xrc_srq(xrcd, 4);
  EXPECT_NE(srq_number(basic), srq_number(srq));
  // An XRC SRQ is no queue pair's, a basic one not XRC's.
  for (const ibv_qp_type type : {IBV_QPT_RC, IBV_QPT_UD, IBV_QPT_XRC_SEND}) {
    ibv_qp_init_attr attr{};
    attr.send_cq = rig.send_cq;
    attr.recv_cq = rig.recv_cq;
    attr.srq = type == IBV_QPT_XRC_SEND ? basic : srq;
    attr.cap = {4, 0, 1, 1, 0};
    attr.qp_type = type;
    errno = 0;
    EXPECT_EQ(ibv_create_qp(rig.pd, &attr), nullptr);
    EXPECT_EQ(errno, EINVAL);
  }
  ibv_qp_init_attr_ex attr{};
  attr.recv_cq = rig.recv_cq;
  attr.srq = srq;
  attr.qp_type = IBV_QPT_DRIVER;
  attr.comp_mask = IBV_QP_INIT_ATTR_PD;
  attr.pd = rig.pd;
  mlx5dv_qp_init_attr dv{};
  dv.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC;
  dv.dc_init_attr.dc_type = MLX5DV_DCTYPE_DCT;
  EXPECT_EQ(mlx5dv_create_qp(rig.context, &attr, &dv), nullptr);
  EXPECT_EQ(errno, EINVAL);
  // A target needs a domain, and an initiator a PD and somewhere to complete.
  attr = {};
  attr.qp_type = IBV_QPT_XRC_RECV;
  attr.comp_mask = IBV_QP_INIT_ATTR_PD;
  attr.pd = rig.pd;
  EXPECT_EQ(ibv_create_qp_ex(rig.context, &attr), nullptr);
  EXPECT_EQ(errno, EINVAL);
  attr.qp_type = IBV_QPT_XRC_SEND;
  EXPECT_EQ(ibv_create_qp_ex(rig.context, &attr), nullptr);
  attr.comp_mask = IBV_QP_INIT_ATTR_XRCD;
  attr.send_cq = rig.send_cq;
  attr.xrcd = xrcd;
  EXPECT_EQ(ibv_create_qp_ex(rig.context, &attr), nullptr);
  // An XRC SRQ needs all three.
  for (const unsigned missing :
       {IBV_SRQ_INIT_ATTR_PD, IBV_SRQ_INIT_ATTR_XRCD, IBV_SRQ_INIT_ATTR_CQ}) {
    ibv_srq_init_attr_ex s{};
    s.attr.max_wr = 4;
    s.comp_mask = (IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD |
                   IBV_SRQ_INIT_ATTR_CQ) &
                  ~missing;
    s.srq_type = IBV_SRQT_XRC;
    s.pd = rig.pd;
    s.xrcd = xrcd;
    s.cq = rig.recv_cq;
    errno = 0;
    EXPECT_EQ(ibv_create_srq_ex(rig.context, &s), nullptr);
    EXPECT_EQ(errno, EINVAL);
  }
  ibv_srq_init_attr_ex tagged{};
  tagged.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD;
  tagged.srq_type = IBV_SRQT_TM;
  tagged.pd = rig.pd;
  EXPECT_EQ(ibv_create_srq_ex(rig.context, &tagged), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
}

TEST_F(Xrc, EveryOperation) {
  XrcPair p;
  for (unsigned i = 0; i < 4096; ++i) p.local.data[i] = static_cast<std::uint8_t>(i * 3);
  const std::uint64_t at = p.remote.address();
  const std::uint32_t key = p.remote.mr->rkey;
  for (std::uint64_t i = 0; i < 3; ++i) post_srq(p.srq, {p.remote.sge(8192 + i * 64, 64)}, 10 + i);

  EXPECT_EQ(p.send(p.srqn).status, IBV_WC_SUCCESS);
  ibv_wc wc = wait_wc(p.rig.recv_cq);
  EXPECT_EQ(wc.wr_id, 10U);
  EXPECT_EQ(wc.opcode, IBV_WC_RECV);
  EXPECT_EQ(wc.byte_len, 16U);
  EXPECT_EQ(wc.qp_num, p.target->qp_num);
  EXPECT_EQ(wc.src_qp, p.initiator->qp_num);
  EXPECT_EQ(wc.wc_flags, 0U);
  EXPECT_EQ(std::memcmp(p.remote.data + 8192, p.local.data, 16), 0);

  post_xrc(p.initiator, p.srqn, IBV_WR_SEND_WITH_IMM, p.local.sge(16, 32), 2);
  EXPECT_EQ(wait_wc(p.rig.send_cq).opcode, IBV_WC_SEND);
  wc = wait_wc(p.rig.recv_cq);
  EXPECT_EQ(wc.imm_data, 0x55U);
  EXPECT_EQ(wc.wc_flags, IBV_WC_WITH_IMM);

  post_xrc(p.initiator, p.srqn, IBV_WR_RDMA_WRITE, p.local.sge(0, 4096), 3, at, key);
  EXPECT_EQ(wait_wc(p.rig.send_cq).status, IBV_WC_SUCCESS);
  EXPECT_EQ(std::memcmp(p.remote.data, p.local.data, 4096), 0);

  post_xrc(p.initiator, p.srqn, IBV_WR_RDMA_WRITE_WITH_IMM, p.local.sge(1, 100), 4, at, key);
  EXPECT_EQ(wait_wc(p.rig.send_cq).status, IBV_WC_SUCCESS);
  wc = wait_wc(p.rig.recv_cq);
  EXPECT_EQ(wc.wr_id, 12U);
  EXPECT_EQ(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
  EXPECT_EQ(wc.byte_len, 100U);
  EXPECT_EQ(wc.qp_num, p.target->qp_num);
  EXPECT_EQ(std::memcmp(p.remote.data, p.local.data + 1, 100), 0);

  post_xrc(p.initiator, p.srqn, IBV_WR_RDMA_READ, p.local.sge(32768, 100), 5, at, key);
  EXPECT_EQ(wait_wc(p.rig.send_cq).opcode, IBV_WC_RDMA_READ);
  EXPECT_EQ(std::memcmp(p.local.data + 32768, p.remote.data, 100), 0);

  std::uint64_t value = 5;
  std::memcpy(p.remote.data, &value, 8);
  post_xrc(p.initiator, p.srqn, IBV_WR_ATOMIC_FETCH_AND_ADD, p.local.sge(64, 8), 6, at, key);
  EXPECT_EQ(wait_wc(p.rig.send_cq).status, IBV_WC_SUCCESS);
  std::memcpy(&value, p.local.data + 64, 8);
  EXPECT_EQ(value, 5U);
  std::memcpy(&value, p.remote.data, 8);
  EXPECT_EQ(value, 10U);
  value = 5;
  std::memcpy(p.remote.data, &value, 8);
  post_xrc(p.initiator, p.srqn, IBV_WR_ATOMIC_CMP_AND_SWP, p.local.sge(64, 8), 7, at, key);
  EXPECT_EQ(wait_wc(p.rig.send_cq).opcode, IBV_WC_COMP_SWAP);
  std::memcpy(&value, p.remote.data, 8);
  EXPECT_EQ(value, 9U);
}

TEST_F(Xrc, Builders) {
  XrcPair p;
  post_srq(p.srq, {p.remote.sge(0, 64)}, 1);
  post_srq(p.srq, {p.remote.sge(64, 64)}, 2);
  ibv_qp_ex* ex = ibv_qp_to_qp_ex(p.initiator);
  ASSERT_NE(ex, nullptr);
  char text[] = "by builder";
  ibv_wr_start(ex);
  ex->wr_id = 1;
  ex->wr_flags = IBV_SEND_INLINE;
  ibv_wr_send(ex);
  ibv_wr_set_xrc_srqn(ex, p.srqn);
  ibv_wr_set_inline_data(ex, text, sizeof text);
  ex->wr_id = 2;
  ex->wr_flags = IBV_SEND_SIGNALED;
  ibv_wr_rdma_write_imm(ex, p.remote.mr->rkey, p.remote.address(4096), 7);
  ibv_wr_set_xrc_srqn(ex, p.srqn);
  ibv_wr_set_sge(ex, p.local.mr->lkey, p.local.address(), 8);
  EXPECT_EQ(ibv_wr_complete(ex), 0);
  EXPECT_EQ(wait_wc(p.rig.send_cq).wr_id, 2U);
  EXPECT_EQ(wait_wc(p.rig.recv_cq).wr_id, 1U);
  EXPECT_STREQ(reinterpret_cast<const char*>(p.remote.data), text);
  EXPECT_EQ(wait_wc(p.rig.recv_cq).imm_data, 7U);
  // A request that names no SRQ is refused where it is posted.
  ibv_wr_start(ex);
  ibv_wr_send(ex);
  ibv_wr_set_sge(ex, p.local.mr->lkey, p.local.address(), 8);
  EXPECT_EQ(ibv_wr_complete(ex), EINVAL);
}

// What one initiator sends is done in its order, whatever SRQs it names. All SRQs use one
// completion queue, which shows the order.
TEST_F(Xrc, AnEmptyQueueHoldsUpTheOthers) {
  XrcPair p;
  ibv_srq* second = p.rig.xrc_srq(p.xrcd, 4);
  post_srq(second, {p.remote.sge(0, 64)}, 20);
  post_xrc(p.initiator, p.srqn, IBV_WR_SEND, p.local.sge(0, 8), 1);
  post_xrc(p.initiator, srq_number(second), IBV_WR_SEND, p.local.sge(0, 8), 2);
  post_xrc(p.initiator, p.srqn, IBV_WR_SEND, p.local.sge(0, 8), 3);
  // Another initiator is not held up, and what it sends later arrives first.
  ibv_qp *const target = p.rig.xrc_target(p.xrcd), *const other = p.rig.xrc_initiator();
  connect(target, other->qp_num);
  connect(other, target->qp_num);
  ibv_srq* third = p.rig.xrc_srq(p.xrcd, 4);
  post_srq(third, {p.remote.sge(128, 64)}, 30);
  post_xrc(other, srq_number(third), IBV_WR_SEND, p.local.sge(0, 8), 4);
  EXPECT_EQ(wait_wc(p.rig.recv_cq).wr_id, 30U);
  EXPECT_EQ(wait_wc(p.rig.send_cq).wr_id, 4U);
  post_srq(p.srq, {p.remote.sge(64, 64)}, 10);
  EXPECT_EQ(wait_wc(p.rig.recv_cq).wr_id, 10U);
  EXPECT_EQ(wait_wc(p.rig.recv_cq).wr_id, 20U);
  EXPECT_EQ(wait_wc(p.rig.send_cq).wr_id, 1U);
  EXPECT_EQ(wait_wc(p.rig.send_cq).wr_id, 2U);
  post_srq(second, {p.remote.sge(192, 64)}, 21);
  post_xrc(p.initiator, srq_number(second), IBV_WR_SEND, p.local.sge(0, 8), 5);
  post_srq(p.srq, {p.remote.sge(64, 64)}, 11);
  EXPECT_EQ(wait_wc(p.rig.recv_cq).wr_id, 11U);
  EXPECT_EQ(wait_wc(p.rig.recv_cq).wr_id, 21U);
  EXPECT_EQ(wait_wc(p.rig.send_cq).wr_id, 3U);
  EXPECT_EQ(wait_wc(p.rig.send_cq).wr_id, 5U);
}

TEST_F(Xrc, RnrExhausted) {
  ConnectOptions options;
  options.rnr_retry = 2;
  XrcPair p(-1, options);
  EXPECT_EQ(p.send(p.srqn).status, IBV_WC_RNR_RETRY_EXC_ERR);
  EXPECT_EQ(state_of(p.initiator), IBV_QPS_ERR);
  EXPECT_EQ(state_of(p.target), IBV_QPS_RTS);
}

TEST_F(Xrc, WhatNamesNoQueueOfTheDomainIsRefused) {
  struct Case {
    const char* name;
    std::function<std::uint32_t(XrcPair&)> number;
  };
  const Case cases[] = {
      {"nobody", [](XrcPair& p) { return p.srqn ^ 0x1000; }},
      {"more than 24 bits", [](XrcPair& p) { return p.srqn | 1U << 24; }},
      {"a basic one",
       [](XrcPair& p) {
         ibv_srq* basic = p.rig.srq(4);
         post_srq(basic, {p.remote.sge(0, 64)}, 1);
         return srq_number(basic);
       }},
      {"of another domain",
       [](XrcPair& p) {
         ibv_srq* other = p.rig.xrc_srq(p.rig.xrcd(), 4);
         post_srq(other, {p.remote.sge(0, 64)}, 1);
         return srq_number(other);
       }},
      {"destroyed",
       [](XrcPair& p) {
         ibv_srq* gone = p.rig.xrc_srq(p.xrcd, 4);
         const std::uint32_t number = srq_number(gone), record = gone->handle;
         p.rig.destroy(gone);
         // The next user of the record is another.
         ibv_srq* next = p.rig.xrc_srq(p.xrcd, 4);
         EXPECT_EQ(next->handle, record);
         post_srq(next, {p.remote.sge(0, 64)}, 1);
         return number;
       }},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    XrcPair p;
    ibv_qp* second = p.rig.open_target(p.xrcd, p.target->qp_num);
    post_srq(p.srq, {p.remote.sge(0, 64)}, 2);
    EXPECT_EQ(p.send(c.number(p)).status, IBV_WC_REM_INV_REQ_ERR);
    EXPECT_EQ(state_of(p.initiator), IBV_QPS_ERR);
    EXPECT_EQ(state_of(p.target), IBV_QPS_ERR);
    EXPECT_EQ(state_of(second), IBV_QPS_ERR);
    EXPECT_TRUE(empty(p.rig.recv_cq));
    // All handles are told.
    const ibv_async_event one = p.event(), two = p.event();
    EXPECT_EQ(one.event_type, IBV_EVENT_QP_REQ_ERR);
    EXPECT_EQ(two.event_type, IBV_EVENT_QP_REQ_ERR);
    EXPECT_NE(one.element.qp, two.element.qp);
    EXPECT_TRUE(one.element.qp == p.target || one.element.qp == second);
    EXPECT_TRUE(two.element.qp == p.target || two.element.qp == second);
    EXPECT_FALSE(readable(p.rig.context->async_fd, 0));
    // Made anew, by the other handle, it works again.
    EXPECT_EQ(modify_state(second, IBV_QPS_RESET), 0);
    EXPECT_EQ(modify_state(p.initiator, IBV_QPS_RESET), 0);
    connect(second, p.initiator->qp_num);
    connect(p.initiator, p.target->qp_num);
    EXPECT_EQ(p.send(p.srqn).status, IBV_WC_SUCCESS);
    EXPECT_EQ(wait_wc(p.rig.recv_cq).wr_id, 2U);
  }
}

// Remote keys are those of the SRQ's protection domain.
TEST_F(Xrc, MemoryIsThatOfTheQueuesDomain) {
  XrcPair p;
  ibv_pd* pd = ibv_alloc_pd(p.rig.context);
  ibv_srq* other = p.rig.xrc_srq(p.xrcd, 4, nullptr, pd);
  Region own = p.rig.memory(4096, true, kFullAccess, pd);
  post_xrc(p.initiator, srq_number(other), IBV_WR_RDMA_WRITE, p.local.sge(0, 8), 1, own.address(),
           own.mr->rkey);
  EXPECT_EQ(wait_wc(p.rig.send_cq).status, IBV_WC_SUCCESS);
  post_xrc(p.initiator, p.srqn, IBV_WR_RDMA_WRITE, p.local.sge(0, 8), 1, own.address(),
           own.mr->rkey);
  EXPECT_EQ(wait_wc(p.rig.send_cq).status, IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(p.event().event_type, IBV_EVENT_QP_ACCESS_ERR);
  EXPECT_EQ(state_of(p.target), IBV_QPS_ERR);
  p.rig.destroy(other);
  p.rig.drop(own);
  EXPECT_EQ(ibv_dealloc_pd(pd), 0);
}

TEST_F(Xrc, MessageLongerThanReceive) {
  XrcPair p;
  post_srq(p.srq, {p.remote.sge(0, 4)}, 1);
  EXPECT_EQ(p.send(p.srqn).status, IBV_WC_REM_INV_REQ_ERR);
  EXPECT_EQ(wait_wc(p.rig.recv_cq).status, IBV_WC_LOC_LEN_ERR);
  EXPECT_EQ(p.event().event_type, IBV_EVENT_QP_REQ_ERR);
}

TEST_F(Xrc, ReceiveWithBadKey) {
  XrcPair p;
  ibv_sge bad = p.remote.sge(0, 64);
  bad.lkey ^= 1;
  post_srq(p.srq, {bad}, 1);
  EXPECT_EQ(p.send(p.srqn).status, IBV_WC_REM_OP_ERR);
  EXPECT_EQ(wait_wc(p.rig.recv_cq).status, IBV_WC_LOC_PROT_ERR);
  EXPECT_EQ(p.event().event_type, IBV_EVENT_QP_FATAL);
}

TEST_F(Xrc, LimitEvent) {
  XrcPair p;
  for (std::uint64_t i = 0; i < 3; ++i) post_srq(p.srq, {p.remote.sge(0, 64)}, i);
  ibv_srq_attr attr{};
  attr.srq_limit = 2;
  EXPECT_EQ(ibv_modify_srq(p.srq, &attr, IBV_SRQ_LIMIT), 0);
  attr = {};
  EXPECT_EQ(ibv_query_srq(p.srq, &attr), 0);
  EXPECT_EQ(attr.srq_limit, 2U);
  EXPECT_EQ(attr.max_wr, 64U);
  EXPECT_EQ(p.send(p.srqn).status, IBV_WC_SUCCESS);
  EXPECT_FALSE(readable(p.rig.context->async_fd, 0));
  EXPECT_EQ(p.send(p.srqn).status, IBV_WC_SUCCESS);
  const ibv_async_event e = p.event();
  EXPECT_EQ(e.event_type, IBV_EVENT_SRQ_LIMIT_REACHED);
  EXPECT_EQ(e.element.srq, p.srq);
}

TEST_F(Xrc, AQueueGoesWhileItsTargetServesOthers) {
  XrcPair p;
  ibv_cq* cq = p.rig.cq(16);
  ibv_srq* gone = p.rig.xrc_srq(p.xrcd, 4, cq);
  post_srq(gone, {p.remote.sge(0, 64)}, 1);
  post_srq(p.srq, {p.remote.sge(0, 64)}, 2);
  EXPECT_EQ(p.send(srq_number(gone)).status, IBV_WC_SUCCESS);
  EXPECT_EQ(wait_wc(cq).wr_id, 1U);
  p.rig.destroy(gone);
  EXPECT_EQ(p.send(p.srqn).status, IBV_WC_SUCCESS);
  EXPECT_EQ(wait_wc(p.rig.recv_cq).wr_id, 2U);
}

TEST_F(Xrc, TheLastHandleDestroys) {
  ConnectOptions options;
  options.timeout = 4;
  XrcPair p(file_, options);
  ibv_xrcd* again = p.rig.xrcd(file_);
  ibv_qp* second = p.rig.open_target(again, p.target->qp_num);
  EXPECT_EQ(second->qp_num, p.target->qp_num);
  EXPECT_EQ(second->state, IBV_QPS_RTS);
  EXPECT_EQ(second->qp_context, &p.rig);
  // What any handle changes, all see.
  ibv_qp_attr attr{};
  attr.min_rnr_timer = 9;
  EXPECT_EQ(ibv_modify_qp(second, &attr, IBV_QP_MIN_RNR_TIMER), 0);
  ibv_qp_init_attr init{};
  EXPECT_EQ(ibv_query_qp(p.target, &attr, IBV_QP_MIN_RNR_TIMER, &init), 0);
  EXPECT_EQ(attr.min_rnr_timer, 9);
  EXPECT_EQ(attr.dest_qp_num, p.initiator->qp_num);
  EXPECT_EQ(attr.path_mtu, IBV_MTU_4096);
  EXPECT_EQ(init.qp_type, IBV_QPT_XRC_RECV);
  EXPECT_EQ(init.cap.max_send_wr, 0U);
  EXPECT_EQ(init.cap.max_recv_wr, 0U);
  const std::uint32_t number = p.target->qp_num;
  p.rig.destroy(p.target);
  post_srq(p.srq, {p.remote.sge(0, 64)}, 3);
  EXPECT_EQ(p.send(p.srqn).status, IBV_WC_SUCCESS);
  EXPECT_EQ(wait_wc(p.rig.recv_cq).qp_num, number);
  p.rig.destroy(second);
  EXPECT_EQ(p.send(p.srqn).status, IBV_WC_RETRY_EXC_ERR);
  ibv_qp_open_attr open{};
  open.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
  open.qp_num = number;
  open.xrcd = p.xrcd;
  open.qp_type = IBV_QPT_XRC_RECV;
  EXPECT_EQ(ibv_open_qp(p.rig.context, &open), nullptr);
}

TEST_F(Xrc, TargetsNeitherSendNorHaveReceives) {
  XrcPair p;
  post(p.target, IBV_WR_SEND, {p.local.sge(0, 8)}, 1, 0, 0, 0, EINVAL);
  post_recv(p.target, {p.local.sge(0, 8)}, 1, EINVAL);
  post_recv(p.initiator, {p.local.sge(0, 8)}, 1, EINVAL);
  EXPECT_EQ(ibv_qp_to_qp_ex(p.target), nullptr);
}

TEST_F(Xrc, Transitions) {
  Rig rig;
  ibv_qp* target = rig.xrc_target(rig.xrcd());
  ibv_qp* initiator = rig.xrc_initiator();
  constexpr int kInit = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
  constexpr int kRtr = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
  constexpr int kTargetRtr = kRtr | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  constexpr int kTargetRts = IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT;
  constexpr int kRts = kTargetRts | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
  ibv_qp_attr a{};
  a.port_num = 1;
  a.ah_attr.port_num = 1;
  a.ah_attr.dlid = 1;
  a.path_mtu = IBV_MTU_1024;
  a.dest_qp_num = 77;
  const auto modify = [&](ibv_qp* qp, ibv_qp_state to, int mask) {
    a.qp_state = to;
    return ibv_modify_qp(qp, &a, mask);
  };
  EXPECT_EQ(modify(target, IBV_QPS_RTR, kTargetRtr), EINVAL);
  EXPECT_EQ(modify(target, IBV_QPS_INIT, kInit | IBV_QP_QKEY), EINVAL);
  EXPECT_EQ(modify(target, IBV_QPS_INIT, kInit), 0);
  EXPECT_EQ(modify(initiator, IBV_QPS_INIT, kInit & ~IBV_QP_ACCESS_FLAGS), EINVAL);
  EXPECT_EQ(modify(initiator, IBV_QPS_INIT, kInit), 0);
  EXPECT_EQ(modify(target, IBV_QPS_RTR, kRtr), EINVAL);  // its own attributes are missing
  EXPECT_EQ(modify(target, IBV_QPS_RTR, kTargetRtr), 0);
  // What only the other side has is ignored, as the kernel ignores it; perftest gives it.
  EXPECT_EQ(modify(initiator, IBV_QPS_RTR, kTargetRtr | IBV_QP_QKEY), EINVAL);
  EXPECT_EQ(modify(initiator, IBV_QPS_RTR, kTargetRtr), 0);
  EXPECT_EQ(modify(initiator, IBV_QPS_RTS, kTargetRts), EINVAL);
  EXPECT_EQ(modify(target, IBV_QPS_RTS, kRts), 0);
  EXPECT_EQ(modify(initiator, IBV_QPS_RTS, kRts), 0);
  EXPECT_EQ(modify_state(initiator, IBV_QPS_SQD), 0);
  EXPECT_EQ(modify_state(initiator, IBV_QPS_RTS), 0);
  EXPECT_EQ(modify_state(target, IBV_QPS_ERR), 0);
  EXPECT_EQ(modify_state(target, IBV_QPS_RTS), EINVAL);
  EXPECT_EQ(modify_state(target, IBV_QPS_RESET), 0);
  ibv_qp_init_attr init{};
  EXPECT_EQ(ibv_query_qp(target, &a, IBV_QP_STATE, &init), 0);
  EXPECT_EQ(a.qp_state, IBV_QPS_RESET);
  EXPECT_EQ(a.dest_qp_num, 0U);
}

// A target serves before it is in RTS, and only the initiator that it is connected to.
TEST_F(Xrc, OnlyTheConnectedInitiatorIsServed) {
  Rig rig;
  ibv_xrcd* xrcd = rig.xrcd();
  ibv_srq* srq = rig.xrc_srq(xrcd, 4);
  ibv_qp* target = rig.xrc_target(xrcd);
  ibv_qp* right = rig.xrc_initiator();
  ibv_qp* wrong = rig.xrc_initiator();
  Region m = rig.memory(4096);
  ConnectOptions options;
  options.timeout = 4;
  to_init(target);
  to_rtr(target, right->qp_num);
  connect(right, target->qp_num, options);
  connect(wrong, target->qp_num, options);
  post_srq(srq, {m.sge(0, 64)}, 5);
  post_xrc(wrong, srq_number(srq), IBV_WR_SEND, m.sge(64, 8), 1);
  EXPECT_EQ(wait_wc(rig.send_cq).status, IBV_WC_RETRY_EXC_ERR);
  post_xrc(right, srq_number(srq), IBV_WR_SEND, m.sge(64, 8), 2);
  EXPECT_EQ(wait_wc(rig.send_cq).status, IBV_WC_SUCCESS);
  EXPECT_EQ(wait_wc(rig.recv_cq).src_qp, right->qp_num);
  // An RC queue pair is no XRC target.
  ibv_qp* rc = rig.rc();
  connect(rc, wrong->qp_num);
  EXPECT_EQ(modify_state(wrong, IBV_QPS_RESET), 0);
  connect(wrong, rc->qp_num, options);
  post_xrc(wrong, srq_number(srq), IBV_WR_SEND, m.sge(64, 8), 3);
  EXPECT_EQ(wait_wc(rig.send_cq).status, IBV_WC_RETRY_EXC_ERR);
}

}  // namespace
}  // namespace turnout::hca::test
