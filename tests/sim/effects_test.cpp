// SPDX-License-Identifier: BSD-3-Clause
// Each effect of processor, PCIe, adapter, wire and set-up alone: the profile `ideal` with the
// parameters of that effect, the difference to the picosecond. DC and the context cache are in
// effects_context_test.cpp, receivers in effects_receive_test.cpp, faults in
// effects_fault_test.cpp.
#include <gtest/gtest.h>

#include "tests/sim/adapter_rig.h"

namespace turnout::sim {
namespace {

Work write_of(std::uint32_t length, bool inlined = false) {
  Work work;
  work.length = length;
  work.inlined = inlined;
  return work;
}
Work read_of(std::uint32_t length) {
  Work work = write_of(length);
  work.opcode = IBV_WR_RDMA_READ;
  return work;
}

TEST(Effects, NothingCostsAnythingInIdeal) {
  EXPECT_EQ(timed({}, write_of(4096)), 0);
  EXPECT_EQ(timed({}, read_of(4096)), 0);
}

TEST(Effects, ProcessorPostAndDoorbellOncePerRequest) {
  hca::Profile profile;
  profile.processor_post = 40'001;
  EXPECT_EQ(timed(profile, write_of(8)), 40'001);
  profile.processor_doorbell = 20'003;
  Pair pair(profile);
  const Picoseconds begin = pair.world.process_time();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(pair.a.post(pair.to_b, pair.b, write_of(8)), 0);
  EXPECT_EQ(pair.world.process_time() - begin, 3 * 60'004);
}

TEST(Effects, ProcessorPostOfDcAndUdInAddition) {
  hca::Profile profile;
  profile.processor_post = 40'000;
  profile.processor_post_dc = 7'001;
  profile.processor_post_ud = 5'003;
  EXPECT_EQ(timed(profile, write_of(8)), 40'000);
  {
    Cluster c = client_and_targets(profile, 1, 1, 1);
    EXPECT_EQ(reads(c, {c.nodes[1].get()}), 47'001);
  }
  Pair pair(profile);
  Work work;
  work.opcode = IBV_WR_SEND;
  work.datagram = pair.b.make_qp(IBV_QPT_UD);
  ibv_qp* const from = pair.a.make_qp(IBV_QPT_UD);
  const Picoseconds begin = pair.world.process_time();
  EXPECT_EQ(pair.a.post(from, pair.b, work), 0);
  EXPECT_EQ(pair.world.process_time() - begin, 45'003);
}

TEST(Effects, ProcessorTakesCompletionsAndPollsEmptyQueues) {
  hca::Profile profile;
  profile.processor_entry = 20'001;
  EXPECT_EQ(timed(profile, write_of(8)), 20'001);
  profile.processor_poll = 3'003;
  Pair pair(profile);
  const Picoseconds begin = pair.world.process_time();
  ibv_wc entry;
  EXPECT_EQ(ibv_poll_cq(pair.a.cq.get(), 1, &entry), 0);
  EXPECT_EQ(pair.world.process_time() - begin, 3'003);
}

TEST(Effects, ProcessorPostsReceives) {
  hca::Profile profile;
  profile.processor_post_receive = 11'001;
  Pair pair(profile);
  pair.world.enter(pair.b.process);
  const Picoseconds begin = pair.world.process_time();
  pair.b.receive(pair.to_a);
  EXPECT_EQ(pair.world.process_time() - begin, 11'001);
  pair.b.receive_shared(2);
  EXPECT_EQ(pair.world.process_time() - begin, 3 * 11'001);
}

TEST(Effects, PcieDoorbell) {
  hca::Profile profile;
  profile.pcie_doorbell = 150'001;
  EXPECT_EQ(timed(profile, write_of(8, true)), 150'001);
  EXPECT_EQ(timed(profile, write_of(8)), 150'001);
}

TEST(Effects, PcieReadFetchesWhatIsNotInline) {
  hca::Profile profile;
  profile.pcie_read = 350'001;
  EXPECT_EQ(timed(profile, write_of(8, true)), 0);
  EXPECT_EQ(timed(profile, write_of(8)), 350'001);
  EXPECT_EQ(timed(profile, write_of(0)), 0);
  EXPECT_EQ(timed(profile, read_of(8)), 350'001);  // at the target
}

TEST(Effects, PcieWritePlacesDataAndCompletions) {
  hca::Profile profile;
  profile.pcie_write = 250'001;
  EXPECT_EQ(timed(profile, read_of(8)), 250'001);
  // A write is answered while its data go to memory, but no sender is told before they are there;
  // its completion is a write again.
  EXPECT_EQ(timed(profile, write_of(8)), 2 * 250'001);
  profile.wire_hop = 300'000;
  EXPECT_EQ(timed(profile, write_of(8)), 2 * 300'000 + 250'001);
  profile.wire_hop = 0;
  Pair pair(profile);
  pair.world.enter(pair.b.process);
  pair.b.receive(pair.to_a);
  pair.world.enter(pair.a.process);
  Work work = write_of(8, true);
  work.opcode = IBV_WR_SEND;
  EXPECT_EQ(pair.a.post(pair.to_b, pair.b, work), 0);
  const auto received = pair.b.wait(1);
  ASSERT_EQ(received.size(), 1u);
  EXPECT_EQ(received[0].at, 250'001);
}

TEST(Effects, PcieRateOnBothSides) {
  hca::Profile profile;
  profile.pcie_rate = 65'536;  // picoseconds per KiB
  // Fetched by the sender's adapter, unless inline; placed by the target's.
  EXPECT_EQ(timed(profile, write_of(512)), 65'536);
  EXPECT_EQ(timed(profile, write_of(512, true)), 32'768);
  // Read from the target's memory, written to the sender's.
  EXPECT_EQ(timed(profile, read_of(4096)), 2 * 4 * 65'536);
  Pair pair(profile);
  pair.world.enter(pair.b.process);
  pair.b.receive(pair.to_a, 4096);
  pair.world.enter(pair.a.process);
  Work work = write_of(4096);
  work.opcode = IBV_WR_SEND;
  EXPECT_EQ(pair.a.post(pair.to_b, pair.b, work), 0);
  const auto received = pair.b.wait(1);
  ASSERT_EQ(received.size(), 1u);
  EXPECT_EQ(received[0].at, 2 * 4 * 65'536);
}

// Two requests posted at one time on two queue pairs: the later completion.
Picoseconds two_at_once(const hca::Profile& profile, bool same_sender, bool same_receiver) {
  Cluster c;
  c.world = make_world(profile, 4);
  for (const std::uint32_t node : {0u, same_sender ? 0u : 1u, 2u, same_receiver ? 2u : 3u}) {
    c.nodes.push_back(std::make_unique<Node>(*c.world, node, 0, 0));
  }
  ibv_qp* from[2];
  for (std::size_t i = 0; i < 2; ++i) {
    Node &a = *c.nodes[i], &b = *c.nodes[2 + i];
    from[i] = a.make_qp(IBV_QPT_RC);
    ibv_qp* const to = b.make_qp(IBV_QPT_RC);
    a.connect(from[i], to->qp_num);
    b.connect(to, from[i]->qp_num);
  }
  for (std::size_t i = 0; i < 2; ++i) {
    c.world->enter(c.nodes[i]->process);
    EXPECT_EQ(c.nodes[i]->post(from[i], *c.nodes[2 + i], write_of(8)), 0);
  }
  Picoseconds last = 0;
  for (std::size_t i = 0; i < 2; ++i) {
    for (const Done& done : c.nodes[i]->wait(1)) last = std::max(last, done.at);
  }
  return last;
}

TEST(Effects, ProcessesOfOneNodeShareItsSendSide) {
  hca::Profile profile;
  profile.adapter_send_rc = 20'001;
  EXPECT_EQ(two_at_once(profile, false, false), 20'001);
  EXPECT_EQ(two_at_once(profile, false, true), 20'001);
  EXPECT_EQ(two_at_once(profile, true, false), 2 * 20'001);
}

TEST(Effects, ProcessesOfOneNodeShareItsReceiveSide) {
  hca::Profile profile;
  profile.adapter_receive_rc = 30'001;
  EXPECT_EQ(two_at_once(profile, false, false), 30'001);
  EXPECT_EQ(two_at_once(profile, true, false), 30'001);
  EXPECT_EQ(two_at_once(profile, false, true), 2 * 30'001);
}

TEST(Effects, ProcessesOfOneNodeShareItsLink) {
  hca::Profile profile;
  profile.wire_rate = 1024 * 1000;  // 1 ns a byte
  EXPECT_EQ(two_at_once(profile, false, false), 8'000);
  EXPECT_EQ(two_at_once(profile, true, false), 2 * 8'000);
  EXPECT_EQ(two_at_once(profile, false, true), 2 * 8'000);
}

TEST(Effects, TwoQueuePairsOfAProcessShareItsAdapter) {
  hca::Profile profile;
  profile.adapter_send_rc = 20'001;
  profile.adapter_receive_rc = 30'007;
  Pair pair(profile);
  const auto [second, unused] = pair.connection();
  pair.world.enter(pair.a.process);
  EXPECT_EQ(pair.a.post(pair.to_b, pair.b, write_of(8)), 0);
  EXPECT_EQ(pair.a.post(second, pair.b, write_of(8)), 0);
  const auto done = pair.a.wait(2);
  ASSERT_EQ(done.size(), 2u);
  EXPECT_EQ(done[0].at, 20'001 + 30'007);
  EXPECT_EQ(done[1].at, 20'001 + 2 * 30'007);  // the second send is hidden behind the first receive
}

TEST(Effects, ServicesHaveTheirOwnOccupancy) {
  hca::Profile profile;
  profile.adapter_send_rc = 1'000;
  profile.adapter_receive_rc = 10'000;
  profile.adapter_send_dc = 2'000;
  profile.adapter_receive_dc = 20'000;
  profile.adapter_send_ud = 4'000;
  profile.adapter_receive_ud = 40'000;
  EXPECT_EQ(timed(profile, write_of(8)), 11'000);
  {
    profile.dc_serial = 0;
    Cluster c = client_and_targets(profile, 1, 1, 1);
    EXPECT_EQ(reads(c, {c.nodes[1].get()}), 22'000);
  }
  Pair pair(profile);
  Work work;
  work.opcode = IBV_WR_SEND;
  work.datagram = pair.b.make_qp(IBV_QPT_UD);
  ibv_qp* const from = pair.a.make_qp(IBV_QPT_UD);
  pair.world.enter(pair.b.process);
  pair.b.receive(work.datagram);
  pair.world.enter(pair.a.process);
  EXPECT_EQ(pair.a.post(from, pair.b, work), 0);
  const auto received = pair.b.wait(1);
  ASSERT_EQ(received.size(), 1u);
  EXPECT_EQ(received[0].at, 44'000);
}

TEST(Effects, Acknowledgement) {
  hca::Profile profile;
  profile.adapter_acknowledge = 60'001;
  EXPECT_EQ(timed(profile, write_of(8)), 60'001);
  EXPECT_EQ(timed(profile, read_of(8)), 0);  // the data are the answer
}

TEST(Effects, WireHopThereAndBackAndLoopback) {
  hca::Profile profile;
  profile.wire_hop = 170'001;
  profile.wire_loopback = 90'001;
  EXPECT_EQ(timed(profile, write_of(8)), 2 * 170'001);
  EXPECT_EQ(timed(profile, read_of(8)), 2 * 170'001);
  EXPECT_EQ(timed(profile, write_of(8), true), 2 * 90'001);
  EXPECT_EQ(timed(profile, read_of(8), true), 2 * 90'001);
}

TEST(Effects, WireRateCountsPacketsAndTheirHeaders) {
  hca::Profile profile;
  profile.wire_rate = 1024 * 1000;  // 1 ns a byte
  EXPECT_EQ(timed(profile, write_of(4096)), 4'096'000);
  EXPECT_EQ(timed(profile, read_of(4096)), 4'096'000);
  EXPECT_EQ(timed(profile, write_of(4096), true), 0);  // not on the link
  profile.wire_overhead = 30;
  EXPECT_EQ(timed(profile, write_of(4096)), 4'126'000);
  EXPECT_EQ(timed(profile, write_of(4097)), 4'157'000);
  EXPECT_EQ(timed(profile, write_of(0)), 30'000);
  // The request of a read is a packet without data.
  EXPECT_EQ(timed(profile, read_of(4096)), 30'000 + 4'126'000);
  profile.wire_packet = 1024;
  EXPECT_EQ(timed(profile, write_of(4096)), 4'216'000);
}

TEST(Effects, SettingUpIsPaidByTheProcessor) {
  hca::Profile profile;
  profile.setup_create_qp = 400'001;
  profile.setup_modify_qp = 50'003;
  profile.setup_destroy_qp = 200'007;
  Pair pair(profile);
  Picoseconds begin = pair.world.process_time();
  ibv_qp* const qp = pair.a.make_qp(IBV_QPT_RC);
  EXPECT_EQ(pair.world.process_time() - begin, 400'001);
  begin = pair.world.process_time();
  pair.a.connect(qp, pair.to_a->qp_num);
  EXPECT_EQ(pair.world.process_time() - begin, 3 * 50'003);
  begin = pair.world.process_time();
  pair.a.qps.pop_back();
  EXPECT_EQ(pair.world.process_time() - begin, 200'007);
}

TEST(Effects, RegistrationByLength) {
  hca::Profile profile;
  profile.setup_register = 16'000'001;
  profile.setup_register_rate = 61'440;  // 0.06 ns a byte
  profile.setup_deregister = 9'000'007;
  Pair pair(profile);
  Picoseconds begin = pair.world.process_time();
  verbs::Mr region(
      (ibv_reg_mr)(pair.a.device->pd(), pair.a.memory.data(), 8192, IBV_ACCESS_LOCAL_WRITE));
  EXPECT_EQ(pair.world.process_time() - begin, 16'000'001 + 8 * 61'440);
  begin = pair.world.process_time();
  region.reset();
  EXPECT_EQ(pair.world.process_time() - begin, 9'000'007);
}

}  // namespace
}  // namespace turnout::sim
