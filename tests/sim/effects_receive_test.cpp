// SPDX-License-Identifier: BSD-3-Clause
// Receivers on the virtual engine, each effect alone: shared receive queues and their limit event,
// receivers that are not ready, datagrams, atomics, the order of one queue pair's requests.
#include <gtest/gtest.h>

#include "tests/sim/adapter_rig.h"

namespace turnout::sim {
namespace {

constexpr Picoseconds kHop = 1'000'000;

Work send_of(std::uint32_t length = 8) {
  Work work;
  work.opcode = IBV_WR_SEND;
  work.length = length;
  return work;
}

// Verbs that the core does not call are taken from the library itself; nothing is linked with them.
template <class Verb>
Verb verb(const char* name) {
  auto* const found = reinterpret_cast<Verb>(verbs::symbol(name));
  EXPECT_NE(found, nullptr) << name;
  return found;
}
#define VERB(name) verb<decltype(&::name)>(#name)

Picoseconds received_at(const hca::Profile& profile, const QpOptions& options) {
  Pair pair(profile, options);
  pair.world.enter(pair.b.process);
  if (options.shared_receive) {
    pair.b.receive_shared(1);
  } else {
    pair.b.receive(pair.to_a);
  }
  pair.world.enter(pair.a.process);
  EXPECT_EQ(pair.a.post(pair.to_b, pair.b, send_of()), 0);
  const auto done = pair.b.wait(1);
  return done.size() == 1 ? done[0].at : -1;
}

TEST(ReceiveEffects, ASharedQueueCostsTheTaking) {
  hca::Profile profile;
  QpOptions own, shared;
  shared.shared_receive = true;
  EXPECT_EQ(received_at(profile, shared), 0);
  profile.adapter_shared_receive = 90'001;
  EXPECT_EQ(received_at(profile, own), 0);
  EXPECT_EQ(received_at(profile, shared), 90'001);
}

// A receiver with three shared receives, and an event when fewer than `limit` are left.
struct LimitedPair : Pair {
  LimitedPair(Picoseconds interrupt, std::uint32_t limit) : Pair(with(interrupt), shared()) {
    world.enter(b.process);
    b.receive_shared(3);
    ibv_srq_attr attr{};
    attr.srq_limit = limit;
    EXPECT_EQ(VERB(ibv_modify_srq)(b.srq.get(), &attr, IBV_SRQ_LIMIT), 0);
  }
  static hca::Profile with(Picoseconds interrupt) {
    hca::Profile profile;
    profile.processor_interrupt = interrupt;
    return profile;
  }
  static QpOptions shared() {
    QpOptions options;
    options.shared_receive = true;
    return options;
  }
};

TEST(ReceiveEffects, LimitEventAfterTheInterrupt) {
  LimitedPair pair(20'000'001, 2);
  ibv_async_event event{};
  const auto next_event = [&] {
    return VERB(ibv_get_async_event)(pair.b.device->context(), &event) == 0;
  };
  pair.world.enter(pair.a.process);
  EXPECT_EQ(pair.a.post(pair.to_b, pair.b, send_of()), 0);
  EXPECT_EQ(pair.b.wait(1).size(), 1u);
  play(pair.world);
  EXPECT_FALSE(next_event());  // two are left
  pair.world.enter(pair.a.process);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(pair.a.post(pair.to_b, pair.b, send_of()), 0);
  EXPECT_EQ(pair.b.wait(2).size(), 2u);
  EXPECT_EQ(pair.world.now(), 0);
  pair.b.woken = false;
  while (!pair.b.woken && pair.world.run_one()) {
  }
  EXPECT_EQ(pair.world.now(), 20'000'001);
  ASSERT_TRUE(next_event());
  EXPECT_EQ(event.event_type, IBV_EVENT_SRQ_LIMIT_REACHED);
  EXPECT_EQ(event.element.srq, pair.b.srq.get());
  VERB(ibv_ack_async_event)(&event);
  EXPECT_FALSE(next_event());  // once, until it is armed anew
}

TEST(ReceiveEffects, ALimitAboveWhatIsPostedIsReachedAtOnce) {
  LimitedPair pair(5'000, 4);
  ibv_async_event event{};
  EXPECT_NE(VERB(ibv_get_async_event)(pair.b.device->context(), &event), 0);  // the interrupt
  play(pair.world);
  ASSERT_EQ(VERB(ibv_get_async_event)(pair.b.device->context(), &event), 0);
  EXPECT_EQ(event.event_type, IBV_EVENT_SRQ_LIMIT_REACHED);
  VERB(ibv_ack_async_event)(&event);
  ibv_srq_attr attr{};
  ASSERT_EQ(VERB(ibv_query_srq)(pair.b.srq.get(), &attr), 0);
  EXPECT_EQ(attr.srq_limit, 0u);
}

TEST(ReceiveEffects, AnEventOfACompletionChannelTakesTheInterrupt) {
  hca::Profile profile;
  profile.processor_interrupt = 20'000'001;
  Pair pair(profile);
  ibv_comp_channel* const channel = VERB(ibv_create_comp_channel)(pair.a.device->context());
  ASSERT_NE(channel, nullptr);
  verbs::Cq cq(ibv_create_cq(pair.a.device->context(), 16, nullptr, channel, 0));
  pair.a.cq.swap(cq);
  const auto [queue, unused] = pair.connection();
  ASSERT_EQ(ibv_req_notify_cq(pair.a.cq.get(), 0), 0);
  pair.world.enter(pair.a.process);
  EXPECT_EQ(pair.a.post(queue, pair.b, {}), 0);
  EXPECT_EQ(pair.a.wait(1).size(), 1u);
  EXPECT_EQ(pair.world.now(), 0);
  play(pair.world);
  EXPECT_EQ(pair.world.now(), 20'000'001);
  ibv_cq* told = nullptr;
  void* context = nullptr;
  EXPECT_EQ(VERB(ibv_get_cq_event)(channel, &told, &context), 0);
  EXPECT_EQ(told, pair.a.cq.get());
  VERB(ibv_ack_cq_events)(told, 1);
  pair.a.qps.pop_back();
  pair.a.cq.swap(cq);
  cq.reset();
  EXPECT_EQ(VERB(ibv_destroy_comp_channel)(channel), 0);
}

// The receive is posted while the sender waits: the message comes with the next try.
TEST(ReceiveEffects, NotReadyWaitsAsTheReceiversTimerSays) {
  hca::Profile profile;
  profile.wire_hop = kHop;
  const std::pair<std::uint8_t, Picoseconds> timers[] = {
      {1, 10 * kMicrosecond}, {5, 60 * kMicrosecond}, {0, 655'360 * kMicrosecond}};
  for (const auto& [code, wait] : timers) {
    QpOptions options;
    options.min_rnr_timer = code;
    Pair pair(profile, options);
    EXPECT_EQ(pair.a.post(pair.to_b, pair.b, send_of()), 0);
    while (pair.world.statistics().rnr_waits < 2 && pair.world.run_one()) {
    }
    // Refused at 1 us, told, waited, came again.
    EXPECT_EQ(pair.world.now(), kHop + 2 * kHop + wait) << int{code};
    pair.world.enter(pair.b.process);
    pair.b.receive(pair.to_a);
    const auto done = pair.b.wait(1);
    ASSERT_EQ(done.size(), 1u);
    EXPECT_EQ(done[0].at, kHop + 2 * (2 * kHop + wait)) << int{code};
    EXPECT_EQ(done[0].entry.status, IBV_WC_SUCCESS);
  }
}

TEST(ReceiveEffects, NotReadyTooOftenIsAnErrorAndFlushesWhatFollows) {
  hca::Profile profile;
  profile.wire_hop = kHop;
  QpOptions options;
  options.rnr_retry = 2;
  Pair pair(profile, options);
  EXPECT_EQ(pair.a.post(pair.to_b, pair.b, send_of()), 0);
  Work write;
  write.signalled = false;
  pair.a.word(0) = 7;
  EXPECT_EQ(pair.a.post(pair.to_b, pair.b, write), 0);
  const auto done = pair.a.wait(2);
  ASSERT_EQ(done.size(), 2u);
  EXPECT_EQ(done[0].entry.status, IBV_WC_RNR_RETRY_EXC_ERR);
  EXPECT_EQ(done[0].at, 2 * (2 * kHop + 10 * kMicrosecond) + 2 * kHop);
  EXPECT_EQ(done[1].entry.status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(pair.world.statistics().rnr_waits, 3u);
  EXPECT_EQ(pair.b.word(0), 0u);
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  EXPECT_EQ(ibv_query_qp(pair.to_b, &attr, IBV_QP_STATE, &init), 0);
  EXPECT_EQ(attr.qp_state, IBV_QPS_ERR);
}

// What arrives at the very time of the second try must not overtake what waited behind the first.
TEST(ReceiveEffects, NotReadyKeepsTheOrder) {
  hca::Profile profile;
  profile.wire_hop = kHop;
  Pair pair(profile);
  const auto post = [&](std::uint64_t value) {
    pair.world.enter(pair.a.process);
    pair.a.word(8 * value) = value;
    Work work = send_of();
    work.from = 8 * value;
    work.inlined = true;
    EXPECT_EQ(pair.a.post(pair.to_b, pair.b, work), 0);
  };
  for (std::uint64_t i = 1; i <= 3; ++i) post(i);
  const Picoseconds again = kHop + 2 * kHop + 10 * kMicrosecond;
  struct Later {
    decltype(post)* call;
  } later{&post};
  pair.world.at(
      again - kHop,
      [](void* self, std::uint64_t value) { (*static_cast<Later*>(self)->call)(value); }, &later,
      4);
  while (pair.world.now() < again - kHop && pair.world.run_one()) {
  }
  pair.world.enter(pair.b.process);
  for (std::uint64_t i = 0; i < 4; ++i) pair.b.receive(pair.to_a, 64, 8192 + 8 * i);
  const auto done = pair.b.wait(4);
  ASSERT_EQ(done.size(), 4u);
  EXPECT_EQ(done[3].at, again);
  for (std::uint64_t i = 0; i < 4; ++i) EXPECT_EQ(pair.b.word(8192 + 8 * i), i + 1);
}

// Datagrams sent by one process to another: what the receiver was told of.
std::vector<Done> datagrams(const hca::Profile& profile, int sent, int receives) {
  Pair pair(profile);
  Work work = send_of();
  work.datagram = pair.b.make_qp(IBV_QPT_UD);
  ibv_qp* const from = pair.a.make_qp(IBV_QPT_UD);
  pair.world.enter(pair.b.process);
  for (int i = 0; i < receives; ++i) pair.b.receive(work.datagram);
  pair.world.enter(pair.a.process);
  for (int i = 0; i < sent; ++i) EXPECT_EQ(pair.a.post(from, pair.b, work), 0);
  const auto own = pair.a.wait(static_cast<std::size_t>(sent));
  EXPECT_EQ(own.size(), static_cast<std::size_t>(sent));
  // The sender is done when they have left, whatever becomes of them.
  for (const Done& done : own) {
    EXPECT_EQ(done.entry.status, IBV_WC_SUCCESS);
    EXPECT_EQ(done.at, 0);
  }
  return pair.b.wait(100);
}

TEST(ReceiveEffects, DatagramsAreLostAndComeTwice) {
  hca::Profile profile;
  profile.wire_hop = kHop;
  auto done = datagrams(profile, 3, 8);
  ASSERT_EQ(done.size(), 3u);
  for (const Done& one : done) {
    EXPECT_EQ(one.at, kHop);
    EXPECT_EQ(one.entry.byte_len, 40u + 8u);  // behind the global routing header
  }
  EXPECT_EQ(datagrams(profile, 3, 2).size(), 2u);  // without a receive: dropped
  profile.fault_loss = 1'000'000;
  EXPECT_TRUE(datagrams(profile, 3, 8).empty());
  profile.fault_loss = 0;
  profile.fault_duplicate = 1'000'000;
  EXPECT_EQ(datagrams(profile, 3, 8).size(), 6u);
}

TEST(ReceiveEffects, AtomicsAnswerWithWhatWasThere) {
  hca::Profile profile;
  profile.wire_hop = kHop;
  profile.pcie_read = 350'001;
  Pair pair(profile);
  pair.b.word(64) = 41;
  Work work;
  work.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
  work.to = 64;
  work.compare_add = 2;
  EXPECT_EQ(pair.timed(work), 2 * kHop + 350'001);
  EXPECT_EQ(pair.a.word(0), 41u);
  EXPECT_EQ(pair.b.word(64), 43u);
  work.opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
  work.compare_add = 42;
  work.swap = 7;
  (void)pair.timed(work);
  EXPECT_EQ(pair.a.word(0), 43u);
  EXPECT_EQ(pair.b.word(64), 43u);
  work.compare_add = 43;
  (void)pair.timed(work);
  EXPECT_EQ(pair.b.word(64), 7u);
}

// A read takes longer than the write behind it: completions keep the order of the posts, and the
// read sees what was there before the write.
TEST(ReceiveEffects, RequestsOfOneQueuePairTakeEffectAndCompleteInOrder) {
  hca::Profile profile;
  profile.wire_hop = kHop;
  profile.pcie_read = 5'000'000;
  Pair pair(profile);
  pair.b.word(0) = 1;
  pair.a.word(8) = 2;
  Work read;
  read.opcode = IBV_WR_RDMA_READ;
  Work write;
  write.from = 8;
  write.inlined = true;
  EXPECT_EQ(pair.a.post(pair.to_b, pair.b, read), 0);
  EXPECT_EQ(pair.a.post(pair.to_b, pair.b, write), 0);
  EXPECT_EQ(pair.a.post(pair.to_b, pair.b, read), 0);
  auto done = pair.a.wait(1);
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(done[0].entry.opcode, IBV_WC_RDMA_READ);
  EXPECT_EQ(done[0].at, 2 * kHop + 5'000'000);
  done = pair.a.wait(2);
  ASSERT_EQ(done.size(), 2u);
  EXPECT_EQ(done[0].entry.opcode, IBV_WC_RDMA_WRITE);
  EXPECT_EQ(done[1].entry.opcode, IBV_WC_RDMA_READ);
  EXPECT_EQ(pair.a.word(0), 2u);
  EXPECT_EQ(pair.b.word(0), 2u);
}

}  // namespace
}  // namespace turnout::sim
