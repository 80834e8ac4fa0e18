// SPDX-License-Identifier: BSD-3-Clause
#include "core/operations/rput_engine.h"

#include <gtest/gtest.h>

#include <array>

#include "tests/support/operations_world.h"

namespace turnout {
namespace {

struct RputWorld : OperationsWorld {
  void take_cts(Peer& from, std::uint64_t length) {
    wire::ControlMessage message;
    message.type = wire::Control::cts;
    message.operation = operation.id;
    wire::Detail detail;
    detail.address = 0x4000;
    detail.length = length;
    detail.transfer = 0x900000003;
    detail.rkey = 5;
    rput.on_cts(from, message, detail);
  }
  Peer& peer = add_known_peer();
  std::array<std::byte, 64> memory{};
  SendOperation& operation = announce(peer, memory);
};

TEST(RputEngine, WritesWhereTheClearToSendSaysAndTellsIt) {
  RputWorld world;
  world.take_cts(world.peer, 60);
  ASSERT_EQ(world.data.posted.size(), 1u);
  const SendRecord& write = world.data.posted[0];
  EXPECT_EQ(write.opcode, IBV_WR_RDMA_WRITE);
  EXPECT_EQ(write.remote, 0x4000u);
  EXPECT_EQ(write.rkey, 5u);
  EXPECT_EQ(write.length, 60u);
  EXPECT_TRUE(world.credit.posted.empty());
  world.rput.end_rput_send(*write.transfer);
  ASSERT_EQ(world.credit.posted.size(), 1u);
  const wire::ControlMessage written = MessagingWorld::control_in(world.credit.posted[0]);
  EXPECT_EQ(written.type, wire::Control::written);
  EXPECT_EQ(written.operation, 0x900000003u);
  EXPECT_EQ(world.completions.size(), 1u);
  EXPECT_EQ(world.peer.tx.awaiting_fin, 0u);
}

TEST(RputEngine, WritesAMessageOnceAndForItsReceiverOnly) {
  RputWorld world;
  Peer& other = world.add_known_peer();
  world.take_cts(other, 64);
  EXPECT_TRUE(world.data.posted.empty());
  world.take_cts(world.peer, 64);
  world.take_cts(world.peer, 64);
  EXPECT_EQ(world.data.posted.size(), 1u);
  EXPECT_EQ(world.above.count("lose_peer"), 0u);
}

TEST(RputEngine, LosesAPeerThatAsksForMoreThanTheMessage) {
  RputWorld world;
  world.take_cts(world.peer, 65);
  EXPECT_EQ(world.above.count("lose_peer"), 1u);
  EXPECT_TRUE(world.data.posted.empty());
}

TEST(RputEngine, CompletesAReceiveThatItsOwnSenderHasWritten) {
  OperationsWorld world;
  world.context.rendezvous = Rendezvous::rput;
  Peer& peer = world.add_known_peer();
  Peer& other = world.add_known_peer();
  std::array<std::byte, 64> memory{};
  RecvOperation& receive = world.post_receive(memory, 1);
  world.posted.unpost(receive);
  receive.transfers = 1;
  Transfer& transfer = *world.records.transfers.take();
  transfer.peer = &peer;
  transfer.incoming.receive = &receive;
  transfer.total = memory.size();
  transfer.incoming.fin = 0x100000002;
  EXPECT_TRUE(world.rput.asks_for_write(transfer, receive.iov));
  EXPECT_TRUE(world.rput.ask_for_write(transfer, receive.iov).ok());
  ASSERT_EQ(world.credit.posted.size(), 1u);
  EXPECT_EQ(MessagingWorld::control_in(world.credit.posted[0]).type, wire::Control::cts);
  EXPECT_EQ(world.credit.posted[0].length, sizeof(wire::ControlMessage) + sizeof(wire::Detail));
  wire::ControlMessage written;
  written.operation = transfer.incoming.id;
  world.rput.on_written(other, written);
  EXPECT_EQ(world.completions.size(), 0u);
  world.rput.on_written(peer, written);
  EXPECT_EQ(world.completions.size(), 1u);
  world.rput.on_written(peer, written);
  EXPECT_EQ(world.completions.size(), 1u);
  EXPECT_EQ(peer.rx.incoming_large, 0u);
}

}  // namespace
}  // namespace turnout
