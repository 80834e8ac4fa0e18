// SPDX-License-Identifier: BSD-3-Clause
#include "core/messaging/credits.h"

#include <gtest/gtest.h>

#include "tests/support/messaging_world.h"

namespace turnout {
namespace {

TEST(Credits, AreReturnedOnce) {
  MessagingWorld world;
  Peer& peer = world.add_known_peer();
  world.credits.return_credit(peer);
  EXPECT_TRUE(world.credit.posted.empty());  // fewer than half of them
  world.credits.return_credit(peer);
  ASSERT_EQ(world.credit.posted.size(), 1u);
  const wire::ControlMessage message = MessagingWorld::control_in(world.credit.posted[0]);
  EXPECT_EQ(message.type, wire::Control::credit);
  // Two for the messages, and as many as it has now that it may have twice as many.
  EXPECT_EQ(message.credits, 2u + world.flow.first());
  world.credits.send_credits(peer);
  EXPECT_EQ(world.credit.posted.size(), 1u);
  EXPECT_EQ(world.credits.credit_messages(), 1u);
}

TEST(Credits, WaitForTheWireUpReply) {
  MessagingWorld world;
  Peer& peer = world.add_known_peer();
  peer.remote_index = wire::kUnknownIndex;
  peer.rx.grant.unreported = 3;
  world.credits.send_credits(peer);
  EXPECT_TRUE(world.credit.posted.empty());
  EXPECT_EQ(peer.rx.grant.unreported, 3u);
  peer.remote_index = 0;
  world.credits.send_credits(peer);
  ASSERT_EQ(world.credit.posted.size(), 1u);
  EXPECT_EQ(MessagingWorld::control_in(world.credit.posted[0]).credits, 3u);
}

TEST(Credits, OfAnEarlierRingAreIgnored) {
  MessagingWorld world;
  Peer& peer = world.add_known_peer(1);
  peer.tx.kind = ChannelKind::dc_rdma;
  peer.state.make().tx.ring.entries = 8;
  peer.state.make().tx.ring.credits = 2;
  peer.state.make().tx.ring.request = 6;
  wire::Header header;
  header.credits = 1;
  header.ring_credits = 3;
  header.ring = 5;
  world.credits.credits_given(peer, header);
  EXPECT_EQ(peer.state->tx.ring.credits, 2u);
  EXPECT_EQ(peer.tx.credits, 2u);
  header.ring = 6;
  world.credits.credits_given(peer, header);
  EXPECT_EQ(peer.state->tx.ring.credits, 5u);
  world.credits.credits_given(peer, header);
  EXPECT_EQ(peer.state->tx.ring.credits, 8u);  // never more than it has entries
}

TEST(Credits, OfPrivateReceivesCountOnlyForTheRequestThatGrantedThem) {
  MessagingWorld world;
  Peer& peer = world.add_known_peer();
  world.credits.on_private_credits(peer, 0, 4);  // it has none
  EXPECT_EQ(peer.state->tx.private_queue.credits, 0u);
  peer.state.make().tx.private_queue.request = 9;
  world.credits.on_private_credits(peer, 8, 4);
  EXPECT_EQ(peer.state->tx.private_queue.credits, 0u);
  world.credits.on_private_credits(peer, 9, 4);
  EXPECT_EQ(peer.state->tx.private_queue.credits, 4u);
}

// A ring of ours that the peer writes over RC, of which it is owed entries.
struct WithRing {
  WithRing() {
    world.connect(peer);
    peer.rx.kind = ChannelKind::rc_rdma;
    PeerConnection& connection = peer.connect();
    connection.credits_at = 0x5000;
    connection.credits_rkey = 77;
    PeerRxState& rx = peer.state.make().rx;
    rx.ring = std::make_unique<RingReceiver>();  // nothing of it is used
    rx.ring_request = 9;
    rx.unreported_ring = 8;
  }
  [[nodiscard]] std::vector<wire::ControlMessage> sent() const {
    return MessagingWorld::controls_of(world.credit);
  }

  MessagingWorld world;
  Peer& peer = world.add_known_peer();
};

TEST(Credits, OfARingAreWrittenIntoThePeersWord) {
  WithRing test;
  test.world.credits.return_ring(test.peer);
  EXPECT_TRUE(test.sent().empty());
  const SendRecord& write = test.peer.connection->rc->newest();
  EXPECT_EQ(write.kind, SendRecord::Kind::credit);
  EXPECT_EQ(write.opcode, IBV_WR_RDMA_WRITE);
  EXPECT_EQ(write.remote, 0x5000u);
  EXPECT_EQ(write.rkey, 77u);
  EXPECT_EQ(write.length, sizeof(std::uint64_t));
  EXPECT_EQ(test.peer.state->rx.returned_ring, 8u);
  EXPECT_EQ(test.peer.state->rx.unreported_ring, 0u);
  // The write may be lost: the same total.
  test.world.credits.repeat_ring_credits(test.peer);
  ASSERT_EQ(test.sent().size(), 1u);
  EXPECT_EQ(test.sent()[0].request, 9u);
  EXPECT_EQ(test.sent()[0].ring_entries, 8u);
}

TEST(Credits, OfARingAreSentWhereTheyCannotBeWritten) {
  const std::vector<void (*)(Peer&)> reasons = {
      [](Peer& peer) { peer.rx.kind = ChannelKind::dc_rdma; },
      [](Peer& peer) { peer.rx.state = ReceiveState::closing; },
      [](Peer& peer) { peer.connect().credits_rkey = 0; },
      [](Peer& peer) { peer.connect().rc.reset(); },
      [](Peer& peer) {
        while (!peer.connection->rc->full()) {
          ASSERT_TRUE(peer.connection->rc->post({}).ok());
        }
      },
  };
  for (const auto& reason : reasons) {
    WithRing test;
    test.peer.state.make().rx.returned_ring = 100;
    reason(test.peer);
    test.world.credits.return_ring(test.peer);
    ASSERT_EQ(test.sent().size(), 1u);
    EXPECT_EQ(test.sent()[0].type, wire::Control::credit);
    EXPECT_EQ(test.sent()[0].ring_entries, 108u);
    EXPECT_EQ(test.peer.state->rx.unreported_ring, 0u);
  }
}

TEST(Credits, OfNoRingAreNotRepeated) {
  WithRing test;
  test.world.credits.repeat_ring_credits(test.peer);  // none were returned yet
  test.peer.state.make().rx.returned_ring = 8;
  test.peer.state.make().rx.ring.reset();
  test.world.credits.repeat_ring_credits(test.peer);
  EXPECT_TRUE(test.sent().empty());
}

TEST(CreditWords, AreLinesOfTheirOwnAndHoldNothingWhenTaken) {
  MessagingWorld world;
  CreditWords words;
  const verbs::Device& device = *world.context.device;
  std::vector<CreditWord> taken;
  for (int i = 0; i < 65; ++i) {  // one more than a page has
    taken.push_back(words.take(device, world.context.account, 0));
    ASSERT_NE(taken.back().at, nullptr);
    EXPECT_EQ(taken.back().address() % 64, 0u);
    EXPECT_EQ(taken.back().read(), CreditWord::Written{});
    const std::uint64_t value = CreditWord::value(3, static_cast<std::uint32_t>(i));
    std::memcpy(taken.back().at, &value, sizeof value);
  }
  for (int i = 0; i < 65; ++i) {
    EXPECT_EQ(taken[static_cast<std::size_t>(i)].read(),
              (CreditWord::Written{3, static_cast<std::uint16_t>(i)}));
  }
  words.give_back(taken[10]);
  const CreditWord again = words.take(device, world.context.account, 0);
  EXPECT_EQ(again.at, taken[10].at);
  EXPECT_EQ(again.read(), CreditWord::Written{});
}

// An adapter may place a part of a write before the rest, from either end.
TEST(CreditWords, SayNothingWhileAPartOfAWriteIsMissing) {
  const std::uint64_t before = CreditWord::value(1, 4), after = CreditWord::value(3, 2);
  for (std::size_t first = 1; first < sizeof after; ++first) {
    for (const bool end_first : {false, true}) {
      alignas(64) std::uint64_t word = before;
      const CreditWord reader{reinterpret_cast<std::byte*>(&word), 1};
      const std::size_t from = end_first ? sizeof after - first : 0;
      std::memcpy(reader.at + from, reinterpret_cast<const std::byte*>(&after) + from, first);
      if (word != before && word != after) {
        EXPECT_EQ(reader.read(), std::nullopt) << first;
      }
      word = after;
      EXPECT_EQ(reader.read(), (CreditWord::Written{3, 2}));
    }
  }
}

TEST(CreditWords, AreNoneWithoutRoomInTheBudget) {
  MessagingWorld world;
  CreditWords words;
  const CreditWord none =
      words.take(*world.context.device, world.context.account, world.context.account.budget());
  EXPECT_EQ(none.at, nullptr);
  words.give_back(none);
  none.clear();
}

}  // namespace
}  // namespace turnout
