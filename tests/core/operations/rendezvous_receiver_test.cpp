// SPDX-License-Identifier: BSD-3-Clause
#include "core/operations/rendezvous_receiver.h"

#include <gtest/gtest.h>

#include <array>

#include "tests/support/operations_world.h"

namespace turnout {
namespace {

TEST(RendezvousReceiver, ReservesSeparatePartsOfOneReceiveForManyMessages) {
  OperationsWorld world;
  Peer& peer = world.add_known_peer();
  std::array<std::byte, 100> memory{};
  RecvOperation& receive = world.post_receive(memory, 1);
  receive.multi = true;
  receive.min_free = 20;
  const Place first = world.rndv.place_in(receive, 60);
  EXPECT_EQ(world.records.matcher.find_posted(peer.id, true, 1), &receive);
  const Place second = world.rndv.place_in(receive, 60);
  EXPECT_EQ(first.offset, 0u);
  EXPECT_EQ(first.length, 60u);
  EXPECT_EQ(second.offset, 60u);
  EXPECT_EQ(second.length, 40u);
  EXPECT_EQ(receive.transfers, 2u);
  EXPECT_EQ(world.records.matcher.find_posted(peer.id, true, 1), nullptr);
}

TEST(RendezvousReceiver, ReadsWhatFitsIntoTheReceive) {
  OperationsWorld world;
  Peer& peer = world.add_known_peer();
  std::array<std::byte, 100> memory{};
  RecvOperation& receive = world.post_receive(memory, 1);
  const Place place = world.rndv.place_in(receive, 120);
  world.rndv.start_get(receive, peer, OperationsWorld::eager(0, 1),
                       OperationsWorld::rts_of(120, 0x100000001), place, DataPath::dc);
  ASSERT_EQ(world.data.posted.size(), 1u);
  const SendRecord& read = world.data.posted[0];
  EXPECT_EQ(read.opcode, IBV_WR_RDMA_READ);
  EXPECT_EQ(read.local, reinterpret_cast<std::uint64_t>(memory.data()));
  EXPECT_EQ(read.length, 100u);
  EXPECT_EQ(read.remote, 0x10000u);
  EXPECT_EQ(read.rkey, 88u);
  read.transfer->in_flight = 0;
  (void)world.rdma.pump(*read.transfer);
  ASSERT_TRUE(world.completions.has_error());
  EXPECT_EQ(world.completions.pop_error().overflow, 20u);
  ASSERT_EQ(world.credit.posted.size(), 1u);
  EXPECT_EQ(MessagingWorld::control_in(world.credit.posted[0]).type, wire::Control::fin);
}

TEST(RendezvousReceiver, TakesTheWayThatItsPathAllows) {
  for (const bool by_fragments : {false, true}) {
    OperationsWorld world;
    world.context.rendezvous = Rendezvous::rput;
    Peer& peer = world.add_known_peer();
    std::array<std::byte, 100> memory{};
    RecvOperation& receive = world.post_receive(memory, 1);
    const Place place = world.rndv.place_in(receive, 100);
    world.rndv.start_get(receive, peer, OperationsWorld::eager(0, 1),
                         OperationsWorld::rts_of(100, 0x100000001), place,
                         by_fragments ? DataPath::fragments : DataPath::dc);
    EXPECT_TRUE(world.data.posted.empty());
    ASSERT_EQ(world.credit.posted.size(), 1u);
    EXPECT_EQ(MessagingWorld::control_in(world.credit.posted[0]).type,
              by_fragments ? wire::Control::fragment_request : wire::Control::cts);
  }
}

TEST(RendezvousReceiver, EndsAReceiveFromALostPeerWithTheReason) {
  OperationsWorld world;
  Peer& peer = world.add_known_peer();
  std::array<std::byte, 100> memory{};
  RecvOperation& receive = world.post_receive(memory, 1);
  const Place place = world.rndv.place_in(receive, 100);
  peer.lost = true;
  peer.state.make().loss = Status{Code::peer_lost, "gone"};
  world.rndv.start_get(receive, peer, OperationsWorld::eager(0, 1), OperationsWorld::rts_of(100, 1),
                       place, DataPath::wait);
  ASSERT_TRUE(world.completions.has_error());
  EXPECT_EQ(world.completions.pop_error().status.code(), Code::peer_lost);
  EXPECT_EQ(world.records.transfers.in_use(), 0u);
  EXPECT_EQ(world.records.receives.in_use(), 0u);
}

}  // namespace
}  // namespace turnout
