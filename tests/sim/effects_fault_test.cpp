// SPDX-License-Identifier: BSD-3-Clause
// Faults and errors on the virtual engine, each alone: loss, delay, out-of-order placement,
// transport errors, refusals, targets that are gone, processes that die.
#include <gtest/gtest.h>

#include <cerrno>
#include <set>

#include "tests/sim/adapter_rig.h"

namespace turnout::sim {
namespace {

constexpr Picoseconds kHop = 1'000'000;

hca::Profile with_hop() {
  hca::Profile profile;
  profile.wire_hop = kHop;
  return profile;
}
// IBTA: 4.096 us times 2^code.
Picoseconds timeout(int code) {
  return (Picoseconds{4'096'000} << code);
}
ibv_qp_state state_of(ibv_qp* qp) {
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  EXPECT_EQ(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init), 0);
  return attr.qp_state;
}
std::vector<ibv_wc_status> statuses(const std::vector<Done>& done) {
  std::vector<ibv_wc_status> all;
  for (const Done& one : done) all.push_back(one.entry.status);
  return all;
}
using Statuses = std::vector<ibv_wc_status>;
void play_until(Pair& pair, Picoseconds time) {
  pair.world.at(
      time, [](void*, std::uint64_t) {}, nullptr, 0);
  while (pair.world.now() < time && pair.world.run_one()) {
  }
}
Work send_of(std::uint32_t length = 8) {
  Work work;
  work.opcode = IBV_WR_SEND;
  work.length = length;
  return work;
}

TEST(FaultEffects, WhatIsLostIsSentAgainAfterTheTransportsTimeout) {
  hca::Profile profile = with_hop();
  profile.fault_loss = 500'000;
  std::set<std::uint64_t> seen;
  for (const std::uint8_t code : {std::uint8_t{4}, std::uint8_t{14}}) {
    for (std::uint64_t seed = 1; seed <= 40; ++seed) {
      QpOptions options;
      options.timeout = code;
      Pair pair(profile, options, false, seed);
      EXPECT_EQ(pair.a.post(pair.to_b, pair.b, {}), 0);
      const auto done = pair.a.wait(1);
      ASSERT_EQ(done.size(), 1u);
      if (done[0].entry.status != IBV_WC_SUCCESS) continue;
      const std::uint64_t again = pair.world.statistics().retransmissions;
      EXPECT_EQ(done[0].at, 2 * kHop + timeout(code) * static_cast<Picoseconds>(again)) << seed;
      seen.insert(again);
    }
  }
  // A retransmission is lost as easily as the first.
  EXPECT_TRUE(seen.contains(0) && seen.contains(1) && seen.contains(2) && seen.contains(3));
}

// IBTA 9.7.6.1.3: retry_cnt retransmissions, each after a timeout, and one timeout more.
TEST(FaultEffects, WhatIsAlwaysLostEndsWhenItsRetriesAreOver) {
  hca::Profile profile = with_hop();
  profile.fault_loss = 1'000'000;
  for (const std::uint8_t retries : {std::uint8_t{0}, std::uint8_t{1}, std::uint8_t{7}}) {
    QpOptions options;
    options.timeout = 4;
    options.retry_count = retries;
    Pair pair(profile, options);
    for (int i = 0; i < 2; ++i) EXPECT_EQ(pair.a.post(pair.to_b, pair.b, {}), 0);
    const auto done = pair.a.wait(2);
    EXPECT_EQ(statuses(done), (Statuses{IBV_WC_RETRY_EXC_ERR, IBV_WC_WR_FLUSH_ERR}));
    EXPECT_EQ(done[0].at, timeout(4) * (retries + 1));
    EXPECT_EQ(state_of(pair.to_b), IBV_QPS_ERR);
  }
  // Timeout 0 waits for ever.
  QpOptions options;
  options.timeout = 0;
  Pair pair(profile, options);
  EXPECT_EQ(pair.a.post(pair.to_b, pair.b, {}), 0);
  EXPECT_TRUE(pair.a.wait(1).empty());
}

TEST(FaultEffects, ADelayHoldsUpWhatFollows) {
  hca::Profile profile = with_hop();
  profile.fault_delay = 1'000'000;
  profile.fault_delay_most = 500'000;
  Pair pair(profile);
  for (int i = 0; i < 16; ++i) EXPECT_EQ(pair.a.post(pair.to_b, pair.b, {}), 0);
  const auto done = pair.a.wait(16);
  ASSERT_EQ(done.size(), 16u);
  Picoseconds last = 2 * kHop;
  for (const Done& one : done) {
    EXPECT_GE(one.at, last);
    EXPECT_LT(one.at, 2 * kHop + 500'000);
    last = one.at;
  }
  EXPECT_GT(done[15].at, 2 * kHop);
}

TEST(FaultEffects, ATargetThatIsGoneIsTriedToTheEndAndWhatFollowsIsFlushed) {
  for (const std::uint8_t retries : {std::uint8_t{0}, std::uint8_t{3}}) {
    QpOptions options;
    options.timeout = 8;
    options.retry_count = retries;
    Pair pair(with_hop(), options);
    pair.world.kill(pair.b.process);
    for (int i = 0; i < 3; ++i) EXPECT_EQ(pair.a.post(pair.to_b, pair.b, {}), 0);
    const auto done = pair.a.wait(3);
    EXPECT_EQ(statuses(done),
              (Statuses{IBV_WC_RETRY_EXC_ERR, IBV_WC_WR_FLUSH_ERR, IBV_WC_WR_FLUSH_ERR}));
    for (const Done& one : done) EXPECT_EQ(one.at, kHop + (retries + 1) * timeout(8));
    EXPECT_EQ(state_of(pair.to_b), IBV_QPS_ERR);
    EXPECT_EQ(pair.world.statistics().retransmissions, retries);
    // Posted to a queue pair in error: flushed.
    EXPECT_EQ(pair.a.post(pair.to_b, pair.b, {}), 0);
    EXPECT_EQ(statuses(pair.a.wait(1)), Statuses{IBV_WC_WR_FLUSH_ERR});
  }
}

// IBTA 9.7.2: what comes is taken for old, or for too new. Both ends begin anew, or neither.
TEST(FaultEffects, AnEndThatBeginsAnewAloneIsNotUnderstood) {
  for (const bool first : {false, true}) {
    for (const bool second : {false, true}) {
      Pair pair(with_hop());
      EXPECT_EQ(pair.a.post(pair.to_b, pair.b, {}), 0);
      EXPECT_EQ(statuses(pair.a.wait(1)), Statuses{IBV_WC_SUCCESS});
      const auto again = [](Node& node, ibv_qp* qp, ibv_qp* peer) {
        node.world.enter(node.process);
        ibv_qp_attr reset{};
        EXPECT_EQ(ibv_modify_qp(qp, &reset, IBV_QP_STATE), 0);
        node.connect(qp, peer->qp_num);
      };
      if (first) again(pair.a, pair.to_b, pair.to_a);
      if (second) again(pair.b, pair.to_a, pair.to_b);
      EXPECT_EQ(pair.a.post(pair.to_b, pair.b, {}), 0);
      EXPECT_EQ(statuses(pair.a.wait(1)),
                Statuses{first == second ? IBV_WC_SUCCESS : IBV_WC_RETRY_EXC_ERR});
    }
  }
}

TEST(FaultEffects, AnRcResponderFailsWithAForbiddenRequest) {
  hca::Profile profile = with_hop();
  profile.adapter_acknowledge = 60'001;
  Pair pair(profile);
  pair.world.enter(pair.b.process);
  pair.b.receive(pair.to_a);
  pair.world.enter(pair.a.process);
  Work wrong;
  wrong.rkey = 0xffff00;
  EXPECT_EQ(pair.a.post(pair.to_b, pair.b, {}), 0);
  EXPECT_EQ(pair.a.post(pair.to_b, pair.b, wrong), 0);
  EXPECT_EQ(pair.a.post(pair.to_b, pair.b, send_of()), 0);
  const auto done = pair.a.wait(3);
  EXPECT_EQ(statuses(done), (Statuses{IBV_WC_SUCCESS, IBV_WC_REM_ACCESS_ERR, IBV_WC_WR_FLUSH_ERR}));
  for (const Done& one : done) EXPECT_EQ(one.at, 2 * kHop + 60'001);
  EXPECT_EQ(state_of(pair.to_a), IBV_QPS_ERR);
  // Its receive is flushed, although the send had come as far as its adapter.
  EXPECT_EQ(statuses(pair.b.wait(1)), Statuses{IBV_WC_WR_FLUSH_ERR});
}

TEST(FaultEffects, ADctSurvivesAForbiddenRequest) {
  Cluster c = client_and_targets(with_hop(), 1, 2, 1);
  Node &client = *c.nodes[0], &target = *c.nodes[1];
  c.world->enter(client.process);
  client.transfer(0, target, IBV_WR_RDMA_WRITE, 0xffff00);
  auto done = client.wait(1);
  EXPECT_EQ(statuses(done), Statuses{IBV_WC_REM_ACCESS_ERR});
  client.transfer(1, target, IBV_WR_RDMA_WRITE);
  done = client.wait(1);
  EXPECT_EQ(statuses(done), Statuses{IBV_WC_SUCCESS});
}

// What follows a forbidden request is not executed, and the receive it had taken serves others.
TEST(FaultEffects, BehindAForbiddenRequestNothingIsExecuted) {
  Cluster c = client_and_targets(with_hop(), 1, 2, 1);
  Node &client = *c.nodes[0], &target = *c.nodes[1];
  c.world->enter(target.process);
  target.receive_shared(1);
  c.world->enter(client.process);
  client.transfer(0, target, IBV_WR_RDMA_WRITE, 0xffff00);
  client.transfer(0, target, IBV_WR_SEND);
  EXPECT_EQ(statuses(client.wait(2)), (Statuses{IBV_WC_REM_ACCESS_ERR, IBV_WC_WR_FLUSH_ERR}));
  EXPECT_TRUE(target.wait(1).empty());
  c.world->enter(client.process);
  client.transfer(1, target, IBV_WR_SEND);
  EXPECT_EQ(statuses(target.wait(1)), Statuses{IBV_WC_SUCCESS});
}

// What was under way before a request that its own adapter refuses is completed as ever.
TEST(FaultEffects, BeforeAWrongRequestAllIsExecuted) {
  Pair pair(with_hop());
  pair.a.word(0) = 7;
  Work wrong;
  wrong.lkey = 0xffff00;
  EXPECT_EQ(pair.a.post(pair.to_b, pair.b, {}), 0);
  EXPECT_EQ(pair.a.post(pair.to_b, pair.b, wrong), 0);
  EXPECT_EQ(pair.a.post(pair.to_b, pair.b, {}), 0);
  EXPECT_EQ(statuses(pair.a.wait(3)),
            (Statuses{IBV_WC_SUCCESS, IBV_WC_LOC_PROT_ERR, IBV_WC_WR_FLUSH_ERR}));
  EXPECT_EQ(pair.b.word(0), 7u);
}

TEST(FaultEffects, ATransportErrorEndsTheQueuePair) {
  hca::Profile profile = with_hop();
  profile.fault_qp_error = 500'000;
  bool behind_others = false;
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    Pair pair(profile, {}, false, seed);
    for (int i = 0; i < 8; ++i) EXPECT_EQ(pair.a.post(pair.to_b, pair.b, {}), 0);
    const auto done = pair.a.wait(8);
    ASSERT_EQ(done.size(), 8u) << seed;
    std::size_t i = 0;
    while (i < 8 && done[i].entry.status == IBV_WC_SUCCESS) ++i;
    behind_others = behind_others || i > 0;
    ASSERT_LT(i, 8u) << seed;
    EXPECT_EQ(done[i].entry.status, IBV_WC_RETRY_EXC_ERR);
    for (++i; i < 8; ++i) EXPECT_EQ(done[i].entry.status, IBV_WC_WR_FLUSH_ERR);
    EXPECT_EQ(state_of(pair.to_b), IBV_QPS_ERR);
  }
  EXPECT_TRUE(behind_others);
}

TEST(FaultEffects, ResourcesAreRefused) {
  hca::Profile profile;
  profile.fault_refuse = 1'000'000;
  std::unique_ptr<hca::World> world = make_world(profile, 1);
  Node node(*world, 0, 0, 0);
  EXPECT_EQ(node.region, nullptr);
  EXPECT_EQ(errno, ENOMEM);
  errno = 0;
  EXPECT_EQ(node.make_qp(IBV_QPT_RC), nullptr);
  EXPECT_EQ(errno, ENOMEM);
  EXPECT_EQ(world->statistics().faults, 2u);
  EXPECT_EQ(world->statistics().qps_alive + world->statistics().regions_alive, 0u);
}

TEST(FaultEffects, AWriteIsPlacedTailFirst) {
  hca::Profile profile = with_hop();
  profile.fault_reorder = 1'000'000;
  Pair pair(profile);
  pair.a.word(0) = 1;
  pair.a.word(8) = 2;
  Work write;
  write.length = 16;
  EXPECT_EQ(pair.a.post(pair.to_b, pair.b, write), 0);
  EXPECT_EQ(pair.a.post(pair.to_b, pair.b, send_of()), 0);
  pair.world.enter(pair.b.process);
  pair.b.receive(pair.to_a);
  pair.b.woken = false;
  while (!pair.b.woken && pair.world.run_one()) {
  }
  EXPECT_EQ(pair.world.now(), kHop);
  EXPECT_EQ(pair.b.word(0), 0u);
  EXPECT_EQ(pair.b.word(8), 2u);
  pair.b.woken = false;
  while (!pair.b.woken && pair.world.run_one()) {
  }
  EXPECT_EQ(pair.world.now(), 2 * kHop);
  EXPECT_EQ(pair.b.word(0), 1u);
  // A message behind it is told of when all is placed, and so is the sender.
  const auto received = pair.b.wait(1);
  ASSERT_EQ(received.size(), 1u);
  EXPECT_EQ(received[0].at, 2 * kHop);
  for (const Done& done : pair.a.wait(2)) EXPECT_EQ(done.at, 3 * kHop);
  EXPECT_EQ(pair.world.statistics().faults, 1u);
  // One byte has no order.
  write.length = 1;
  EXPECT_EQ(pair.timed(write), 2 * kHop);
}

// Between the two halves one of the two processes dies.
TEST(FaultEffects, DeathBetweenTailAndHead) {
  hca::Profile profile = with_hop();
  profile.fault_reorder = 1'000'000;
  QpOptions options;
  options.timeout = 8;
  for (const bool target : {true, false}) {
    Pair pair(profile, options);
    pair.a.word(0) = 1;
    pair.a.word(8) = 2;
    Work write;
    write.length = 16;
    EXPECT_EQ(pair.a.post(pair.to_b, pair.b, write), 0);
    play_until(pair, kHop + kHop / 2);
    EXPECT_EQ(pair.b.word(8), 2u);
    pair.world.kill(target ? pair.b.process : pair.a.process);
    const auto done = pair.a.wait(2);
    EXPECT_EQ(statuses(done), target ? Statuses{IBV_WC_RETRY_EXC_ERR} : Statuses{});
    EXPECT_EQ(pair.b.word(0), 0u);
  }
  // Dead before the first: the sender is told once.
  Pair pair(profile, options);
  Work write;
  write.length = 16;
  EXPECT_EQ(pair.a.post(pair.to_b, pair.b, write), 0);
  pair.world.kill(pair.b.process);
  EXPECT_EQ(statuses(pair.a.wait(2)), Statuses{IBV_WC_RETRY_EXC_ERR});
}

// Killed at any time of a message: its receiver and others are told nothing or all of it.
TEST(FaultEffects, DeathOfASenderAtAnyTime) {
  hca::Profile profile = with_hop();
  profile.pcie_doorbell = profile.pcie_read = profile.pcie_write = 300'000;
  QpOptions options;
  options.shared_receive = true;
  for (Picoseconds time = 50'000; time < 4 * kHop; time += 100'000) {
    Pair pair(profile, options);
    const auto [second, unused] = pair.connection(options);
    pair.world.enter(pair.b.process);
    pair.b.receive_shared(1);
    pair.world.enter(pair.a.process);
    pair.a.word(0) = 9;
    EXPECT_EQ(pair.a.post(pair.to_b, pair.b, send_of()), 0);
    EXPECT_EQ(pair.a.post(second, pair.b, {}), 0);
    play_until(pair, time);
    pair.world.kill(pair.a.process);
    play(pair.world);
    const bool landed = pair.b.word(8192) == 9;
    EXPECT_EQ(pair.b.wait(2).size(), landed ? 1u : 0u) << time;
    EXPECT_EQ(landed, time >= 300'000 + 300'000 + kHop + 300'000) << time;
    // The receive it had taken is there for others.
    if (landed) continue;
    Node third(pair.world, 0, 0, 0);
    ibv_qp* const from = third.make_qp(IBV_QPT_RC);
    ibv_qp* const to = pair.b.make_qp(IBV_QPT_RC, options);
    third.connect(from, to->qp_num);
    pair.b.connect(to, from->qp_num);
    pair.world.enter(third.process);
    EXPECT_EQ(third.post(from, pair.b, send_of()), 0);
    EXPECT_EQ(statuses(pair.b.wait(1)), Statuses{IBV_WC_SUCCESS}) << time;
  }
}

}  // namespace
}  // namespace turnout::sim
