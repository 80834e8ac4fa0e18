// SPDX-License-Identifier: BSD-3-Clause
#include "core/messaging/ud_transport.h"

#include <gtest/gtest.h>

#include "tests/support/messaging_world.h"

namespace turnout {
namespace {

struct UdWorld : MessagingWorld {
  UdWorld() {
    context.default_channel = ChannelKind::ud_sendrecv;
    peer.link = std::make_unique<UdReliability>();
  }
  Peer& peer = add_known_peer();
};

wire::Datagram datagram_in(const SendRecord& record) {
  wire::Datagram datagram;
  std::memcpy(&datagram, reinterpret_cast<const void*>(record.local), sizeof datagram);
  return datagram;
}
std::uint32_t control_sequence(const SendRecord& record) {
  wire::ControlMessage message;
  std::memcpy(&message, reinterpret_cast<const std::byte*>(record.local) + sizeof(wire::Datagram),
              sizeof message);
  return message.sequence;
}

TEST(UdTransport, AcknowledgesWhatArrivedOutOfOrder) {
  UdWorld world;
  world.peer.rx.sequence = 10;
  for (const std::uint32_t sequence : {12u, 15u, 100u}) {
    world.peer.state.make().rx.reorder_buffer.push_back({sequence, 0, 0, nullptr});
  }
  world.peer.link->owes_ack = true;
  wire::Datagram datagram;
  world.ud.stamp(world.peer, wire::DatagramKind::data, &datagram);
  EXPECT_EQ(datagram.data_ack, 10u);
  EXPECT_EQ(datagram.sack, 1u << 2 | 1u << 5);
  EXPECT_FALSE(world.peer.link->owes_ack);
}

TEST(UdTransport, SendsOneAcknowledgementForTheMessagesOfItsDelay) {
  UdWorld world;
  world.ud.owe_ack(world.peer, false);
  world.clock.time += UdReliability::kAckDelay - 1;
  world.ud.owe_ack(world.peer, false);
  world.ud.service_ud_timers(world.clock.time);
  EXPECT_TRUE(world.credit.posted.empty());
  world.clock.time += 1;
  world.ud.service_ud_timers(world.clock.time);
  ASSERT_EQ(world.credit.posted.size(), 1u);
  EXPECT_EQ(datagram_in(world.credit.posted[0]).kind, wire::DatagramKind::ack);
  world.ud.service_ud_timers(world.clock.time + UdReliability::kAckDelay);
  EXPECT_EQ(world.credit.posted.size(), 1u);
  EXPECT_TRUE(world.ud.ud_pending().empty());
}

TEST(UdTransport, SendsControlMessagesInOrderUpToTheWindow) {
  UdWorld world;
  for (std::size_t i = 0; i < UdReliability::kControlWindow + 4; ++i) {
    world.ud.send_control_over_ud(world.peer, Purpose::credit, {});
  }
  EXPECT_EQ(world.credit.posted.size(), MessagingWorld::kDepth);
  EXPECT_TRUE(world.ud.ud_blocked());  // the queue is full
  std::uint32_t sent = 0;
  while (!world.credit.posted.empty()) {
    for (const SendRecord& record : world.credit.posted)
      EXPECT_EQ(control_sequence(record), sent++);
    world.complete(world.credit);
    world.credit.posted.clear();
    (void)world.ud.pump_ud_blocked();
  }
  EXPECT_EQ(sent, UdReliability::kControlWindow);
}

TEST(UdTransport, SendsAgainUntilThePeerWasSilentForTooLong) {
  UdWorld world;
  const Nanoseconds begun = world.clock.time;
  std::size_t sent = 0;
  world.ud.send_control_over_ud(world.peer, Purpose::credit, {});
  ASSERT_EQ(world.credit.posted.size(), 1u);
  while (world.above.count("lose_peer") == 0 && world.ud.next_ud_timer() != INT64_MAX) {
    for (const SendRecord& record : world.credit.posted) EXPECT_EQ(control_sequence(record), 0u);
    sent += world.credit.posted.size();
    world.complete(world.credit);
    world.credit.posted.clear();
    world.clock.time = world.ud.next_ud_timer();
    world.ud.service_ud_timers(world.clock.time);
    world.peer.lost = world.above.count("lose_peer") > 0;
  }
  EXPECT_TRUE(world.peer.lost);
  EXPECT_GE(world.clock.time - begun, world.context.settings.ud_timeout);
  EXPECT_GT(sent, 3u);
}

TEST(UdTransport, KeepsABufferUntilItIsAcknowledgedAndRead) {
  UdWorld world;
  SendRecord record;
  record.buffer = world.resources.send_pool.take();
  const std::size_t free = world.resources.send_pool.available();
  world.ud.keep_until_acknowledged(world.peer, 0, record);
  world.ud.release_kept(record.buffer);
  EXPECT_EQ(world.resources.send_pool.available(), free);  // the adapter still reads it
  world.ud.retire_kept(record.buffer);
  EXPECT_EQ(world.resources.send_pool.available(), free + 1);
}

}  // namespace
}  // namespace turnout
