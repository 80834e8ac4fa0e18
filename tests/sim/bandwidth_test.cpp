// SPDX-License-Identifier: BSD-3-Clause
// Bandwidth on the virtual engine: ports and PCI Express carry each direction at their own, whoever
// shares them; the transfers of one message on all of them overlap.
#include <gtest/gtest.h>

#include "sim/runtime/simulation.h"
#include "tests/sim/adapter_rig.h"

namespace turnout::sim {
namespace {

constexpr Picoseconds kWire = 150'528;  // picoseconds per KiB
constexpr Picoseconds kPcie = 65'536;
constexpr std::uint32_t kBytes = 8000;  // two packets
constexpr int kEach = 32;

hca::Profile port_only() {
  hca::Profile profile;
  profile.wire_rate = kWire;
  profile.wire_hop = kMicrosecond;
  return profile;
}

// One process on each of `first`'s nodes, one on each of `second`'s; every one of the first has a
// connection to every one of the second.
struct Crowd {
  Cluster cluster;
  std::vector<Node*> first, second;

  Crowd(const hca::Profile& profile, const std::vector<std::uint32_t>& first_nodes,
        const std::vector<std::uint32_t>& second_nodes) {
    cluster.world = make_world(profile, 16);
    for (const std::uint32_t node : first_nodes) first.push_back(add(node));
    for (const std::uint32_t node : second_nodes) second.push_back(add(node));
  }
  Node* add(std::uint32_t node) {
    cluster.nodes.push_back(std::make_unique<Node>(*cluster.world, node, 0, 0));
    return cluster.nodes.back().get();
  }
  // Everyone of the first sends or fetches kEach times, to or from every one of the second; when
  // the last of that has ended.
  Picoseconds all(ibv_wr_opcode opcode) {
    Work work;
    work.opcode = opcode;
    work.length = kBytes;
    std::vector<std::pair<Node*, ibv_qp*>> queues;
    for (Node* from : first) {
      for (Node* to : second) {
        ibv_qp* const here = from->make_qp(IBV_QPT_RC);
        ibv_qp* const there = to->make_qp(IBV_QPT_RC);
        from->connect(here, there->qp_num);
        to->connect(there, here->qp_num);
        for (int i = 0; i < kEach; ++i) EXPECT_EQ(from->post(here, *to, work), 0);
      }
    }
    Picoseconds end = 0;
    for (Node* from : first) {
      const std::vector<Done> done = from->wait(second.size() * kEach);
      EXPECT_EQ(done.size(), second.size() * kEach);
      for (const Done& one : done) EXPECT_EQ(one.entry.status, IBV_WC_SUCCESS);
      if (!done.empty()) end = std::max(end, done.back().at);
    }
    return end;
  }
};

double transfer_time(Picoseconds rate, std::size_t messages) {
  return static_cast<double>(hca::time_of(rate, messages * kEach * kBytes));
}

constexpr double kOnePercent = 0.01;

TEST(Bandwidth, SendersShareTheReceiversPort) {
  for (std::uint32_t senders = 1; senders <= 8; ++senders) {
    std::vector<std::uint32_t> nodes;
    for (std::uint32_t i = 1; i <= senders; ++i) nodes.push_back(i);
    const double expected = transfer_time(kWire, senders);
    const Picoseconds written = Crowd(port_only(), nodes, {0}).all(IBV_WR_RDMA_WRITE);
    EXPECT_NEAR(static_cast<double>(written - 2 * kMicrosecond), expected, kOnePercent * expected)
        << senders;
  }
}

TEST(Bandwidth, ANodesProcessesShareItsPort) {
  const double expected = transfer_time(kWire, 4);
  const Picoseconds written = Crowd(port_only(), {0, 0, 0, 0}, {1}).all(IBV_WR_RDMA_WRITE);
  EXPECT_NEAR(static_cast<double>(written - 2 * kMicrosecond), expected, kOnePercent * expected);
  const Picoseconds received = Crowd(port_only(), {0}, {1, 1, 1, 1}).all(IBV_WR_RDMA_WRITE);
  EXPECT_NEAR(static_cast<double>(received - 2 * kMicrosecond), expected, kOnePercent * expected);
}

// What is fetched comes through the port of whoever fetches it.
TEST(Bandwidth, ReadsShareThePortTheyComeThrough) {
  const double expected = transfer_time(kWire, 4);
  const Picoseconds fetched = Crowd(port_only(), {0}, {1, 2, 3, 4}).all(IBV_WR_RDMA_READ);
  EXPECT_NEAR(static_cast<double>(fetched - 2 * kMicrosecond), expected, kOnePercent * expected);
}

TEST(Bandwidth, BothDirectionsOfAPortAreIndependent) {
  Crowd both(port_only(), {0, 1}, {0, 1});
  // Node 0 writes to node 1 and the other way; what stays on a node does not use its port.
  const double expected = transfer_time(kWire, 1);
  EXPECT_NEAR(static_cast<double>(both.all(IBV_WR_RDMA_WRITE) - 2 * kMicrosecond), expected,
              kOnePercent * expected);
}

TEST(Bandwidth, ANodesProcessesSharePciExpressInEachDirection) {
  hca::Profile profile;
  profile.pcie_rate = kPcie;
  const double expected = transfer_time(kPcie, 4);
  for (const ibv_wr_opcode opcode : {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ}) {
    const Picoseconds one_reader = Crowd(profile, {0}, {1, 2, 3, 4}).all(opcode);
    EXPECT_NEAR(static_cast<double>(one_reader), expected, kOnePercent * expected);
    const Picoseconds one_writer = Crowd(profile, {1, 2, 3, 4}, {0}).all(opcode);
    EXPECT_NEAR(static_cast<double>(one_writer), expected, kOnePercent * expected);
  }
  // On one node reading and writing go on at the same time.
  const Picoseconds local = Crowd(profile, {0}, {0}).all(IBV_WR_RDMA_WRITE);
  EXPECT_NEAR(static_cast<double>(local), expected / 4, kOnePercent * expected);
}

// To the picosecond: the slowest of the three carries all, the others their last packet only.
TEST(Bandwidth, TransfersOfOneMessageOverlap) {
  hca::Profile profile = port_only();
  profile.pcie_rate = kPcie;
  profile.wire_overhead = 26;
  Work work;
  work.opcode = IBV_WR_RDMA_WRITE;
  work.length = kBytes;
  constexpr std::uint32_t kPacket = 4096, kRest = kBytes - kPacket;
  const Picoseconds to_port = hca::time_of(kPcie, kPacket);
  const Picoseconds on_wire = hca::time_of(kWire, kBytes + 2 * 26);
  const Picoseconds to_memory = hca::time_of(kPcie, kRest);
  // The answer is on its way while the last packet goes to memory.
  EXPECT_EQ(timed(profile, work) - 2 * kMicrosecond, to_port + on_wire);
  work.opcode = IBV_WR_RDMA_READ;
  const Picoseconds request = hca::time_of(kWire, 26);
  EXPECT_EQ(timed(profile, work) - 2 * kMicrosecond, request + to_port + on_wire + to_memory);
}

// Large messages through the messaging core, whichever protocol carries them.
TEST(Bandwidth, AnIncastOfLargeMessagesTakesThePortsTime) {
  constexpr std::uint32_t kSources = 8;
  constexpr std::uint64_t kMessage = 1 << 20;
  constexpr int kRounds = 8;
  for (const char* way : {"getcqe", "put"}) {
    Options options;
    options.ranks = kSources + 1;
    options.profile = port_only();
    options.settings = {{"policy", "static:dc-sendrecv"}, {"rendezvous", way}};
    Picoseconds begin = 0, end = 0;
    auto result = run(options, [&](Rank rank) -> Task {
      if (rank.id() != 0) {
        for (int i = 0; i <= kRounds; ++i) co_await rank.send(0, i == 0 ? 8 : kMessage, 1);
        co_return;
      }
      std::vector<Request> all;
      for (std::uint32_t from = 1; from <= kSources; ++from) co_await rank.recv(from, 8, 1);
      begin = rank.now();
      for (int i = 0; i < kRounds; ++i) {
        for (std::uint32_t from = 1; from <= kSources; ++from) {
          all.push_back(co_await rank.irecv(from, kMessage, 1));
        }
      }
      for (const Request& one : all) co_await rank.wait(one);
      end = rank.now();
    });
    ASSERT_TRUE(result.ok()) << result.status().text();
    const double expected = static_cast<double>(hca::time_of(kWire, kSources * kRounds * kMessage));
    EXPECT_GE(static_cast<double>(end - begin), (1 - kOnePercent) * expected) << way;
    EXPECT_LE(static_cast<double>(end - begin), (1 + 3 * kOnePercent) * expected) << way;
  }
}

}  // namespace
}  // namespace turnout::sim
