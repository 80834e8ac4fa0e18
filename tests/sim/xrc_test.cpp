// SPDX-License-Identifier: BSD-3-Clause
// XRC on the virtual engine: domains by node, costs as RC's but for one context at the target,
// refusals in their turn, deaths. Verbs calls only, no messaging core.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

#include "sim/formats/profile_file.h"
#include "tests/sim/adapter_rig.h"

namespace turnout::sim {
namespace {

using Xrcd = std::unique_ptr<ibv_xrcd, verbs::Destroyer<ibv_xrcd, &ibv_close_xrcd>>;

constexpr int kInit = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
constexpr int kRtr = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
constexpr int kRts = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_SQ_PSN;

// A process with the XRC objects it makes.
struct XrcNode : Node {
  Xrcd xrcd;
  verbs::Srq xrc_srq;
  std::vector<verbs::Qp> xrc_qps;

  XrcNode(hca::World& w, std::uint32_t node, int file) : Node(w, node, 0, 0), xrcd(domain(file)) {}
  ~XrcNode() { world.enter(process); }
  XrcNode(const XrcNode&) = delete;
  XrcNode& operator=(const XrcNode&) = delete;

  [[nodiscard]] ibv_xrcd* domain(int file, int oflags = O_CREAT) {
    world.enter(process);
    ibv_xrcd_init_attr attr{};
    attr.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
    attr.fd = file;
    attr.oflags = oflags;
    errno = 0;
    return ibv_open_xrcd(device->context(), &attr);
  }
  // An XRC SRQ with so many receives; its number.
  std::uint32_t make_srq(int receives) {
    world.enter(process);
    ibv_srq_init_attr_ex attr{};
    attr.attr.max_wr = 64;
    attr.attr.max_sge = 1;
    attr.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD |
                     IBV_SRQ_INIT_ATTR_CQ;
    attr.srq_type = IBV_SRQT_XRC;
    attr.pd = device->pd();
    attr.xrcd = xrcd.get();
    attr.cq = cq.get();
    xrc_srq.reset(ibv_create_srq_ex(device->context(), &attr));
    give(receives);
    return srqn();
  }
  void give(int receives) {
    world.enter(process);
    ibv_sge piece{reinterpret_cast<std::uint64_t>(memory.data()) + 8192, 64, region->lkey};
    ibv_recv_wr request{}, *bad = nullptr;
    request.sg_list = &piece;
    request.num_sge = 1;
    for (int i = 0; i < receives; ++i) {
      EXPECT_EQ(ibv_post_srq_recv(xrc_srq.get(), &request, &bad), 0);
    }
  }
  [[nodiscard]] std::uint32_t srqn() const {
    std::uint32_t number = 0;
    EXPECT_EQ(ibv_get_srq_num(xrc_srq.get(), &number), 0);
    return number;
  }
  [[nodiscard]] ibv_qp* make_target() {
    world.enter(process);
    ibv_qp_init_attr_ex attr{};
    attr.qp_type = IBV_QPT_XRC_RECV;
    attr.comp_mask = IBV_QP_INIT_ATTR_XRCD;
    attr.xrcd = xrcd.get();
    xrc_qps.emplace_back(ibv_create_qp_ex(device->context(), &attr));
    return xrc_qps.back().get();
  }
  [[nodiscard]] ibv_qp* open_target(std::uint32_t number) {
    world.enter(process);
    ibv_qp_open_attr attr{};
    attr.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
    attr.qp_num = number;
    attr.xrcd = xrcd.get();
    attr.qp_type = IBV_QPT_XRC_RECV;
    ibv_qp* const qp = ibv_open_qp(device->context(), &attr);
    if (qp != nullptr) xrc_qps.emplace_back(qp);
    return qp;
  }
  void connect_xrc(ibv_qp* qp, std::uint32_t peer, const QpOptions& options = {}) {
    world.enter(process);
    const bool target = qp->qp_type == IBV_QPT_XRC_RECV;
    ibv_qp_attr change{};
    change.qp_state = IBV_QPS_INIT;
    change.port_num = change.ah_attr.port_num = 1;
    change.qp_access_flags =
        IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
    EXPECT_EQ(ibv_modify_qp(qp, &change, kInit), 0);
    change.qp_state = IBV_QPS_RTR;
    change.path_mtu = IBV_MTU_4096;
    change.dest_qp_num = peer;
    change.max_dest_rd_atomic = change.max_rd_atomic = 16;
    change.min_rnr_timer = options.min_rnr_timer;
    EXPECT_EQ(ibv_modify_qp(qp, &change,
                            kRtr | (target ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0)),
              0);
    change.qp_state = IBV_QPS_RTS;
    change.timeout = options.timeout;
    change.retry_cnt = options.retry_count;
    change.rnr_retry = options.rnr_retry;
    EXPECT_EQ(
        ibv_modify_qp(
            qp, &change,
            kRts | (target ? 0 : IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC)),
        0);
  }
  [[nodiscard]] ibv_qp* make_initiator() {
    world.enter(process);
    ibv_qp_init_attr attr{};
    attr.send_cq = cq.get();
    attr.cap = {256, 0, 1, 0, 512};
    attr.qp_type = IBV_QPT_XRC_SEND;
    xrc_qps.emplace_back(ibv_create_qp(device->pd(), &attr));
    return xrc_qps.back().get();
  }
  void post_xrc(ibv_qp* qp, const XrcNode& to, const Work& work, std::uint32_t number = 0,
                std::uint64_t id = 0) {
    world.enter(process);
    ibv_sge piece{reinterpret_cast<std::uint64_t>(memory.data()) + work.from, work.length,
                  region->lkey};
    ibv_send_wr request{}, *bad = nullptr;
    request.wr_id = id;
    request.sg_list = &piece;
    request.num_sge = work.length > 0 ? 1 : 0;
    request.opcode = work.opcode;
    request.send_flags = (work.inlined ? static_cast<unsigned>(IBV_SEND_INLINE) : 0u) |
                         (work.signalled ? static_cast<unsigned>(IBV_SEND_SIGNALED) : 0u);
    const std::uint64_t remote = reinterpret_cast<std::uint64_t>(to.memory.data()) + work.to;
    const std::uint32_t rkey = work.rkey != 0 ? work.rkey : to.region->rkey;
    if (work.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || work.opcode == IBV_WR_ATOMIC_CMP_AND_SWP) {
      request.wr.atomic = {remote, work.compare_add, work.swap, rkey};
    } else {
      request.wr.rdma = {remote, rkey};
    }
    request.qp_type.xrc.remote_srqn = number != 0 ? number : to.srqn();
    EXPECT_EQ(ibv_post_send(qp, &request, &bad), 0);
  }
  [[nodiscard]] ibv_qp_state state(ibv_qp* qp) const {
    ibv_qp_attr attr{};
    ibv_qp_init_attr init{};
    EXPECT_EQ(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init), 0);
    return attr.qp_state;
  }
  [[nodiscard]] ibv_async_event event() const {
    ibv_async_event event{};
    event.element.qp = nullptr;
    if (ibv_get_async_event(device->context(), &event) == 0) ibv_ack_async_event(&event);
    return event;
  }
};

// One sender on node 0; on node 1 so many processes with one domain and one target, which the first
// makes and all open, each with an SRQ.
struct XrcCluster {
  explicit XrcCluster(const hca::Profile& profile, unsigned receivers, int receives = 16,
                      const QpOptions& options = {}, bool one_node = false, std::uint64_t seed = 1)
      : file(memfd_create("domain", MFD_CLOEXEC)), world(make_world(profile, 2, seed)) {
    sender = std::make_unique<XrcNode>(*world, 0, file);
    initiator = sender->make_initiator();
    for (unsigned i = 0; i < receivers; ++i) {
      nodes.push_back(std::make_unique<XrcNode>(*world, one_node ? 0 : 1, file));
      XrcNode& node = *nodes.back();
      node.make_srq(receives);
      handles.push_back(i == 0 ? node.make_target() : node.open_target(handles[0]->qp_num));
    }
    nodes[0]->connect_xrc(handles[0], initiator->qp_num, options);
    sender->connect_xrc(initiator, handles[0]->qp_num, options);
  }
  XrcCluster(const XrcCluster&) = delete;
  XrcCluster& operator=(const XrcCluster&) = delete;
  ~XrcCluster() {
    nodes.clear();
    sender.reset();
    close(file);
  }
  void send(unsigned to, std::uint64_t id = 0) {
    Work work;
    work.opcode = IBV_WR_SEND;
    sender->post_xrc(initiator, *nodes[to], work, 0, id);
  }
  // The status of the next completion at the sender.
  [[nodiscard]] ibv_wc_status status() {
    const std::vector<Done> done = sender->wait(1);
    return done.size() == 1 ? done[0].entry.status : IBV_WC_GENERAL_ERR;
  }
  [[nodiscard]] Picoseconds timed(const Work& work) {
    world->enter(sender->process);
    const Picoseconds begin = world->process_time();
    sender->post_xrc(initiator, *nodes[0], work);
    const std::vector<Done> done = sender->wait(1);
    EXPECT_EQ(done.size(), 1u);
    return done.empty() ? 0 : done[0].at - begin;
  }
  int file;
  std::unique_ptr<hca::World> world;
  std::unique_ptr<XrcNode> sender;
  ibv_qp* initiator = nullptr;
  std::vector<std::unique_ptr<XrcNode>> nodes;
  std::vector<ibv_qp*> handles;
};

TEST(Xrc, ADomainIsOfOneNodeAndOneFile) {
  const int file = memfd_create("domain", MFD_CLOEXEC);
  const int other = memfd_create("other", MFD_CLOEXEC);
  const auto world = make_world(hca::Profile{}, 2);
  {
    XrcNode a(*world, 0, file), b(*world, 0, file), c(*world, 1, file), d(*world, 0, other),
        e(*world, 0, -1), f(*world, 0, -1);
    ibv_qp* const target = a.make_target();
    EXPECT_NE(b.open_target(target->qp_num), nullptr);
    EXPECT_EQ(c.open_target(target->qp_num), nullptr);
    EXPECT_EQ(errno, EINVAL);
    EXPECT_EQ(d.open_target(target->qp_num), nullptr);
    ibv_qp* const lonely = e.make_target();
    EXPECT_EQ(f.open_target(lonely->qp_num), nullptr);
    EXPECT_EQ(a.domain(file, O_CREAT | O_EXCL), nullptr);
    EXPECT_EQ(errno, EINVAL);
    EXPECT_EQ(c.domain(other, 0), nullptr);
    EXPECT_EQ(errno, EAGAIN);
    EXPECT_EQ(ibv_close_xrcd(a.xrcd.get()), EBUSY);
    EXPECT_EQ(world->statistics().qps_alive, 2u);
  }
  EXPECT_EQ(world->statistics().qps_alive, 0u);
  {
    XrcNode a(*world, 0, -1);
    EXPECT_EQ(a.domain(file, 0), nullptr);  // the last one took it along
  }
  close(file);
  close(other);
}

// Every operation takes the time that it takes over RC from a shared receive queue.
TEST(Xrc, CostsAsRc) {
  auto found = find_profile("connect-ib");
  ASSERT_TRUE(found.ok());
  hca::Profile profile = found.value().profile;
  for (const bool one_node : {false, true}) {
    for (const ibv_wr_opcode opcode :
         {IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM,
          IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_ATOMIC_CMP_AND_SWP}) {
      SCOPED_TRACE(static_cast<int>(opcode));
      Work work;
      work.opcode = opcode;
      QpOptions options;
      options.shared_receive = true;
      Picoseconds over_rc = 0;
      {
        Pair pair(profile, options, one_node);
        pair.world.enter(pair.b.process);
        pair.b.receive_shared(2);
        (void)pair.timed(work);  // contexts
        over_rc = pair.timed(work);
      }
      XrcCluster c(profile, 1, 16, {}, one_node);
      (void)c.timed(work);
      EXPECT_EQ(c.timed(work), over_rc);
    }
  }
}

TEST(Xrc, DataAndCompletionsAreTheReceivers) {
  XrcCluster c(hca::Profile{}, 2);
  XrcNode& b = *c.nodes[1];
  c.sender->word(0) = 42;
  c.send(1, 7);
  const std::vector<Done> sent = c.sender->wait(1);
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].entry.wr_id, 7u);
  const std::vector<Done> got = b.wait(1);
  ASSERT_EQ(got.size(), 1u);
  EXPECT_EQ(got[0].entry.qp_num, c.handles[0]->qp_num);
  EXPECT_EQ(got[0].entry.src_qp, c.initiator->qp_num);
  EXPECT_EQ(got[0].entry.byte_len, 8u);
  EXPECT_EQ(b.word(8192), 42u);
  EXPECT_TRUE(c.nodes[0]->wait(1).empty());
  // A write wakes whose memory it is.
  play(*c.world);
  c.nodes[0]->woken = b.woken = false;
  Work write;
  write.to = 64;
  c.sender->post_xrc(c.initiator, b, write);
  play(*c.world);
  EXPECT_TRUE(b.woken);
  EXPECT_FALSE(c.nodes[0]->woken);
  EXPECT_EQ(b.word(64), 42u);
  Work add;
  add.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
  add.from = 128;
  add.to = 64;
  add.compare_add = 8;
  c.sender->post_xrc(c.initiator, b, add);
  play(*c.world);
  EXPECT_EQ(c.sender->word(128), 42u);
  EXPECT_EQ(b.word(64), 50u);
}

// What XRC is for: the adapter of the target has one context for all processes of the node.
TEST(Xrc, OneContextForAllProcessesOfTheNode) {
  hca::Profile profile;
  profile.cache_first_entries = 4;
  profile.cache_second_entries = 64;
  profile.cache_first_miss_receive = 1000;
  constexpr unsigned kReceivers = 8, kRounds = 4;
  std::uint64_t over_xrc = 0, over_rc = 0;
  {
    XrcCluster c(profile, kReceivers);
    c.send(0);
    play(*c.world);
    const std::uint64_t before = c.world->statistics().first_misses;
    for (unsigned i = 0; i < kRounds * kReceivers; ++i) {
      c.send(i % kReceivers);
      play(*c.world);
    }
    over_xrc = c.world->statistics().first_misses - before;
  }
  {
    Cluster c;
    c.world = make_world(profile, 2);
    c.nodes.push_back(std::make_unique<Node>(*c.world, 0, 0, 0));
    std::vector<ibv_qp*> to;
    for (unsigned i = 0; i < kReceivers; ++i) {
      c.nodes.push_back(std::make_unique<Node>(*c.world, 1, 0, 0));
      to.push_back(c.nodes[0]->make_qp(IBV_QPT_RC));
      ibv_qp* const from = c.nodes.back()->make_qp(IBV_QPT_RC);
      c.nodes[0]->connect(to[i], from->qp_num);
      c.nodes.back()->connect(from, to[i]->qp_num);
    }
    const auto write = [&](unsigned i) {
      c.world->enter(c.nodes[0]->process);
      EXPECT_EQ(c.nodes[0]->post(to[i], *c.nodes[1 + i], Work{}), 0);
      play(*c.world);
    };
    for (unsigned i = 0; i < kReceivers; ++i) write(i);
    const std::uint64_t before = c.world->statistics().first_misses;
    for (unsigned i = 0; i < kRounds * kReceivers; ++i) write(i % kReceivers);
    over_rc = c.world->statistics().first_misses - before;
  }
  EXPECT_EQ(over_xrc, 0u);
  EXPECT_EQ(over_rc, 2 * kRounds * kReceivers);  // at both ends, every time
}

TEST(Xrc, AnEmptyQueueHoldsUpTheOthers) {
  XrcCluster c(hca::Profile{}, 2, 0);
  c.nodes[1]->give(1);
  c.send(0, 1);
  c.send(1, 2);
  // For a while, but not to the end of it.
  for (int i = 0; i < 100; ++i) (void)c.world->run_one();
  EXPECT_GT(c.world->rnr_waits(c.nodes[0]->process), 0u);
  EXPECT_EQ(c.world->rnr_waits(c.nodes[1]->process), 0u);
  ibv_wc entry;
  EXPECT_EQ(ibv_poll_cq(c.nodes[1]->cq.get(), 1, &entry), 0);
  c.nodes[0]->give(1);
  EXPECT_EQ(c.nodes[0]->wait(1).size(), 1u);
  EXPECT_EQ(c.nodes[1]->wait(1).size(), 1u);
  const std::vector<Done> done = c.sender->wait(2);
  ASSERT_EQ(done.size(), 2u);
  EXPECT_EQ(done[0].entry.wr_id, 1u);
  EXPECT_EQ(done[1].entry.wr_id, 2u);
}

// A request that names no SRQ of the domain fails in its turn: what came before it is done, what
// follows is flushed, the target is in error and every handle is told.
TEST(Xrc, WhatNamesNoQueueOfTheDomainIsRefused) {
  auto found = find_profile("connect-ib");
  ASSERT_TRUE(found.ok());
  for (const int which : {0, 1, 2}) {
    XrcCluster c(found.value().profile, 2);
    XrcNode stranger(*c.world, 1, -1);
    std::uint32_t number = 1000;  // nobody's
    if (which == 1) number = stranger.make_srq(1);
    if (which == 2) {
      EXPECT_EQ(ibv_get_srq_num(c.nodes[0]->srq.get(), &number), 0);  // a basic one
    }
    Work work;
    work.opcode = IBV_WR_SEND;
    c.send(1, 1);
    c.sender->post_xrc(c.initiator, *c.nodes[0], work, number, 2);
    c.send(1, 3);
    const std::vector<Done> done = c.sender->wait(3);
    ASSERT_EQ(done.size(), 3u);
    EXPECT_EQ(done[0].entry.status, IBV_WC_SUCCESS);
    EXPECT_EQ(done[1].entry.status, IBV_WC_REM_INV_REQ_ERR);
    EXPECT_EQ(done[1].entry.wr_id, 2u);
    EXPECT_EQ(done[2].entry.status, IBV_WC_WR_FLUSH_ERR);
    EXPECT_EQ(c.sender->state(c.initiator), IBV_QPS_ERR);
    play(*c.world);
    for (unsigned i = 0; i < 2; ++i) {
      EXPECT_EQ(c.nodes[i]->state(c.handles[i]), IBV_QPS_ERR);
      const ibv_async_event event = c.nodes[i]->event();
      EXPECT_EQ(event.event_type, IBV_EVENT_QP_REQ_ERR);
      EXPECT_EQ(event.element.qp, c.handles[i]);
    }
    EXPECT_EQ(c.nodes[1]->wait(2).size(), 1u);
    // Made anew by the second handle it works again; the receive of the third is there, too.
    QpOptions impatient;
    impatient.rnr_retry = 1;
    ibv_qp_attr reset{};
    reset.qp_state = IBV_QPS_RESET;
    EXPECT_EQ(ibv_modify_qp(c.handles[1], &reset, IBV_QP_STATE), 0);
    EXPECT_EQ(ibv_modify_qp(c.initiator, &reset, IBV_QP_STATE), 0);
    c.nodes[1]->connect_xrc(c.handles[1], c.initiator->qp_num, impatient);
    c.sender->connect_xrc(c.initiator, c.handles[0]->qp_num, impatient);
    c.send(0, 4);
    EXPECT_EQ(c.status(), IBV_WC_SUCCESS);
    for (int i = 0; i < 15; ++i) {
      c.send(1);
      EXPECT_EQ(c.status(), IBV_WC_SUCCESS);
    }
    c.send(1);
    EXPECT_EQ(c.status(), IBV_WC_RNR_RETRY_EXC_ERR);
  }
}

TEST(Xrc, MemoryIsThatOfTheQueuesDomain) {
  XrcCluster c(hca::Profile{}, 2);
  Work work;
  work.rkey = c.nodes[1]->region->rkey;
  c.sender->post_xrc(c.initiator, *c.nodes[1], work);
  EXPECT_EQ(c.status(), IBV_WC_SUCCESS);
  // The same memory through the other's queue.
  c.sender->post_xrc(c.initiator, *c.nodes[1], work, c.nodes[0]->srqn());
  EXPECT_EQ(c.status(), IBV_WC_REM_ACCESS_ERR);
  play(*c.world);
  EXPECT_EQ(c.nodes[0]->event().event_type, IBV_EVENT_QP_ACCESS_ERR);
  EXPECT_EQ(c.nodes[1]->event().event_type, IBV_EVENT_QP_ACCESS_ERR);
}

TEST(Xrc, TheDeadLeaveTheTargetToTheOthers) {
  QpOptions options;
  options.timeout = 8;
  XrcCluster c(hca::Profile{}, 3, 16, options);
  c.send(0);
  EXPECT_EQ(c.status(), IBV_WC_SUCCESS);
  c.world->kill(c.nodes[0]->process);  // its creator
  c.send(1);
  EXPECT_EQ(c.status(), IBV_WC_SUCCESS);
  EXPECT_EQ(c.nodes[1]->wait(1).size(), 1u);
  // The dead one's queue is nobody's.
  c.send(0);
  EXPECT_EQ(c.status(), IBV_WC_REM_INV_REQ_ERR);
  play(*c.world);
  EXPECT_EQ(c.nodes[1]->event().element.qp, c.handles[1]);
  EXPECT_EQ(c.nodes[2]->event().element.qp, c.handles[2]);
  EXPECT_EQ(c.nodes[0]->event().element.qp, nullptr);
  ibv_qp_attr reset{};
  reset.qp_state = IBV_QPS_RESET;
  EXPECT_EQ(ibv_modify_qp(c.handles[2], &reset, IBV_QP_STATE), 0);
  EXPECT_EQ(ibv_modify_qp(c.handles[0], &reset, IBV_QP_STATE), EINVAL);  // it has none any more
  EXPECT_EQ(ibv_modify_qp(c.initiator, &reset, IBV_QP_STATE), 0);
  c.nodes[2]->connect_xrc(c.handles[2], c.initiator->qp_num, options);
  c.sender->connect_xrc(c.initiator, c.handles[2]->qp_num, options);
  c.send(2);
  EXPECT_EQ(c.status(), IBV_WC_SUCCESS);
  const std::uint64_t before = c.world->statistics().qps_alive;
  c.world->kill(c.nodes[1]->process);
  EXPECT_EQ(c.world->statistics().qps_alive, before);
  c.world->kill(c.nodes[2]->process);  // with the last one it goes
  EXPECT_EQ(c.world->statistics().qps_alive, before - 1);
  c.send(2);
  EXPECT_EQ(c.status(), IBV_WC_RETRY_EXC_ERR);
}

// A receiver that dies, or whose queue goes, with the message on its adapter.
TEST(Xrc, AQueueGoesBeforeTheMessageLands) {
  auto found = find_profile("connect-ib");
  ASSERT_TRUE(found.ok());
  for (const bool dies : {false, true}) {
    // At every event on the way.
    for (int after = 0;; ++after) {
      XrcCluster c(found.value().profile, 2);
      play(*c.world);
      c.send(1, 1);
      bool over = false;
      for (int i = 0; i < after && !over; ++i) over = !c.world->run_one();
      if (over) break;
      c.world->enter(c.nodes[1]->process);
      if (dies) {
        c.world->kill(c.nodes[1]->process);
      } else {
        c.nodes[1]->xrc_srq.reset();
      }
      const ibv_wc_status status = c.status();
      EXPECT_TRUE(status == IBV_WC_SUCCESS || status == IBV_WC_REM_INV_REQ_ERR) << after;
      play(*c.world);
      ASSERT_LT(after, 100);
    }
  }
}

TEST(Xrc, FaultsOfRcAreItsOwn) {
  hca::Profile profile;
  profile.fault_rc_error = 1'000'000;
  XrcCluster c(profile, 1);
  c.send(0);
  EXPECT_EQ(c.status(), IBV_WC_RETRY_EXC_ERR);
}

TEST(Xrc, RunsRepeatToTheBit) {
  hca::Profile profile;
  profile.fault_delay = 300'000;
  profile.fault_delay_most = 5'000'000;
  profile.fault_loss = 50'000;
  const auto run = [&](std::uint64_t seed) {
    XrcCluster c(profile, 4, 8, {}, false, seed);
    for (unsigned i = 0; i < 200; ++i) {
      c.send(static_cast<unsigned>(c.world->random() % 4), i);
      if (i % 8 == 7) {
        EXPECT_EQ(c.sender->wait(8).size(), 8u);
        for (const auto& node : c.nodes) {
          c.world->enter(node->process);
          ibv_wc entry;
          while (ibv_poll_cq(node->cq.get(), 1, &entry) == 1) node->give(1);
        }
      }
    }
    play(*c.world);
    return c.world->statistics().hash;
  };
  const std::uint64_t first = run(5);
  EXPECT_EQ(run(5), first);
  EXPECT_NE(run(6), first);
}

}  // namespace
}  // namespace turnout::sim
