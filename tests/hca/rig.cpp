// SPDX-License-Identifier: BSD-3-Clause
#include "tests/hca/rig.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "hca/live/directory.h"

namespace turnout::hca::test {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kPatience = std::chrono::seconds(60);  // only a hang is longer

}  // namespace

void use_own_fabric() {
  static unsigned count = 0;
  const std::string name = "test." + std::to_string(getpid()) + "." + std::to_string(count++);
  setenv("TURNOUT_FABRIC", name.c_str(), 1);
  setenv("TURNOUT_FABRIC_SIZE", "512MiB", 0);  // sanitizers shadow what is mapped
}
int open_fabric(const std::string& name) {
  auto members = list_members(name);
  EXPECT_TRUE(members.ok());
  for (const Member& member : *members) {
    if (const int fd = open_memory(name, member).release(); fd >= 0) return fd;
  }
  return -1;
}
bool fabric_exists() {
  const int fd = open_fabric();
  if (fd >= 0) ::close(fd);
  return fd >= 0;
}

Rig::Rig(int cqe) {
  int count = 0;
  ibv_device** list = ibv_get_device_list(&count);
  EXPECT_EQ(count, 1);
  context = ibv_open_device(list[0]);
  ibv_free_device_list(list);
  if (context == nullptr) {
    ADD_FAILURE() << "ibv_open_device: " << std::strerror(errno);
    std::abort();
  }
  pd = ibv_alloc_pd(context);
  send_cq = cq(cqe);
  recv_cq = cq(cqe);
}

Rig::~Rig() {
  for (ibv_qp* qp : qps_) EXPECT_EQ(ibv_destroy_qp(qp), 0);
  for (ibv_srq* srq : srqs_) EXPECT_EQ(ibv_destroy_srq(srq), 0);
  for (ibv_xrcd* xrcd : xrcds_) EXPECT_EQ(ibv_close_xrcd(xrcd), 0);
  for (ibv_cq* one : cqs_) EXPECT_EQ(ibv_destroy_cq(one), 0);
  for (ibv_ah* ah : ahs_) EXPECT_EQ(ibv_destroy_ah(ah), 0);
  for (Region& region : std::vector<Region>(regions_)) drop(region);
  if (channel != nullptr) {
    EXPECT_EQ(ibv_destroy_comp_channel(channel), 0);
  }
  EXPECT_EQ(ibv_dealloc_pd(pd), 0);
  EXPECT_EQ(ibv_close_device(context), 0);
}

Region Rig::memory(std::size_t size, bool shared, int access, ibv_pd* in) {
  Region r;
  r.size = size;
  if (in == nullptr) in = pd;
  if (shared) {
    r.fd = memfd_create("test", MFD_CLOEXEC);
    EXPECT_EQ(ftruncate(r.fd, static_cast<off_t>(size)), 0);
    r.data = static_cast<std::uint8_t*>(
        mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, r.fd, 0));
    r.mr = ibv_reg_dmabuf_mr(in, 0, size, r.address(), r.fd, access);
  } else {
    r.data = static_cast<std::uint8_t*>(
        mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    r.mr = ibv_reg_mr(in, r.data, size, static_cast<unsigned>(access));
  }
  EXPECT_NE(r.mr, nullptr) << std::strerror(errno);
  regions_.push_back(r);
  return r;
}

void Rig::drop(Region& region) {
  EXPECT_EQ(ibv_dereg_mr(region.mr), 0);
  munmap(region.data, region.size);
  if (region.fd >= 0) ::close(region.fd);
  std::erase_if(regions_, [&](const Region& r) { return r.data == region.data; });
}

ibv_cq* Rig::cq(int entries, ibv_comp_channel* on) {
  ibv_cq* one = ibv_create_cq(context, entries, this, on, 0);
  EXPECT_NE(one, nullptr) << std::strerror(errno);
  cqs_.push_back(one);
  return one;
}

ibv_srq* Rig::srq(std::uint32_t max_wr, std::uint32_t max_sge) {
  ibv_srq_init_attr attr{};
  attr.attr.max_wr = max_wr;
  attr.attr.max_sge = max_sge;
  ibv_srq* srq = ibv_create_srq(pd, &attr);
  EXPECT_NE(srq, nullptr) << std::strerror(errno);
  srqs_.push_back(srq);
  return srq;
}

namespace {

ibv_qp_init_attr_ex attributes(const Rig& rig, const QpOptions& o, ibv_qp_type type) {
  ibv_qp_init_attr_ex a{};
  a.send_cq = o.send_cq != nullptr ? o.send_cq : rig.send_cq;
  a.recv_cq = o.recv_cq != nullptr ? o.recv_cq : rig.recv_cq;
  a.srq = o.srq;
  a.cap = {o.send_wr, o.srq != nullptr ? 0 : o.recv_wr, o.send_sge, o.recv_sge, o.inline_data};
  a.qp_type = type;
  a.sq_sig_all = o.signal_all;
  a.comp_mask = IBV_QP_INIT_ATTR_PD;
  a.pd = o.pd != nullptr ? o.pd : rig.pd;
  if (o.builders) {
    a.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    a.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
    if (type != IBV_QPT_UD) {
      a.send_ops_flags |= IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
                          IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
                          IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
    }
  }
  return a;
}

}  // namespace

ibv_qp* Rig::rc(const QpOptions& options) {
  ibv_qp_init_attr_ex a = attributes(*this, options, IBV_QPT_RC);
  ibv_qp* qp = ibv_create_qp_ex(context, &a);
  EXPECT_NE(qp, nullptr) << std::strerror(errno);
  qps_.push_back(qp);
  return qp;
}

ibv_qp* Rig::uc(const QpOptions& options) {
  ibv_qp_init_attr_ex a = attributes(*this, options, IBV_QPT_UC);
  // Neither reads nor atomics.
  a.send_ops_flags &= IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM |
                      IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM;
  ibv_qp* qp = ibv_create_qp_ex(context, &a);
  EXPECT_NE(qp, nullptr) << std::strerror(errno);
  qps_.push_back(qp);
  return qp;
}

ibv_qp* Rig::ud(const QpOptions& options) {
  ibv_qp_init_attr_ex a = attributes(*this, options, IBV_QPT_UD);
  ibv_qp* qp = ibv_create_qp_ex(context, &a);
  EXPECT_NE(qp, nullptr) << std::strerror(errno);
  qps_.push_back(qp);
  return qp;
}

ibv_qp* Rig::dc(mlx5dv_dc_type type, ibv_srq* srq, const QpOptions& options) {
  QpOptions o = options;
  o.srq = srq;
  o.builders = type == MLX5DV_DCTYPE_DCI;
  ibv_qp_init_attr_ex a = attributes(*this, o, IBV_QPT_DRIVER);
  mlx5dv_qp_init_attr dv{};
  dv.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC;
  dv.dc_init_attr.dc_type = type;
  if (type == MLX5DV_DCTYPE_DCT) {
    a.send_cq = nullptr;
    a.cap = {};
    dv.dc_init_attr.dct_access_key = kDcKey;
  }
  ibv_qp* qp = mlx5dv_create_qp(context, &a, &dv);
  EXPECT_NE(qp, nullptr) << std::strerror(errno);
  qps_.push_back(qp);
  return qp;
}

ibv_qp* Rig::dci(const QpOptions& options) {
  return dc(MLX5DV_DCTYPE_DCI, nullptr, options);
}

ibv_qp* Rig::dct(ibv_srq* srq, const QpOptions& options) {
  ibv_qp* qp = dc(MLX5DV_DCTYPE_DCT, srq, options);
  EXPECT_EQ(qp->qp_num, 0U);
  ibv_qp_attr a{};
  a.qp_state = IBV_QPS_INIT;
  a.port_num = 1;
  a.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
  EXPECT_EQ(
      ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
      0);
  a.qp_state = IBV_QPS_RTR;
  a.path_mtu = IBV_MTU_4096;
  a.min_rnr_timer = 1;
  a.ah_attr.port_num = 1;
  EXPECT_EQ(
      ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PATH_MTU | IBV_QP_MIN_RNR_TIMER | IBV_QP_AV), 0);
  EXPECT_NE(qp->qp_num, 0U);
  return qp;
}

ibv_ah* Rig::ah() {
  ibv_ah_attr attr{};
  attr.dlid = 1;
  attr.port_num = 1;
  ibv_ah* one = ibv_create_ah(pd, &attr);
  EXPECT_NE(one, nullptr);
  ahs_.push_back(one);
  return one;
}

ibv_xrcd* Rig::xrcd(int fd) {
  ibv_xrcd_init_attr attr{};
  attr.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
  attr.fd = fd;
  attr.oflags = O_CREAT;
  ibv_xrcd* xrcd = ibv_open_xrcd(context, &attr);
  EXPECT_NE(xrcd, nullptr) << std::strerror(errno);
  xrcds_.push_back(xrcd);
  return xrcd;
}

ibv_srq* Rig::xrc_srq(ibv_xrcd* xrcd, std::uint32_t max_wr, ibv_cq* cq, ibv_pd* in) {
  ibv_srq_init_attr_ex attr{};
  attr.attr.max_wr = max_wr;
  attr.attr.max_sge = 2;
  attr.comp_mask =
      IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
  attr.srq_type = IBV_SRQT_XRC;
  attr.pd = in != nullptr ? in : pd;
  attr.xrcd = xrcd;
  attr.cq = cq != nullptr ? cq : recv_cq;
  ibv_srq* srq = ibv_create_srq_ex(context, &attr);
  EXPECT_NE(srq, nullptr) << std::strerror(errno);
  srqs_.push_back(srq);
  return srq;
}

ibv_qp* Rig::xrc_target(ibv_xrcd* xrcd) {
  ibv_qp_init_attr_ex attr{};
  attr.qp_context = this;
  attr.qp_type = IBV_QPT_XRC_RECV;
  attr.comp_mask = IBV_QP_INIT_ATTR_XRCD;
  attr.xrcd = xrcd;
  ibv_qp* qp = ibv_create_qp_ex(context, &attr);
  EXPECT_NE(qp, nullptr) << std::strerror(errno);
  qps_.push_back(qp);
  return qp;
}

ibv_qp* Rig::open_target(ibv_xrcd* xrcd, std::uint32_t number) {
  ibv_qp_open_attr attr{};
  attr.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE |
                   IBV_QP_OPEN_ATTR_CONTEXT;
  attr.qp_num = number;
  attr.xrcd = xrcd;
  attr.qp_type = IBV_QPT_XRC_RECV;
  attr.qp_context = this;
  ibv_qp* qp = ibv_open_qp(context, &attr);
  EXPECT_NE(qp, nullptr) << std::strerror(errno);
  qps_.push_back(qp);
  return qp;
}

ibv_qp* Rig::xrc_initiator(const QpOptions& options) {
  ibv_qp_init_attr_ex a = attributes(*this, options, IBV_QPT_XRC_SEND);
  ibv_qp* qp = ibv_create_qp_ex(context, &a);
  EXPECT_NE(qp, nullptr) << std::strerror(errno);
  qps_.push_back(qp);
  return qp;
}

void Rig::destroy(ibv_srq* srq) {
  EXPECT_EQ(ibv_destroy_srq(srq), 0);
  std::erase(srqs_, srq);
}

void Rig::close(ibv_xrcd* xrcd) {
  EXPECT_EQ(ibv_close_xrcd(xrcd), 0);
  std::erase(xrcds_, xrcd);
}

void Rig::destroy(ibv_qp* qp) {
  EXPECT_EQ(ibv_destroy_qp(qp), 0);
  std::erase(qps_, qp);
}

namespace {
bool is_xrc(const ibv_qp* qp) {
  return qp->qp_type == IBV_QPT_XRC_SEND || qp->qp_type == IBV_QPT_XRC_RECV;
}
}  // namespace

void to_init(ibv_qp* qp, const ConnectOptions& options) {
  ibv_qp_attr a{};
  a.qp_state = IBV_QPS_INIT;
  a.port_num = 1;
  a.qkey = kQkey;
  a.qp_access_flags = static_cast<unsigned>(options.access);
  int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
  if (qp->qp_type == IBV_QPT_RC || qp->qp_type == IBV_QPT_UC || is_xrc(qp)) {
    mask |= IBV_QP_ACCESS_FLAGS;
  }
  if (qp->qp_type == IBV_QPT_UD) mask |= IBV_QP_QKEY;
  EXPECT_EQ(ibv_modify_qp(qp, &a, mask), 0);
}

void to_rtr(ibv_qp* qp, std::uint32_t peer, const ConnectOptions& options) {
  ibv_qp_attr a{};
  a.qp_state = IBV_QPS_RTR;
  a.path_mtu = IBV_MTU_4096;
  a.dest_qp_num = peer;
  a.max_dest_rd_atomic = 16;
  a.min_rnr_timer = options.min_rnr_timer;
  a.rq_psn = options.rq_psn;
  a.ah_attr.dlid = 1;
  a.ah_attr.port_num = 1;
  int mask = IBV_QP_STATE;
  if (qp->qp_type == IBV_QPT_RC || qp->qp_type == IBV_QPT_UC || is_xrc(qp)) {
    mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
    if (qp->qp_type != IBV_QPT_XRC_SEND && qp->qp_type != IBV_QPT_UC)
      mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  } else if (qp->qp_type == IBV_QPT_DRIVER) {
    mask |= IBV_QP_PATH_MTU;
  }
  EXPECT_EQ(ibv_modify_qp(qp, &a, mask), 0);
}

void to_rts(ibv_qp* qp, const ConnectOptions& options) {
  ibv_qp_attr a{};
  a.qp_state = IBV_QPS_RTS;
  a.timeout = options.timeout;
  a.retry_cnt = options.retry_cnt;
  a.rnr_retry = options.rnr_retry;
  a.max_rd_atomic = 16;
  a.sq_psn = options.sq_psn;
  int mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
  if (qp->qp_type == IBV_QPT_XRC_RECV) {
    mask |= IBV_QP_TIMEOUT;
  } else if (qp->qp_type != IBV_QPT_UD && qp->qp_type != IBV_QPT_UC) {
    mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
  }
  EXPECT_EQ(ibv_modify_qp(qp, &a, mask), 0);
}

void connect(ibv_qp* qp, std::uint32_t peer, const ConnectOptions& options) {
  to_init(qp, options);
  to_rtr(qp, peer, options);
  to_rts(qp, options);
}
void ready_ud(ibv_qp* qp) {
  connect(qp, 0);
}
void ready_dci(ibv_qp* qp, const ConnectOptions& options) {
  connect(qp, 0, options);
}

ibv_qp_state state_of(ibv_qp* qp) {
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  EXPECT_EQ(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init), 0);
  return attr.qp_state;
}
int modify_state(ibv_qp* qp, ibv_qp_state state) {
  ibv_qp_attr attr{};
  attr.qp_state = state;
  return ibv_modify_qp(qp, &attr, IBV_QP_STATE);
}

void post(ibv_qp* qp, ibv_wr_opcode opcode, std::vector<ibv_sge> sges, std::uint64_t wr_id,
          std::uint64_t remote, std::uint32_t rkey, unsigned flags, int expect) {
  ibv_send_wr wr{}, *bad = nullptr;
  wr.wr_id = wr_id;
  wr.sg_list = sges.data();
  wr.num_sge = static_cast<int>(sges.size());
  wr.opcode = opcode;
  wr.send_flags = flags;
  wr.imm_data = 0x55;
  wr.wr.rdma.remote_addr = remote;
  wr.wr.rdma.rkey = rkey;
  EXPECT_EQ(ibv_post_send(qp, &wr, &bad), expect);
}

void post_atomic(ibv_qp* qp, ibv_wr_opcode opcode, const ibv_sge& old, std::uint64_t remote,
                 std::uint32_t rkey, std::uint64_t a, std::uint64_t b) {
  ibv_sge sge = old;
  ibv_send_wr wr{}, *bad = nullptr;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = opcode;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.wr.atomic.remote_addr = remote;
  wr.wr.atomic.rkey = rkey;
  wr.wr.atomic.compare_add = a;
  wr.wr.atomic.swap = b;
  EXPECT_EQ(ibv_post_send(qp, &wr, &bad), 0);
}

void post_recv(ibv_qp* qp, std::vector<ibv_sge> sges, std::uint64_t wr_id, int expect) {
  ibv_recv_wr wr{wr_id, nullptr, sges.data(), static_cast<int>(sges.size())}, *bad = nullptr;
  EXPECT_EQ(ibv_post_recv(qp, &wr, &bad), expect);
}
void post_srq(ibv_srq* srq, std::vector<ibv_sge> sges, std::uint64_t wr_id, int expect) {
  ibv_recv_wr wr{wr_id, nullptr, sges.data(), static_cast<int>(sges.size())}, *bad = nullptr;
  EXPECT_EQ(ibv_post_srq_recv(srq, &wr, &bad), expect);
}

std::uint32_t srq_number(ibv_srq* srq) {
  std::uint32_t number = 0;
  EXPECT_EQ(ibv_get_srq_num(srq, &number), 0);
  return number;
}

void post_xrc(ibv_qp* qp, std::uint32_t srqn, ibv_wr_opcode opcode, const ibv_sge& sge,
              std::uint64_t wr_id, std::uint64_t remote, std::uint32_t rkey, unsigned flags) {
  ibv_sge piece = sge;
  ibv_send_wr wr{}, *bad = nullptr;
  wr.wr_id = wr_id;
  wr.sg_list = &piece;
  wr.num_sge = 1;
  wr.opcode = opcode;
  wr.send_flags = flags;
  wr.imm_data = 0x55;
  if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || opcode == IBV_WR_ATOMIC_CMP_AND_SWP) {
    wr.wr.atomic = {remote, 5, 9, rkey};  // adds 5, or puts 9 where 5 was
  } else {
    wr.wr.rdma = {remote, rkey};
  }
  wr.qp_type.xrc.remote_srqn = srqn;
  EXPECT_EQ(ibv_post_send(qp, &wr, &bad), 0);
}

void post_dc(ibv_qp* qp, ibv_ah* ah, std::uint32_t dctn, ibv_wr_opcode opcode, const ibv_sge& sge,
             std::uint64_t wr_id, std::uint64_t remote, std::uint32_t rkey, std::uint64_t key,
             unsigned flags) {
  ibv_qp_ex* ex = ibv_qp_to_qp_ex(qp);
  mlx5dv_qp_ex* dv = mlx5dv_qp_ex_from_ibv_qp_ex(ex);
  ASSERT_NE(dv, nullptr);
  ibv_wr_start(ex);
  ex->wr_id = wr_id;
  ex->wr_flags = flags;
  switch (opcode) {
    case IBV_WR_SEND:
      ibv_wr_send(ex);
      break;
    case IBV_WR_SEND_WITH_IMM:
      ibv_wr_send_imm(ex, 0x55);
      break;
    case IBV_WR_RDMA_WRITE:
      ibv_wr_rdma_write(ex, rkey, remote);
      break;
    case IBV_WR_RDMA_WRITE_WITH_IMM:
      ibv_wr_rdma_write_imm(ex, rkey, remote, 0x55);
      break;
    case IBV_WR_RDMA_READ:
      ibv_wr_rdma_read(ex, rkey, remote);
      break;
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
      ibv_wr_atomic_fetch_add(ex, rkey, remote, 1);
      break;
    default:
      ADD_FAILURE();
      break;
  }
  mlx5dv_wr_set_dc_addr(dv, ah, dctn, key);
  if ((flags & IBV_SEND_INLINE) != 0) {
    ibv_wr_set_inline_data(ex, reinterpret_cast<void*>(sge.addr), sge.length);
  } else {
    ibv_wr_set_sge(ex, sge.lkey, sge.addr, sge.length);
  }
  EXPECT_EQ(ibv_wr_complete(ex), 0);
}

bool eventually(const std::function<bool()>& condition) {
  const auto end = Clock::now() + kPatience;
  for (unsigned i = 0; !condition(); ++i) {
    if (Clock::now() > end) return false;
    if (i > 100) std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  return true;
}

unsigned seed_of_test() {
  const char* const given = std::getenv("TURNOUT_TEST_SEED");
  const unsigned seed = given == nullptr ? 1 : static_cast<unsigned>(std::atoi(given));
  std::printf("TURNOUT_TEST_SEED=%u\n", seed);
  std::fflush(stdout);  // before the forks
  return seed;
}

ibv_wc wait_wc(ibv_cq* cq) {
  ibv_wc wc{};
  int n = 0;
  EXPECT_TRUE(eventually([&] { return (n = ibv_poll_cq(cq, 1, &wc)) != 0; })) << "no completion";
  EXPECT_EQ(n, 1);
  return wc;
}

bool empty(ibv_cq* cq) {
  ibv_wc wc{};
  return ibv_poll_cq(cq, 1, &wc) == 0;
}

bool readable(int fd, int timeout_ms) {
  pollfd p{fd, POLLIN, 0};
  return ::poll(&p, 1, timeout_ms) == 1;
}

Exchange* exchange() {
  void* p =
      mmap(nullptr, sizeof(Exchange), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return static_cast<Exchange*>(p);
}
void meet(Exchange* x, unsigned index, unsigned count) {
  x->arrived[index].fetch_add(1);
  EXPECT_TRUE(eventually([&] { return x->arrived[index].load() >= count; })) << "barrier " << index;
}
void set(Exchange* x, unsigned i, std::uint64_t value) {
  x->word[i].store(value | 1ULL << 63);
}
std::uint64_t get(Exchange* x, unsigned i) {
  EXPECT_TRUE(eventually([&] { return x->word[i].load() != 0; })) << "word " << i;
  return x->word[i].load() & ~(1ULL << 63);
}

Children start(unsigned count, const std::function<void(unsigned)>& body) {
  Children children;
  for (unsigned i = 0; i < count; ++i) {
    const int pid = fork();
    if (pid == 0) {
      body(i);
      fflush(nullptr);
      _exit(::testing::Test::HasFailure() ? 1 : 0);
    }
    children.pids.push_back(pid);
  }
  children.killed.resize(count, false);
  return children;
}

void finish(Children& children) {
  for (std::size_t i = 0; i < children.pids.size(); ++i) {
    int status = 0;
    EXPECT_EQ(waitpid(children.pids[i], &status, 0), children.pids[i]);
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) {
      children.killed[i] = true;
    } else {
      EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0)
          << "process " << i << ", status " << status;
    }
  }
}

void kill_self() {
  kill(getpid(), SIGKILL);
  for (;;) pause();
}

void run(unsigned count, const std::function<void(unsigned)>& body) {
  Children children = start(count, body);
  finish(children);
}

}  // namespace turnout::hca::test
