// SPDX-License-Identifier: BSD-3-Clause
// Each effect of DC's connections and of the context cache alone: the profile `ideal` with the
// parameters of that effect, the difference to the picosecond.
#include <gtest/gtest.h>

#include "tests/sim/adapter_rig.h"

namespace turnout::sim {
namespace {

TEST(DcEffects, ConnectIsPaidByTheFirstToATarget) {
  hca::Profile profile;
  profile.dc_serial = 1;
  profile.dc_connect = 1'000'001;
  Cluster c = client_and_targets(profile, 1, 1, 2);
  const Node *a = c.nodes[1].get(), *b = c.nodes[2].get();
  EXPECT_EQ(reads(c, {a}), 1'000'001);
  EXPECT_EQ(reads(c, {a}), 0);
  EXPECT_EQ(reads(c, {b}), 1'000'001);
  EXPECT_EQ(reads(c, {a, a, b, b}), 2 * 1'000'001);
  EXPECT_EQ(c.world->statistics().dc_connects, 4u);
}

TEST(DcEffects, SwitchingOccupiesTheAdapter) {
  hca::Profile profile;
  profile.dc_serial = 1;
  profile.adapter_send_dc = 25'000;
  profile.adapter_send_dc_switch = 43'001;
  Cluster c = client_and_targets(profile, 1, 1, 2);
  const Node *a = c.nodes[1].get(), *b = c.nodes[2].get();
  EXPECT_EQ(reads(c, {a}), 43'001);
  EXPECT_EQ(reads(c, {a, a}), 2 * 25'000);
  EXPECT_EQ(reads(c, {a, b}), 25'000 + 43'001);
}

TEST(DcEffects, ASwitchWaitsForTheLastAnswerAndTheDisconnect) {
  hca::Profile profile;
  profile.dc_serial = 1;
  profile.wire_hop = 100'000;
  Cluster plain = client_and_targets(profile, 1, 1, 2);
  EXPECT_EQ(reads(plain, {plain.nodes[1].get(), plain.nodes[2].get()}), 2 * 200'000);
  plain.nodes.clear();
  plain.world.reset();
  profile.dc_disconnect = 300'001;
  Cluster c = client_and_targets(profile, 1, 1, 2);
  const Node *a = c.nodes[1].get(), *b = c.nodes[2].get();
  EXPECT_EQ(reads(c, {a, b}), 2 * 200'000 + 300'001);
  EXPECT_EQ(reads(c, {b, b}), 200'000);
  // Of a former target the disconnect may have ended before the next request.
  EXPECT_EQ(reads(c, {a}), 300'001 + 200'000);
}

TEST(DcEffects, AnIdleConnectionCloses) {
  constexpr Picoseconds kConnect = 1'000'001, kIdle = 10 * kMicrosecond;
  hca::Profile profile;
  profile.dc_serial = 1;
  profile.dc_connect = kConnect;
  profile.dc_disconnect = kMicrosecond;
  profile.dc_idle = kIdle;
  Cluster c = client_and_targets(profile, 1, 1, 1);
  const Node* a = c.nodes[1].get();
  EXPECT_EQ(reads(c, {a, a}), kConnect);
  c.world->charge(kIdle - 1);
  EXPECT_EQ(reads(c, {a}), 0);
  c.world->charge(kIdle);
  EXPECT_EQ(reads(c, {a}), kConnect);  // it has nobody to disconnect from
  EXPECT_EQ(c.world->statistics().dc_connects, 2u);
}

// An adapter with contexts for so many initiators, each of which has a read under way.
struct Contention {
  std::vector<Picoseconds> done;
  std::uint64_t nacks = 0;
};
Contention contend(const hca::Profile& profile, std::size_t initiators) {
  Cluster c = client_and_targets(profile, 1, initiators, 1);
  Node& client = *c.nodes[0];
  c.world->enter(client.process);
  for (std::size_t i = 0; i < initiators; ++i) client.read(i, *c.nodes[1]);
  Contention result;
  for (const Done& done : client.wait(initiators)) {
    EXPECT_EQ(done.entry.status, IBV_WC_SUCCESS);
    result.done.push_back(done.at);
  }
  result.nacks = c.world->statistics().dc_nacks;
  return result;
}

TEST(DcEffects, AResponderWithoutAContextRefusesAndTheBackOffDoubles) {
  hca::Profile profile;
  profile.wire_hop = 1'000'000;
  profile.dc_nack_wait = 100'001;
  Contention two = contend(profile, 2);
  EXPECT_EQ(two.done, (std::vector<Picoseconds>{2'000'000, 2'000'000}));
  EXPECT_EQ(two.nacks, 0u);
  profile.dc_responder_contexts = 2;
  EXPECT_EQ(contend(profile, 2).nacks, 0u);
  // The context is in use until the answer is back, at 2 us. The other comes at 1 us and is told
  // so; each further try takes the way there and back.
  profile.dc_responder_contexts = 1;
  two = contend(profile, 2);
  EXPECT_EQ(two.nacks, 1u);
  EXPECT_EQ(two.done, (std::vector<Picoseconds>{2'000'000, 4'000'000 + 100'001}));
  // With an answer that takes long the second and third tries fail as well.
  profile.pcie_read = 8'000'000;
  two = contend(profile, 2);
  const Picoseconds waits = 100'001 * (1 + 2 + 4 + 8);
  EXPECT_EQ(two.nacks, 4u);
  EXPECT_EQ(two.done, (std::vector<Picoseconds>{10'000'000, 18'000'000 + waits}));
  profile.dc_nack_wait_most = 150'000;
  two = contend(profile, 2);
  EXPECT_EQ(two.nacks, 5u);
  EXPECT_EQ(two.done, (std::vector<Picoseconds>{10'000'000, 20'000'000 + 100'001 + 4 * 150'000}));
}

TEST(DcEffects, ARefusalWithoutNeedIsAFault) {
  hca::Profile profile;
  profile.fault_nack = 1'000'000;
  profile.dc_nack_wait = 1'000;
  Cluster c = client_and_targets(profile, 1, 1, 1);
  c.world->enter(c.nodes[0]->process);
  c.nodes[0]->read(0, *c.nodes[1]);
  while (c.world->statistics().dc_nacks < 5 && c.world->run_one()) {
  }
  EXPECT_EQ(c.world->now(), (1 + 2 + 4 + 8) * 1'000);
  EXPECT_EQ(c.world->statistics().faults, 5u);
}

// Contexts of initiators that ended with reads under way serve others again.
TEST(DcEffects, ADeadInitiatorLeavesItsContext) {
  hca::Profile profile;
  profile.wire_hop = 1'000'000;
  profile.dc_responder_contexts = 1;
  profile.dc_nack_wait = 100'000;
  for (const std::int64_t serial : {0, 1}) {
    profile.dc_serial = serial;
    Cluster c = client_and_targets(profile, 2, 1, 1);
    Node &dead = *c.nodes[0], &other = *c.nodes[1];
    c.world->enter(dead.process);
    dead.read(0, *c.nodes[2]);
    while (c.world->now() < 1'000'000 && c.world->run_one()) {
    }
    c.world->kill(dead.process);
    c.world->enter(other.process);
    other.read(0, *c.nodes[2]);
    const auto done = other.wait(1);
    ASSERT_EQ(done.size(), 1u) << serial;
    EXPECT_EQ(c.world->statistics().dc_nacks, 0u);
  }
}

// So many connections of two processes, each in turn with one write: the time of the last turn.
// Adapters of both sides hold the same number of contexts.
struct Turns {
  Picoseconds each = 0;
  std::uint64_t first_misses = 0, second_misses = 0;
};
Turns in_turn(const hca::Profile& profile, std::size_t connections) {
  Pair pair(profile);
  std::vector<ibv_qp*> queues{pair.to_b};
  while (queues.size() < connections) queues.push_back(pair.connection().first);
  Turns turns;
  for (int round = 0; round < 3; ++round) {
    const auto& statistics = pair.world.statistics();
    const std::uint64_t first = statistics.first_misses, second = statistics.second_misses;
    pair.world.enter(pair.a.process);
    const Picoseconds begin = pair.world.process_time();
    for (ibv_qp* queue : queues) {
      EXPECT_EQ(pair.a.post(queue, pair.b, {}), 0);
      EXPECT_EQ(pair.a.wait(1).size(), 1u);
    }
    turns.each = (pair.world.process_time() - begin) / static_cast<Picoseconds>(connections);
    turns.first_misses = (statistics.first_misses - first) / connections;
    turns.second_misses = (statistics.second_misses - second) / connections;
  }
  return turns;
}

TEST(CacheEffects, FirstLevelAtSenderAndReceiver) {
  hca::Profile profile;
  profile.cache_first_miss = 12'001;
  profile.cache_first_miss_receive = 7'001;
  EXPECT_EQ(in_turn(profile, 8).each, 0);
  profile.cache_first_entries = 4;
  EXPECT_EQ(in_turn(profile, 4).each, 0);
  // Least recently used out: one more than there is room for, and each is missed.
  const Turns missed = in_turn(profile, 5);
  EXPECT_EQ(missed.each, 12'001 + 7'001);
  EXPECT_EQ(missed.first_misses, 2u);
  EXPECT_EQ(missed.second_misses, 0u);
}

TEST(CacheEffects, SecondLevelAtSenderAndReceiver) {
  hca::Profile profile;
  profile.cache_first_entries = 2;
  profile.cache_second_entries = 4;
  profile.cache_second_miss = 500'001;
  EXPECT_EQ(in_turn(profile, 2).each, 0);
  EXPECT_EQ(in_turn(profile, 6).each, 0);
  const Turns missed = in_turn(profile, 7);
  EXPECT_EQ(missed.each, 2 * 500'001);
  EXPECT_EQ(missed.second_misses, 2u);
  // What memory has is in neither level.
  profile.cache_first_miss = 12'001;
  profile.cache_first_miss_receive = 7'001;
  EXPECT_EQ(in_turn(profile, 2).each, 0);
  EXPECT_EQ(in_turn(profile, 6).each, 12'001 + 7'001);
  EXPECT_EQ(in_turn(profile, 7).each, 2 * 500'001 + 12'001 + 7'001);
}

// Many processes on one side, so that only one adapter has more contexts than room.
TEST(CacheEffects, OneSideAlone) {
  hca::Profile profile;
  profile.cache_first_entries = 1;
  profile.cache_first_miss = 12'001;
  profile.cache_first_miss_receive = 7'001;
  for (const bool sender : {true, false}) {
    Cluster c;
    c.world = make_world(profile, 3);
    // Three queue pairs on node 0, of one process; peers on two nodes of their own.
    c.nodes.push_back(std::make_unique<Node>(*c.world, 0, 0, 0));
    Node& middle = *c.nodes[0];
    ibv_qp *ours[2], *theirs[2];
    for (std::uint32_t i = 0; i < 2; ++i) {
      c.nodes.push_back(std::make_unique<Node>(*c.world, 1 + i, 0, 0));
      ours[i] = middle.make_qp(IBV_QPT_RC);
      theirs[i] = c.nodes[1 + i]->make_qp(IBV_QPT_RC);
      middle.connect(ours[i], theirs[i]->qp_num);
      c.nodes[1 + i]->connect(theirs[i], ours[i]->qp_num);
    }
    Picoseconds last = 0;
    for (int round = 0; round < 3; ++round) {
      for (std::uint32_t i = 0; i < 2; ++i) {
        Node& from = sender ? middle : *c.nodes[1 + i];
        Node& to = sender ? *c.nodes[1 + i] : middle;
        c.world->enter(from.process);
        const Picoseconds begin = c.world->process_time();
        EXPECT_EQ(from.post(sender ? ours[i] : theirs[i], to, {}), 0);
        const auto done = from.wait(1);
        ASSERT_EQ(done.size(), 1u);
        last = done[0].at - begin;
      }
    }
    EXPECT_EQ(last, sender ? 12'001 : 7'001) << sender;
  }
}

// Requests that are under way at one time on queue pairs whose contexts are in memory: so many are
// fetched at one time.
Picoseconds burst(const hca::Profile& profile, std::size_t connections) {
  Pair pair(profile);
  std::vector<ibv_qp*> queues{pair.to_b};
  while (queues.size() < connections) queues.push_back(pair.connection().first);
  pair.world.enter(pair.a.process);
  const Picoseconds begin = pair.world.process_time();
  for (ibv_qp* queue : queues) EXPECT_EQ(pair.a.post(queue, pair.b, {}), 0);
  const auto done = pair.a.wait(connections);
  EXPECT_EQ(done.size(), connections);
  return pair.world.process_time() - begin;
}

TEST(CacheEffects, FetchesInParallel) {
  hca::Profile profile;
  profile.cache_first_entries = 1;
  profile.cache_second_entries = 1;
  profile.cache_second_miss = 500'000;
  // One after the other; the receiver's fetch of the last begins when the sender's has ended.
  EXPECT_EQ(burst(profile, 8), 9 * 500'000);
  profile.cache_fetches = 4;
  EXPECT_EQ(burst(profile, 8), 3 * 500'000);
  profile.cache_fetches = 16;
  EXPECT_EQ(burst(profile, 8), 2 * 500'000);
}

// A DC responder keeps a context for every initiator it is connected to, or needs its own only.
TEST(CacheEffects, InitiatorsTakeContextsAtTheirTarget) {
  hca::Profile profile;
  profile.cache_first_entries = 4;
  profile.cache_first_miss = 12'001;
  profile.cache_first_miss_receive = 7'001;
  for (const auto& [initiators, by_initiator, expected] :
       std::vector<std::tuple<std::size_t, bool, Picoseconds>>{
           {4, true, 0}, {5, true, 12'001 + 7'001}, {4, false, 0}, {5, false, 12'001}}) {
    profile.cache_by_initiator = by_initiator ? 1 : 0;
    Cluster c = client_and_targets(profile, 1, initiators, 1);
    Node& client = *c.nodes[0];
    Picoseconds last = 0;
    for (int round = 0; round < 3; ++round) {
      for (std::size_t i = 0; i < initiators; ++i) {
        c.world->enter(client.process);
        const Picoseconds begin = c.world->process_time();
        client.read(i, *c.nodes[1]);
        const auto done = client.wait(1);
        ASSERT_EQ(done.size(), 1u);
        last = done[0].at - begin;
      }
    }
    EXPECT_EQ(last, expected) << initiators << " " << by_initiator;
  }
}

}  // namespace
}  // namespace turnout::sim
