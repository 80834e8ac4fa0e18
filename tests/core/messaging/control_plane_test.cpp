// SPDX-License-Identifier: BSD-3-Clause
#include "core/messaging/control_plane.h"

#include <gtest/gtest.h>

#include "tests/support/messaging_world.h"

namespace turnout {
namespace {

wire::ControlMessage numbered(std::uint32_t number) {
  wire::ControlMessage message;
  message.type = wire::Control::request;
  message.request = number;
  return message;
}

TEST(ControlPlane, KeepsOrderWhenTheQueueIsFull) {
  MessagingWorld world;
  Peer& peer = world.add_known_peer();
  world.fill(world.establishment);
  world.control.send_control(peer, Purpose::establishment, numbered(1));
  world.control.send_control(peer, Purpose::establishment, numbered(2));
  EXPECT_FALSE(world.control.pump_control());
  EXPECT_EQ(world.control.pending_control().size(), 2u);
  world.complete(world.establishment);
  world.establishment.posted.clear();
  world.control.send_control(peer, Purpose::establishment, numbered(3));  // there is room now
  EXPECT_TRUE(world.establishment.posted.empty());
  EXPECT_TRUE(world.control.pump_control());
  const auto sent = MessagingWorld::controls_of(world.establishment);
  ASSERT_EQ(sent.size(), 3u);
  for (std::uint32_t i = 0; i < 3; ++i) EXPECT_EQ(sent[i].request, i + 1);
}

TEST(ControlPlane, DropsMessagesToALostPeer) {
  MessagingWorld world;
  Peer& peer = world.add_known_peer();
  Peer& other = world.add_known_peer();
  world.fill(world.establishment);
  world.control.send_control(peer, Purpose::establishment, numbered(1));
  world.control.send_control(other, Purpose::establishment, numbered(2));
  peer.lost = true;
  world.complete(world.establishment);
  world.establishment.posted.clear();
  EXPECT_TRUE(world.control.pump_control());
  ASSERT_EQ(world.establishment.posted.size(), 1u);
  EXPECT_EQ(world.establishment.posted[0].peer, other.id);
  world.control.send_control(peer, Purpose::establishment, numbered(3));
  EXPECT_EQ(world.establishment.posted.size(), 1u);
}

TEST(ControlPlane, SendsOnlyShutdownMessagesWhileShuttingDown) {
  MessagingWorld world;
  Peer& peer = world.add_known_peer();
  world.context.closing_phase = Closing::shutting_down;
  world.control.send_fin(peer, 5, {});
  EXPECT_TRUE(world.credit.posted.empty());
  wire::ControlMessage shutdown;
  shutdown.type = wire::Control::shutdown;
  world.control.send_control(peer, Purpose::credit, shutdown);
  EXPECT_EQ(world.credit.posted.size(), 1u);
}

TEST(ControlPlane, TellsAFinishedMessageWithItsStatus) {
  MessagingWorld world;
  world.context.address.id = 77;
  Peer& peer = world.add_known_peer();
  world.control.send_fin(peer, 0x500000002, Status{Code::canceled, "no"});
  ASSERT_EQ(world.credit.posted.size(), 1u);
  const wire::ControlMessage fin = MessagingWorld::control_in(world.credit.posted[0]);
  EXPECT_EQ(fin.type, wire::Control::fin);
  EXPECT_EQ(fin.operation, 0x500000002u);
  EXPECT_EQ(fin.status, static_cast<std::uint32_t>(Code::canceled));
  EXPECT_EQ(fin.sender, 77u);
  EXPECT_EQ(fin.index, peer.remote_index);
}

}  // namespace
}  // namespace turnout
