// SPDX-License-Identifier: BSD-3-Clause
#include "core/operations/fragment_engine.h"

#include <gtest/gtest.h>

#include <array>

#include "tests/support/operations_world.h"

namespace turnout {
namespace {

constexpr std::array<std::byte, 16> kFragment{std::byte{1}, std::byte{2}, std::byte{3},
                                              std::byte{4}, std::byte{5}, std::byte{6},
                                              std::byte{7}, std::byte{8}};

// A large message of 8 bytes that the peer sends in fragments.
struct IncomingWorld : OperationsWorld {
  IncomingWorld() {
    RecvOperation& receive = post_receive(memory, 1);
    posted.unpost(receive);
    receive.transfers = 1;
    transfer.peer = &peer;
    transfer.incoming.receive = &receive;
    transfer.total = memory.size();
    transfer.incoming.fin = 0x100000005;
    fragments.request_fragments(transfer, rts_of(memory.size(), transfer.incoming.fin));
    number = transfer.incoming.id;
    request = control_in(credit.posted.at(0));
    credit.posted.clear();
  }
  void take_fragment(Peer& from, std::uint64_t of, std::uint64_t offset, std::uint16_t length) {
    wire::Header header;
    header.type = wire::Type::fragment;
    header.tag = of;
    header.data = offset;
    header.length = length;
    fragments.on_fragment(from, header, kFragment.data() + offset % kFragment.size());
  }

  Peer& peer = add_known_peer();
  std::array<std::byte, 8> memory{};
  Transfer& transfer = *records.transfers.take();
  std::uint64_t number = 0;
  wire::ControlMessage request;
};

TEST(FragmentEngine, PutsFragmentsTogetherAndTellsTheSender) {
  IncomingWorld world;
  EXPECT_EQ(world.request.type, wire::Control::fragment_request);
  EXPECT_EQ(world.request.operation, 0x100000005u);
  EXPECT_EQ(world.request.ring_address, world.number);
  world.take_fragment(world.peer, world.number, 0, 5);
  EXPECT_EQ(world.completions.size(), 0u);
  world.take_fragment(world.peer, world.number, 5, 3);
  EXPECT_EQ(world.completions.size(), 1u);
  EXPECT_EQ(std::memcmp(world.memory.data(), kFragment.data(), 8), 0);
  ASSERT_EQ(world.credit.posted.size(), 1u);
  EXPECT_EQ(MessagingWorld::control_in(world.credit.posted[0]).operation, 0x100000005u);
  EXPECT_EQ(world.peer.rx.incoming_large, 0u);
}

TEST(FragmentEngine, LosesAPeerWhoseFragmentIsNotTheNextOrTooLong) {
  for (const bool too_long : {false, true}) {
    IncomingWorld world;
    world.take_fragment(world.peer, world.number, 0, 2);
    EXPECT_EQ(world.above.count("lose_peer"), 0u);
    world.take_fragment(world.peer, world.number, too_long ? 2 : 3, too_long ? 7 : 1);
    EXPECT_EQ(world.above.count("lose_peer"), 1u);
    EXPECT_EQ(world.transfer.posted, 2u);
  }
}

TEST(FragmentEngine, DropsAFragmentForATransferThatIsNotThePeers) {
  IncomingWorld world;
  Peer& other = world.add_known_peer();
  world.take_fragment(other, world.number, 0, 2);
  world.take_fragment(world.peer, world.number + (std::uint64_t{1} << 32), 0, 2);
  EXPECT_EQ(world.transfer.posted, 0u);
  EXPECT_EQ(world.memory[0], std::byte{0});
  EXPECT_EQ(world.above.count("lose_peer"), 0u);
}

TEST(FragmentEngine, EndsIncomingMessagesOfALostPeerOnly) {
  IncomingWorld world;
  Peer& other = world.add_known_peer();
  world.fragments.end_incoming(&other);
  EXPECT_FALSE(world.completions.has_error());
  world.peer.lost = true;
  world.peer.state.make().loss = Status{Code::peer_lost, "gone"};
  world.fragments.end_incoming(&world.peer);
  ASSERT_TRUE(world.completions.has_error());
  EXPECT_EQ(world.completions.pop_error().status.code(), Code::peer_lost);
  EXPECT_TRUE(world.credit.posted.empty());
}

TEST(FragmentEngine, SendsFragmentsAsCreditsAllow) {
  OperationsWorld world;
  Peer& peer = world.add_known_peer(2);
  std::vector<std::byte> memory(3 * world.sender.max_payload(peer) - 100);
  SendOperation& operation = world.announce(peer, memory);
  wire::ControlMessage request;
  request.operation = operation.id;
  request.ring_address = 0x700000001;
  world.fragments.on_fragment_request(peer, request);
  EXPECT_TRUE(world.fragments.pump_fragments());
  EXPECT_EQ(world.data.posted.size(), 2u);
  EXPECT_FALSE(world.fragments.pump_fragments());
  peer.tx.credits = 5;
  EXPECT_TRUE(world.fragments.pump_fragments());
  ASSERT_EQ(world.data.posted.size(), 3u);
  std::uint64_t sent = 0;
  for (const SendRecord& record : world.data.posted) {
    const wire::Header header = MessagingWorld::header_in(record);
    EXPECT_EQ(header.type, wire::Type::fragment);
    EXPECT_EQ(header.tag, 0x700000001u);
    EXPECT_EQ(header.data, sent);
    sent += header.length;
  }
  EXPECT_EQ(sent, memory.size());
  EXPECT_TRUE(world.backlog.fragmented().empty());
  EXPECT_EQ(world.completions.size(), 0u);  // until its FIN
}

TEST(FragmentEngine, IgnoresARequestForAMessageOfAnotherPeer) {
  OperationsWorld world;
  Peer& peer = world.add_known_peer();
  Peer& other = world.add_known_peer();
  std::array<std::byte, 8> memory{};
  SendOperation& operation = world.announce(peer, memory);
  wire::ControlMessage request;
  request.operation = operation.id;
  request.ring_address = 1;
  world.fragments.on_fragment_request(other, request);
  EXPECT_TRUE(world.backlog.fragmented().empty());
}

}  // namespace
}  // namespace turnout
