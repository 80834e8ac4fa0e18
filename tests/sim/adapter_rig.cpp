// SPDX-License-Identifier: BSD-3-Clause
#include "tests/sim/adapter_rig.h"

#include <gtest/gtest.h>

namespace turnout::sim {
namespace {

Settings settings() {
  Settings s = Settings::defaults();
  EXPECT_TRUE(s.set("device", "virtual").ok());
  return s;
}

constexpr unsigned kAllRights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                                IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

}  // namespace

std::unique_ptr<hca::World> make_world(const hca::Profile& profile, std::uint32_t nodes,
                                       std::uint64_t seed) {
  EXPECT_TRUE(verbs::load(verbs::Library::virtual_adapter, settings()).ok());
  auto* const create = reinterpret_cast<hca::CreateWorld*>(verbs::symbol("turnout_create_world"));
  return std::unique_ptr<hca::World>(create({profile, seed, nodes}));
}

Node::Node(hca::World& w, std::uint32_t node, std::size_t n_targets, std::size_t n_initiators)
    : world(w) {
  process = world.add_process(
      node, [](void* self, std::uint64_t) { static_cast<Node*>(self)->woken = true; }, this);
  world.enter(process);
  auto opened = verbs::Device::open(settings());
  EXPECT_TRUE(opened.ok());
  device = std::move(opened).value();
  cq.reset(ibv_create_cq(device->context(), 4096, nullptr, nullptr, 0));
  ibv_srq_init_attr attr{};
  attr.attr.max_wr = 64;
  attr.attr.max_sge = 1;
  srq.reset(ibv_create_srq(device->pd(), &attr));
  // Where a test has the adapter refuse regions it does without; what would need one fails.
  region.reset((ibv_reg_mr)(device->pd(), memory.data(), memory.size(), kAllRights));
  ibv_ah_attr path{};
  path.port_num = 1;
  ah.reset(ibv_create_ah(device->pd(), &path));
  for (std::size_t i = 0; i < n_targets; ++i) {
    targets.push_back(std::make_unique<DcTarget>());
    EXPECT_TRUE(targets.back()->create(*device, cq.get(), srq.get(), kDcKey).ok());
  }
  for (std::size_t i = 0; i < n_initiators; ++i) {
    initiators.push_back(
        std::make_unique<DcInitiator>(static_cast<std::uint32_t>(i), 128, buffers));
    EXPECT_TRUE(initiators.back()->create(*device, cq.get(), 128, QpTuning{}).ok());
  }
}

void Node::transfer(std::size_t initiator, const Node& other, ibv_wr_opcode opcode,
                    std::uint32_t rkey) {
  SendRecord record;
  record.kind = SendRecord::Kind::transfer;
  record.opcode = opcode;
  record.local = reinterpret_cast<std::uint64_t>(memory.data());
  record.lkey = region->lkey;
  record.length = 8;
  record.remote = reinterpret_cast<std::uint64_t>(other.memory.data());
  record.rkey = rkey != 0 ? rkey : other.region->rkey;
  record.dct = other.targets[0]->number();
  record.ah = ah.get();
  record.dc_key = kDcKey;
  ASSERT_TRUE(initiators[initiator]->post(record).ok());
}

int Node::poll() {
  ibv_wc entries[32];
  const int n = ibv_poll_cq(cq.get(), 32, entries);
  for (int i = 0; i < n; ++i) {
    EXPECT_EQ(entries[i].status, IBV_WC_SUCCESS);
    initiators[SendQueue::queue_of(entries[i].wr_id)]->retire(entries[i].wr_id, true,
                                                              [](const SendRecord&) {});
  }
  return n;
}

ibv_qp* Node::make_qp(ibv_qp_type type, const QpOptions& options) {
  world.enter(process);
  ibv_qp_init_attr attr{};
  attr.send_cq = attr.recv_cq = cq.get();
  attr.srq = options.shared_receive ? srq.get() : nullptr;
  attr.cap = {256, 256, 1, 1, 512};
  attr.qp_type = type;
  qps.emplace_back(ibv_create_qp(device->pd(), &attr));
  ibv_qp* const qp = qps.back().get();
  if (qp == nullptr || type != IBV_QPT_UD) return qp;
  ibv_qp_attr change{};
  change.qp_state = IBV_QPS_INIT;
  change.port_num = 1;
  change.qkey = kQkey;
  EXPECT_EQ(
      ibv_modify_qp(qp, &change, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY), 0);
  change.qp_state = IBV_QPS_RTR;
  EXPECT_EQ(ibv_modify_qp(qp, &change, IBV_QP_STATE), 0);
  change.qp_state = IBV_QPS_RTS;
  EXPECT_EQ(ibv_modify_qp(qp, &change, IBV_QP_STATE | IBV_QP_SQ_PSN), 0);
  return qp;
}

void Node::connect(ibv_qp* qp, std::uint32_t peer, const QpOptions& options) {
  world.enter(process);
  ibv_qp_attr change{};
  change.qp_state = IBV_QPS_INIT;
  change.port_num = 1;
  change.qp_access_flags = kAllRights;
  EXPECT_EQ(ibv_modify_qp(qp, &change,
                          IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
            0);
  change.qp_state = IBV_QPS_RTR;
  change.path_mtu = IBV_MTU_4096;
  change.dest_qp_num = peer;
  change.max_dest_rd_atomic = change.max_rd_atomic = 16;
  change.min_rnr_timer = options.min_rnr_timer;
  change.ah_attr.port_num = 1;
  EXPECT_EQ(ibv_modify_qp(qp, &change,
                          IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                              IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
            0);
  change.qp_state = IBV_QPS_RTS;
  change.timeout = options.timeout;
  change.retry_cnt = options.retry_count;
  change.rnr_retry = options.rnr_retry;
  EXPECT_EQ(ibv_modify_qp(qp, &change,
                          IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                              IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC),
            0);
}

int Node::post(ibv_qp* qp, const Node& to, const Work& work) {
  ibv_sge piece{reinterpret_cast<std::uint64_t>(memory.data()) + work.from, work.length,
                work.lkey != 0 ? work.lkey : region->lkey};
  ibv_send_wr request{};
  request.sg_list = &piece;
  request.num_sge = work.length > 0 ? 1 : 0;
  request.opcode = work.opcode;
  request.send_flags = (work.inlined ? static_cast<unsigned>(IBV_SEND_INLINE) : 0u) |
                       (work.signalled ? static_cast<unsigned>(IBV_SEND_SIGNALED) : 0u);
  const std::uint64_t remote = reinterpret_cast<std::uint64_t>(to.memory.data()) + work.to;
  const std::uint32_t rkey = work.rkey != 0 ? work.rkey : to.region->rkey;
  if (work.datagram != nullptr) {
    request.wr.ud = {ah.get(), work.datagram->qp_num, kQkey};
  } else if (work.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD ||
             work.opcode == IBV_WR_ATOMIC_CMP_AND_SWP) {
    request.wr.atomic = {remote, work.compare_add, work.swap, rkey};
  } else {
    request.wr.rdma = {remote, rkey};
  }
  ibv_send_wr* bad = nullptr;
  return ibv_post_send(qp, &request, &bad);
}

void Node::receive(ibv_qp* qp, std::uint32_t length, std::uint64_t at) {
  ibv_sge piece{reinterpret_cast<std::uint64_t>(memory.data()) + at, length, region->lkey};
  ibv_recv_wr request{};
  request.sg_list = &piece;
  request.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  EXPECT_EQ(ibv_post_recv(qp, &request, &bad), 0);
}

void Node::receive_shared(int count, std::uint32_t length) {
  ibv_sge piece{reinterpret_cast<std::uint64_t>(memory.data()) + 8192, length, region->lkey};
  ibv_recv_wr request{};
  request.sg_list = &piece;
  request.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  for (int i = 0; i < count; ++i) EXPECT_EQ(ibv_post_srq_recv(srq.get(), &request, &bad), 0);
}

std::vector<Done> Node::wait(std::size_t count) {
  std::vector<Done> done;
  for (;;) {
    world.enter(process);
    ibv_wc entry;
    while (done.size() < count && ibv_poll_cq(cq.get(), 1, &entry) == 1) {
      done.push_back({entry, world.process_time()});
    }
    if (done.size() == count) return done;
    woken = false;
    while (!woken) {
      if (!world.run_one()) return done;
    }
  }
}

Cluster client_and_targets(const hca::Profile& profile, std::size_t clients, std::size_t initiators,
                           std::uint32_t targets) {
  Cluster c;
  c.world = make_world(profile, 1 + targets);
  for (std::size_t i = 0; i < clients; ++i) {
    c.nodes.push_back(std::make_unique<Node>(*c.world, 0, 0, initiators));
  }
  for (std::uint32_t i = 0; i < targets; ++i) {
    c.nodes.push_back(std::make_unique<Node>(*c.world, 1 + i, 1, 0));
  }
  return c;
}

Picoseconds reads(Cluster& c, const std::vector<const Node*>& targets) {
  Node& client = *c.nodes[0];
  c.world->enter(client.process);
  const Picoseconds begin = c.world->process_time();
  for (const Node* target : targets) client.read(0, *target);
  std::size_t done = 0;
  while (done < targets.size()) {
    client.woken = false;
    while (!client.woken && c.world->run_one()) {
    }
    c.world->enter(client.process);
    for (int n = 0; (n = client.poll()) > 0;) done += static_cast<std::size_t>(n);
  }
  return c.world->process_time() - begin;
}

void play(hca::World& world) {
  while (world.run_one()) {
  }
}

namespace {
Cluster two_processes(const hca::Profile& profile, bool one_node, std::uint64_t seed) {
  Cluster c;
  c.world = make_world(profile, 2, seed);
  c.nodes.push_back(std::make_unique<Node>(*c.world, 0, 0, 0));
  c.nodes.push_back(std::make_unique<Node>(*c.world, one_node ? 0 : 1, 0, 0));
  return c;
}
}  // namespace

Pair::Pair(const hca::Profile& profile, const QpOptions& options, bool one_node, std::uint64_t seed)
    : cluster(two_processes(profile, one_node, seed)),
      world(*cluster.world),
      a(*cluster.nodes[0]),
      b(*cluster.nodes[1]) {
  std::tie(to_b, to_a) = connection(options);
  world.enter(a.process);
}

std::pair<ibv_qp*, ibv_qp*> Pair::connection(const QpOptions& options) {
  ibv_qp* const first = a.make_qp(IBV_QPT_RC, options);
  ibv_qp* const second = b.make_qp(IBV_QPT_RC, options);
  a.connect(first, second->qp_num, options);
  b.connect(second, first->qp_num, options);
  return {first, second};
}

Picoseconds Pair::timed(const Work& work) {
  world.enter(a.process);
  const Picoseconds begin = world.process_time();
  EXPECT_EQ(a.post(to_b, b, work), 0);
  const std::vector<Done> done = a.wait(1);
  if (done.size() != 1 || done[0].entry.status != IBV_WC_SUCCESS) {
    ADD_FAILURE() << "no completion, or an error";
    return 0;
  }
  return done[0].at - begin;
}

Picoseconds timed(const hca::Profile& profile, const Work& work, bool one_node) {
  return Pair(profile, {}, one_node).timed(work);
}

}  // namespace turnout::sim
