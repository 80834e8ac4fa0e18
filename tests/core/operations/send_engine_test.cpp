// SPDX-License-Identifier: BSD-3-Clause
#include "core/operations/send_engine.h"

#include <gtest/gtest.h>

#include <array>

#include "tests/support/operations_world.h"
#include "tests/support/requests.h"

namespace turnout {
namespace {

struct SendWorld : OperationsWorld {
  [[nodiscard]] Status send(Peer& peer, std::uint64_t tag, std::span<std::byte> bytes,
                            bool inject = false) {
    const iovec part{bytes.data(), bytes.size()};
    SendRequest request = tagged_send(peer.id, part, tag, report(&peer));
    request.inject = inject;
    return send_engine.send_now(request);
  }
  // Tags of the messages that were posted.
  [[nodiscard]] std::vector<std::uint64_t> sent() const {
    std::vector<std::uint64_t> tags;
    for (const SendRecord& record : data.posted) tags.push_back(header_in(record).tag);
    return tags;
  }
  std::array<std::byte, 8> small{};
  std::array<std::byte, 2 * kEager> large{};
};

TEST(SendEngine, CompletesASmallMessageThatWasPosted) {
  SendWorld world;
  Peer& peer = world.add_known_peer(1);
  EXPECT_TRUE(world.send(peer, 1, world.small).ok());
  EXPECT_EQ(world.next_completion().length, 8u);
  EXPECT_EQ(world.records.sends.in_use(), 0u);
  EXPECT_TRUE(world.send(peer, 2, world.small).ok());  // no credit is left
  EXPECT_EQ(world.completions.size(), 0u);
  EXPECT_EQ(world.records.sends.in_use(), 1u);
}

TEST(SendEngine, SendsInOrderWhenCreditsComeLate) {
  SendWorld world;
  Peer& peer = world.add_known_peer(0);
  EXPECT_TRUE(world.send(peer, 1, world.small).ok());
  EXPECT_TRUE(world.send(peer, 2, world.small).ok());
  peer.tx.credits = 2;
  EXPECT_TRUE(world.send(peer, 3, world.small).ok());  // does not overtake
  EXPECT_TRUE(world.sent().empty());
  EXPECT_TRUE(world.send_engine.pump_backlogs());
  EXPECT_EQ(world.sent(), (std::vector<std::uint64_t>{1, 2}));
  EXPECT_FALSE(world.send_engine.pump_backlogs());
  peer.tx.credits = 1;
  EXPECT_TRUE(world.send_engine.pump_backlogs());
  EXPECT_EQ(world.sent(), (std::vector<std::uint64_t>{1, 2, 3}));
  EXPECT_TRUE(world.backlog.backlogged().empty());
}

struct LargeRingWorld : SendWorld {
  static constexpr std::uint32_t kEntry = 16 << 10, kEntries = 4;
  LargeRingWorld() { context.format.large_ring_entry = kEntry; }
  RingSender& ring() { return peer.state.ref().tx.ring; }
  [[nodiscard]] std::size_t polls() const { return above.count("poll_receive_queue"); }
  Peer& peer = with_ring();

 private:
  Peer& with_ring() {
    Peer& made = add_known_peer();
    made.send_on(ChannelKind::dc_rdma, 0);
    made.state.make().tx.ring = {0x10000, 77, kEntries, kEntry, 0, 1, {}, false};
    return made;
  }
};

TEST(SendEngine, LooksForCreditsOfALargeRingBeforeAMessageWaits) {
  LargeRingWorld world;
  world.above.arrives = [&] { world.ring().credits = 1; };
  EXPECT_TRUE(world.send(world.peer, 1, world.small).ok());
  EXPECT_EQ(world.polls(), 1u);
  EXPECT_EQ(world.data.posted.size(), 1u);
  world.ring().credits = 1;
  EXPECT_TRUE(world.send(world.peer, 2, world.small).ok());
  EXPECT_EQ(world.polls(), 1u);
  EXPECT_EQ(world.data.posted.size(), 2u);

  world.context.format.large_ring_entry = 0;
  EXPECT_TRUE(world.send(world.peer, 3, world.small).ok());  // waits
  EXPECT_EQ(world.polls(), 1u);
  EXPECT_EQ(world.data.posted.size(), 2u);
}

TEST(SendEngine, SendsWhatWaitsBeforeAMessageForWhichCreditsArrive) {
  LargeRingWorld world;
  world.above.answer = false;
  EXPECT_TRUE(world.send(world.peer, 1, world.small).ok());  // waits
  EXPECT_EQ(world.data.posted.size(), 0u);
  world.above.answer = true;
  world.above.arrives = [&] { world.ring().credits = 2; };
  EXPECT_TRUE(world.send(world.peer, 2, world.small).ok());
  EXPECT_EQ(world.data.posted.size(), 2u);
  EXPECT_TRUE(world.peer.state->tx.backlog.empty());
}

TEST(SendEngine, SendsNothingToAPeerThatIsLostWhileItLooks) {
  LargeRingWorld world;
  world.above.arrives = [&] {
    world.ring().credits = 1;
    world.peer.lost = true;
    world.peer.state.make().loss = {Code::peer_lost, "gone"};
  };
  EXPECT_EQ(world.send(world.peer, 1, world.small).code(), Code::peer_lost);
  EXPECT_EQ(world.data.posted.size(), 0u);
}

TEST(SendEngine, LooksForNoCreditsDuringProgress) {
  LargeRingWorld world;
  world.context.in_progress = true;
  EXPECT_TRUE(world.send(world.peer, 1, world.small).ok());
  EXPECT_EQ(world.polls(), 0u);
}

// On an adapter that carries out requests in the call that posts them.
TEST(SendEngine, TakesBuffersBackBeforeItNeedsOne) {
  LargeRingWorld world;
  const auto polls = [&] { return world.above.count("poll_send_queue"); };
  world.ring().credits = 3;
  std::uint32_t& signalled = world.resources.unsignalled_data.signalled;
  signalled = 1;
  EXPECT_TRUE(world.send(world.peer, 1, world.small).ok());
  EXPECT_EQ(polls(), 0u);  // another adapter
  world.context.format.measures_limit = true;
  signalled = 0;
  EXPECT_TRUE(world.send(world.peer, 2, world.small).ok());
  EXPECT_EQ(polls(), 0u);  // none is to come
  signalled = 1;
  world.context.in_progress = true;
  EXPECT_TRUE(world.send(world.peer, 3, world.small).ok());
  EXPECT_EQ(polls(), 0u);
  world.context.in_progress = false;
  world.ring().credits = 1;
  EXPECT_TRUE(world.send(world.peer, 4, world.small).ok());
  EXPECT_EQ(polls(), 1u);
  EXPECT_EQ(world.data.posted.size(), 4u);
}

// On every other adapter.
TEST(SendEngine, TakesBuffersBackWhenThereIsNone) {
  SendWorld world;
  Peer& peer = world.add_known_peer(2);
  BufferPool& pool = world.resources.send_pool;
  std::vector<std::uint32_t> taken;
  while (pool.available() > 0) taken.push_back(pool.take());
  const auto polls = [&] { return world.above.count("poll_send_queue"); };
  std::uint32_t& signalled = world.resources.unsignalled_data.signalled;
  signalled = 0;
  EXPECT_TRUE(world.send(peer, 1, world.small).ok());  // waits: none is to come
  EXPECT_EQ(polls(), 0u);
  EXPECT_FALSE(world.send_engine.pump_backlogs());
  pool.give_back(taken.back());
  EXPECT_TRUE(world.send_engine.pump_backlogs());
  EXPECT_EQ(world.sent(), std::vector<std::uint64_t>{1});

  signalled = 1;
  world.above.arrives = [&] { pool.give_back(taken.front()); };
  EXPECT_TRUE(world.send(peer, 2, world.small).ok());
  EXPECT_EQ(polls(), 1u);
  EXPECT_EQ(world.sent(), (std::vector<std::uint64_t>{1, 2}));
}

TEST(SendEngine, SendsNothingToAPeerThatIsLostWhileItTakesBuffersBack) {
  LargeRingWorld world;
  world.context.format.measures_limit = true;
  world.resources.unsignalled_data.signalled = 1;
  world.ring().credits = 1;
  world.above.arrives = [&] {
    world.peer.lost = true;
    world.peer.state.make().loss = {Code::peer_lost, "gone"};
  };
  EXPECT_EQ(world.send(world.peer, 1, world.small).code(), Code::peer_lost);
  EXPECT_EQ(world.data.posted.size(), 0u);
}

TEST(SendEngine, KeepsNoMoreCopiesThanALargeRingHasEntries) {
  LargeRingWorld world;
  world.above.answer = false;
  for (std::uint32_t i = 0; i < LargeRingWorld::kEntries; ++i) {
    EXPECT_TRUE(world.send(world.peer, i, world.small, true).ok());
  }
  EXPECT_EQ(world.send(world.peer, 9, world.small, true).code(), Code::again);
  EXPECT_TRUE(world.send(world.peer, 10, world.small).ok());  // no copy
  world.ring().credits = 2;
  EXPECT_TRUE(world.send(world.peer, 9, world.small, true).ok());
  EXPECT_EQ(world.data.posted.size(), 2u);
}

// On an adapter that carries out requests in the call that posts them.
struct MeasuringWorld : LargeRingWorld {
  MeasuringWorld() {
    context.format.measures_limit = true;
    context.format.rendezvous_threshold = EagerLimit::kLeast;
    clock.between_calls = 1000;  // of an eager message
    ring().count_large(kEntries);
  }
  // Operations that wait for a FIN.
  [[nodiscard]] std::vector<std::uint64_t> waiting() {
    std::vector<std::uint64_t> ids;
    for (const SendOperation* operation : backlog.awaiting_fin()) {
      if (operation != nullptr) ids.push_back(operation->id);
    }
    return ids;
  }
  std::vector<std::byte> bytes = std::vector<std::byte>(12 << 10);
};

// What a rendezvous takes ends when the receiver had the message, by what its FIN says of that.
TEST(SendEngine, MeasuresWhatBothKindsOfALongMessageTake) {
  MeasuringWorld world;
  for (std::uint32_t i = 0; i < 2 * EagerLimit::kFirst + 8; ++i) {
    world.complete(world.data);
    world.ring().credits = LargeRingWorld::kEntries;
    EXPECT_TRUE(world.send(world.peer, i, world.bytes).ok());
    if (world.peer.tx.awaiting_fin == 0) {
      EXPECT_LT(i, 2 * EagerLimit::kFirst) << "an eager message took longer";
      continue;
    }
    Fin fin;
    fin.operation = world.waiting().back();
    fin.read = static_cast<std::uint64_t>(world.clock.time + 10);
    world.clock.time += 1'000'000;
    world.send_engine.on_fin(world.peer, fin);
  }
  EXPECT_EQ(world.send_engine.measured_limit(), EagerLimit::kLeast);
}

TEST(SendEngine, MeasuresNoMessageThatFindsANewEntry) {
  MeasuringWorld world;
  world.ring().entries = 16;  // a message takes four
  world.ring().large_sent = 0;
  const auto eager_of = [&](std::uint32_t messages, Nanoseconds eager, Nanoseconds rendezvous) {
    std::uint32_t n = 0;
    for (std::uint32_t i = 0; i < messages; ++i) {
      world.complete(world.data);
      world.ring().credits = world.ring().entries;
      world.clock.between_calls = eager;
      EXPECT_TRUE(world.send(world.peer, i, world.bytes).ok());
      if (world.peer.tx.awaiting_fin == 0) {
        ++n;
        continue;
      }
      Fin fin;
      fin.operation = world.waiting().back();
      fin.read = static_cast<std::uint64_t>(world.clock.time + rendezvous);
      world.clock.time += 1'000'000;
      world.send_engine.on_fin(world.peer, fin);
    }
    return n;
  };
  EXPECT_EQ(eager_of(2 * EagerLimit::kFirst, 100'000, 10'000), EagerLimit::kFirst);
  EXPECT_TRUE(world.ring().touched());
  EXPECT_EQ(eager_of(50, 100, 10'000), 50u);
}

// In a stream counts what a message adds, however late the receiver begins.
TEST(SendEngine, MeasuresWhatALongMessageAddsToAStream) {
  MeasuringWorld world;
  world.ring().entries = 16;
  world.ring().count_large(16);
  constexpr std::uint32_t kTried = 2 * EagerLimit::kRun;
  std::uint32_t eager = 0;
  for (std::uint32_t i = 0; i < kTried + 20; ++i) {
    world.complete(world.data);
    world.ring().credits = 8;  // of 16: others are under way
    EXPECT_TRUE(world.send(world.peer, i, world.bytes).ok());
    if (i >= kTried && world.peer.tx.awaiting_fin == 0) ++eager;
    if (i + 1 != kTried && i + 1 != kTried + 20) continue;
    world.clock.time += 1'000'000;
    Nanoseconds read = world.clock.time;
    world.clock.time += 1'000'000;
    for (const std::uint64_t id : world.waiting()) {
      Fin fin;
      fin.operation = id;
      fin.read = static_cast<std::uint64_t>(read += 700);
      world.send_engine.on_fin(world.peer, fin);
    }
  }
  EXPECT_EQ(eager, 0u);
  EXPECT_EQ(world.send_engine.measured_limit(), 0u);  // of none that was alone
}

TEST(SendEngine, CompletesALargeMessageByTheFinOfItsReceiver) {
  SendWorld world;
  Peer& peer = world.add_known_peer();
  Peer& other = world.add_known_peer();
  EXPECT_TRUE(world.send(peer, 1, world.large).ok());
  ASSERT_EQ(world.data.posted.size(), 1u);
  EXPECT_EQ(MessagingWorld::header_in(world.data.posted[0]).type, wire::Type::rts);
  wire::Rts rts;
  ASSERT_TRUE(wire::parse_rts(reinterpret_cast<const std::byte*>(world.data.posted[0].local) +
                                  sizeof(wire::Header),
                              world.data.posted[0].length - sizeof(wire::Header), &rts)
                  .ok());
  EXPECT_EQ(rts.total, world.large.size());
  Fin fin;
  fin.operation = rts.operation;
  world.send_engine.on_fin(other, fin);
  EXPECT_EQ(world.completions.size(), 0u);
  world.send_engine.on_fin(peer, fin);
  EXPECT_EQ(world.next_completion().length, world.large.size());
  world.send_engine.on_fin(peer, fin);
  EXPECT_EQ(world.completions.size(), 0u);
  EXPECT_EQ(peer.tx.awaiting_fin, 0u);
}

TEST(SendEngine, EndsAnOperationOnceThoughItsFinIsSeenTwice) {
  SendWorld world;
  Peer& peer = world.add_known_peer();
  EXPECT_TRUE(world.send(peer, 1, world.large).ok());
  Fin fin{.may_repeat = true};
  for (const SendOperation* waiting : world.backlog.awaiting_fin()) {
    if (waiting != nullptr) fin.operation = waiting->id;
  }
  testing::internal::CaptureStderr();
  world.send_engine.on_fin(peer, fin);
  world.send_engine.on_fin(peer, fin);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  EXPECT_EQ(world.completions.size(), 1u);
}

TEST(SendEngine, CopiesAnInjectedMessageThatHasToWait) {
  SendWorld world;
  Peer& peer = world.add_known_peer(0);
  world.small.fill(std::byte{4});
  EXPECT_TRUE(world.send(peer, 1, world.small, true).ok());
  world.small.fill(std::byte{5});
  peer.tx.credits = 1;
  EXPECT_TRUE(world.send_engine.pump_backlogs());
  ASSERT_EQ(world.data.posted.size(), 1u);
  EXPECT_EQ(reinterpret_cast<const std::byte*>(world.data.posted[0].local)[sizeof(wire::Header)],
            std::byte{4});
  EXPECT_EQ(world.records.copies.in_use(), 0u);
}

TEST(SendEngine, RefusesMoreThanMayWait) {
  SendWorld world;
  Peer& peer = world.add_known_peer(0);
  world.records.operation_limits.waiting = 2;
  EXPECT_TRUE(world.send(peer, 1, world.small).ok());
  EXPECT_TRUE(world.send(peer, 2, world.small).ok());
  EXPECT_EQ(world.send(peer, 3, world.small).code(), Code::again);
}

TEST(SendEngine, HoldsTheStreamUntilAPutIsComplete) {
  SendWorld world;
  Peer& peer = world.add_known_peer();
  peer.state.make().tx.rtrs = std::make_unique<PeerRtrs>();
  peer.state->tx.rtrs->writing = 1;
  EXPECT_TRUE(world.send(peer, 1, world.small).ok());
  EXPECT_FALSE(world.send_engine.pump_backlogs());
  EXPECT_TRUE(world.data.posted.empty());
  peer.state->tx.rtrs->writing = 0;
  EXPECT_TRUE(world.send_engine.pump_backlogs());
  EXPECT_EQ(world.data.posted.size(), 1u);
}

}  // namespace
}  // namespace turnout
