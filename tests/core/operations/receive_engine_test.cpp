// SPDX-License-Identifier: BSD-3-Clause
#include "core/operations/receive_engine.h"

#include <gtest/gtest.h>

#include <array>

#include "tests/support/operations_world.h"
#include "tests/support/requests.h"

namespace turnout {
namespace {

struct ReceiveWorld : OperationsWorld {
  [[nodiscard]] Status receive(std::uint64_t tag, PeerId from = kAnyPeer) {
    const iovec part{memory.data(), memory.size()};
    return receive_engine.recv_now(tagged_recv(from, part, tag, report(&memory[tag])));
  }
  Peer& peer = add_known_peer();
  std::array<std::byte, 64> memory{};
};

TEST(ReceiveEngine, DeliversMessagesThatArriveOutOfOrderInOrder) {
  ReceiveWorld world;
  for (const std::uint64_t tag : {5u, 6u, 7u}) EXPECT_TRUE(world.receive(tag).ok());
  world.arrive(world.peer, OperationsWorld::eager(2, 7));
  world.arrive(world.peer, OperationsWorld::eager(1, 6));
  EXPECT_EQ(world.completions.size(), 0u);
  EXPECT_EQ(world.resources.receives_kept, 2u);
  world.arrive(world.peer, OperationsWorld::eager(0, 5));
  ASSERT_EQ(world.completions.size(), 3u);
  for (const std::uint64_t tag : {5u, 6u, 7u}) EXPECT_EQ(world.next_completion().tag, tag);
  EXPECT_EQ(world.resources.receives_kept, 0u);
  EXPECT_EQ(world.resources.to_post.size(), 3u);
  EXPECT_EQ(world.peer.rx.sequence, 3u);
}

TEST(ReceiveEngine, DeliversAMessageThatArrivesTwiceOnce) {
  ReceiveWorld world;
  EXPECT_TRUE(world.receive(5).ok());
  EXPECT_TRUE(world.receive(5).ok());
  world.arrive(world.peer, OperationsWorld::eager(0, 5));
  world.arrive(world.peer, OperationsWorld::eager(0, 5));
  EXPECT_EQ(world.completions.size(), 1u);
  EXPECT_EQ(world.resources.to_post.size(), 2u);  // both receives are free
  world.arrive(world.peer, OperationsWorld::eager(2, 5));
  world.arrive(world.peer, OperationsWorld::eager(2, 5));
  world.arrive(world.peer, OperationsWorld::eager(1, 5));
  EXPECT_EQ(world.context.delivered, 3u);
  EXPECT_TRUE(world.peer.state->rx.reorder_buffer.empty());
}

TEST(ReceiveEngine, CopiesOutOfOrderMessagesAsideWhenReceivesAreScarce) {
  ReceiveWorld world;
  world.resources.receives_kept = MessagingWorld::kReceives;
  const std::array<std::byte, 2> payload{std::byte{8}, std::byte{9}};
  ASSERT_TRUE(world.records.messages.ready());  // has its memory
  const std::uint64_t before = world.context.account.line(MemoryKind::unexpected).now;
  world.arrive(world.peer, OperationsWorld::eager(1, 6), payload);
  EXPECT_EQ(world.resources.to_post.size(), 1u);
  EXPECT_GT(world.context.account.line(MemoryKind::unexpected).now, before);
  EXPECT_TRUE(world.receive(5).ok());
  EXPECT_TRUE(world.receive(6).ok());
  world.resources.receives_kept = 0;
  world.arrive(world.peer, OperationsWorld::eager(0, 5));
  EXPECT_EQ(world.completions.size(), 2u);
  EXPECT_EQ(world.memory[1], std::byte{9});
  EXPECT_EQ(world.context.account.line(MemoryKind::unexpected).now, before);
}

TEST(ReceiveEngine, MatchesReceivesInTheOrderOfTheirPosting) {
  ReceiveWorld world;
  Peer& other = world.add_known_peer();
  EXPECT_TRUE(world.receive(5, other.id).ok());
  EXPECT_TRUE(world.receive(5).ok());
  world.arrive(world.peer, OperationsWorld::eager(0, 5));
  EXPECT_EQ(world.next_completion().source, world.peer.id);
  EXPECT_EQ(other.rx.directed_receives, 1u);
  world.arrive(other, OperationsWorld::eager(0, 5));
  EXPECT_EQ(world.next_completion().source, other.id);
  EXPECT_EQ(other.rx.directed_receives, 0u);
}

TEST(ReceiveEngine, GivesAReceiveTheEarliestUnexpectedMessage) {
  ReceiveWorld world;
  const std::array<std::byte, 1> first{std::byte{1}}, second{std::byte{2}};
  world.arrive(world.peer, OperationsWorld::eager(0, 5), first);
  world.arrive(world.peer, OperationsWorld::eager(1, 5), second);
  EXPECT_TRUE(world.receive(5).ok());
  EXPECT_EQ(world.memory[0], std::byte{1});
  EXPECT_TRUE(world.receive(5).ok());
  EXPECT_EQ(world.memory[0], std::byte{2});
  EXPECT_EQ(world.completions.size(), 2u);
}

TEST(ReceiveEngine, DropsMessagesOfUnknownAndLostPeersAndFreesTheirReceives) {
  ReceiveWorld world;
  Peer stranger;
  stranger.id = 17;
  world.arrive(stranger, OperationsWorld::eager(0, 5));
  world.peer.lost = true;
  world.arrive(world.peer, OperationsWorld::eager(0, 5));
  EXPECT_EQ(world.resources.to_post.size(), 2u);
  EXPECT_EQ(world.records.messages.in_use(), 0u);
  EXPECT_EQ(world.context.delivered, 0u);
}

TEST(ReceiveEngine, CancelsTheLatestReceiveOfThatContext) {
  ReceiveWorld world;
  EXPECT_FALSE(world.receive_engine.cancel(&world.memory[5]));
  EXPECT_TRUE(world.receive(5).ok());
  EXPECT_TRUE(world.receive_engine.cancel(&world.memory[5]));
  ASSERT_TRUE(world.completions.has_error());
  EXPECT_EQ(world.completions.pop_error().status.code(), Code::canceled);
  EXPECT_FALSE(world.receive_engine.cancel(&world.memory[5]));
  world.arrive(world.peer, OperationsWorld::eager(0, 5));
  EXPECT_EQ(world.completions.size(), 0u);
}

TEST(ReceiveEngine, LetsALargeMessageWaitUntilItsDataHasAPath) {
  ReceiveWorld world;
  world.above.path = DataPath::wait;
  EXPECT_TRUE(world.receive(5).ok());
  std::array<std::byte, wire::kMostRtsBytes> bytes;
  const std::size_t length =
      wire::write_rts(OperationsWorld::rts_of(64, 0x400000001), bytes.data());
  wire::Header header = OperationsWorld::eager(0, 5);
  header.type = wire::Type::rts;
  world.arrive(world.peer, header, std::span(bytes).first(length));
  EXPECT_TRUE(world.data.posted.empty());
  EXPECT_FALSE(world.unexpected.pump_waiting());
  world.above.path = DataPath::dc;
  EXPECT_TRUE(world.unexpected.pump_waiting());
  ASSERT_EQ(world.data.posted.size(), 1u);
  EXPECT_EQ(world.data.posted[0].opcode, IBV_WR_RDMA_READ);
}

// A peer's ring, written as that peer would.
struct RingWorld : ReceiveWorld {
  static constexpr RingShape kShape{4, 512};
  RingWorld() {
    auto made = RingReceiver::create(*context.device, context.account, kShape, 0);
    EXPECT_TRUE(made.ok());
    peer.state.make().rx.ring = std::make_unique<RingReceiver>(std::move(made).value());
    peer.rx.kind = ChannelKind::rc_rdma;
  }
  void write(wire::Type type, std::uint32_t sequence, std::uint64_t tag) {
    wire::Header header = OperationsWorld::eager(sequence, tag);
    header.type = type;
    header.phase = cursor.phase;
    // NOLINTNEXTLINE: where the ring says that it is
    auto* const ring = reinterpret_cast<std::byte*>(peer.state->rx.ring->address());
    wire::write_header(header, ring + (cursor.entry + 1) * kShape.entry_size - sizeof header);
    cursor.advance(kShape.entries);
  }
  bool poll() { return receive_engine.poll_rings(rings); }
  std::vector<Peer*> rings{&peer};
  RingCursor cursor;
};

TEST(ReceiveEngine, TakesAFinFromARing) {
  RingWorld world;
  world.write(wire::Type::fin, 0, 0x400000001);
  EXPECT_TRUE(world.poll());
  EXPECT_EQ(world.above.fins, (std::vector<std::uint64_t>{0x400000001}));
  EXPECT_EQ(world.context.delivered, 0u);
  EXPECT_TRUE(world.peer.state->rx.ring->all_returned());
}

// Or a program that sends before it receives would wait for ever.
TEST(ReceiveEngine, FindsFinsBehindAMessageWithoutMemory) {
  RingWorld world;
  MemoryAccount& account = world.context.account;
  const std::uint64_t taken = account.available();
  ASSERT_TRUE(account.reserve(MemoryKind::operations, taken));
  world.write(wire::Type::fin, 0, 1);  // so that the others go beyond the end of the ring
  EXPECT_TRUE(world.poll());
  world.write(wire::Type::eager, 1, 5);
  world.write(wire::Type::fin, 2, 2);
  world.write(wire::Type::eager, 3, 6);
  world.write(wire::Type::fin, 4, 3);
  EXPECT_FALSE(world.poll());
  EXPECT_TRUE(world.peer.rx.stalled);
  EXPECT_EQ(world.above.fins, (std::vector<std::uint64_t>{1, 2, 3}));
  account.release(MemoryKind::operations, taken);
  EXPECT_TRUE(world.poll());
  EXPECT_EQ(world.peer.rx.sequence, 5u);
  EXPECT_EQ(world.records.messages.in_use(), 2u);
}

}  // namespace
}  // namespace turnout
