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

TEST(SendEngine, LooksForCreditsOfALargeRingBeforeAMessageWaits) {
  constexpr std::uint32_t kEntry = 16 << 10;
  SendWorld world;
  Peer& peer = world.add_known_peer();
  peer.send_on(ChannelKind::dc_rdma, 0);
  RingSender& ring = peer.state.make().tx.ring;
  ring = {0x10000, 77, 32, kEntry, 0, 1, {}, false};
  const auto polls = [&] { return world.above.count("poll_receive_queue"); };
  world.above.arrives = [&] { ring.credits = 1; };
  EXPECT_TRUE(world.send(peer, 1, world.small).ok());  // none of our own rings is large
  EXPECT_EQ(polls(), 0u);
  ring.credits = 1;
  EXPECT_TRUE(world.send_engine.pump_backlogs());

  world.context.format.large_ring_entry = kEntry;
  EXPECT_TRUE(world.send(peer, 2, world.small).ok());
  EXPECT_EQ(polls(), 1u);
  EXPECT_EQ(world.data.posted.size(), 2u);

  world.above.arrives = [&] {
    ring.credits = 1;
    peer.lost = true;
    peer.state.make().loss = {Code::internal, "gone"};
  };
  EXPECT_FALSE(world.send(peer, 3, world.small).ok());
  EXPECT_EQ(world.data.posted.size(), 2u);
  ring.credits = 0;
  peer.lost = false;
  world.above.answer = false;
  world.above.arrives = nullptr;
  EXPECT_TRUE(world.send(peer, 4, world.small).ok());  // waits
  EXPECT_TRUE(world.send(peer, 5, world.small).ok());  // behind it
  EXPECT_EQ(polls(), 3u);
  world.context.in_progress = true;
  Peer& other = world.add_known_peer();
  other.send_on(ChannelKind::dc_rdma, 0);
  other.state.make().tx.ring = ring;
  EXPECT_TRUE(world.send(other, 6, world.small).ok());
  EXPECT_EQ(polls(), 3u);
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
  wire::ControlMessage fin;
  fin.operation = rts.operation;
  world.send_engine.on_fin(fin, other);
  EXPECT_EQ(world.completions.size(), 0u);
  world.send_engine.on_fin(fin, peer);
  EXPECT_EQ(world.next_completion().length, world.large.size());
  world.send_engine.on_fin(fin, peer);
  EXPECT_EQ(world.completions.size(), 0u);
  EXPECT_EQ(peer.tx.awaiting_fin, 0u);
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
