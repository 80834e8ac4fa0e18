// SPDX-License-Identifier: BSD-3-Clause
#include "core/operations/rdma_engine.h"

#include <gtest/gtest.h>

#include <array>

#include "tests/support/operations_world.h"

namespace turnout {
namespace {

// A read by the program of 55 bytes in segments of 10.
struct RdmaWorld : OperationsWorld {
  RdmaWorld() {
    context.settings.rendezvous_segment = 10;
    const iovec part{memory.data(), memory.size()};
    IoVec iov;
    EXPECT_TRUE(iov.set({&part, 1}));
    EXPECT_TRUE(rdma.register_iov(transfer, iov, IBV_ACCESS_LOCAL_WRITE).ok());
    transfer.kind = Transfer::Kind::user;
    transfer.peer = &peer;
    transfer.total = memory.size();
    transfer.remote[0] = {0x1000, 30, 1, 0};
    transfer.remote[1] = {0x9000, 25, 2, 0};
    transfer.report = report(&transfer);
    transfer.completion.context = &transfer;
  }
  Peer& peer = add_known_peer();
  std::array<std::byte, 55> memory{};
  Transfer& transfer = *records.transfers.take();
};

TEST(RdmaEngine, KeepsABoundedNumberOfSegmentsInFlight) {
  RdmaWorld world;
  EXPECT_TRUE(world.rdma.pump(world.transfer));
  EXPECT_EQ(world.data.posted.size(), 4u);
  EXPECT_FALSE(world.rdma.pump_transfers());
  world.complete(world.data);
  --world.transfer.in_flight;
  EXPECT_TRUE(world.rdma.pump_transfers());
  EXPECT_EQ(world.data.posted.size(), 5u);
}

TEST(RdmaEngine, MovesEachByteOnceAndReportsTheLast) {
  RdmaWorld world;
  (void)world.rdma.pump(world.transfer);
  while (world.transfer.in_flight > 0) {
    world.complete(world.data);
    EXPECT_EQ(world.completions.size(), 0u);
    --world.transfer.in_flight;
    (void)world.rdma.pump(world.transfer);
  }
  ASSERT_EQ(world.data.posted.size(), 6u);
  std::uint64_t local = reinterpret_cast<std::uint64_t>(world.memory.data()), done = 0;
  for (const SendRecord& record : world.data.posted) {
    EXPECT_EQ(record.local, local + done);
    EXPECT_EQ(record.remote, done < 30 ? 0x1000 + done : 0x9000 + done - 30);
    EXPECT_EQ(record.rkey, done < 30 ? 1u : 2u);
    EXPECT_EQ(record.opcode, IBV_WR_RDMA_READ);
    done += record.length;
  }
  EXPECT_EQ(done, 55u);
  EXPECT_EQ(world.next_completion().context, &world.transfer);
  EXPECT_EQ(world.records.transfers.in_use(), 0u);
  EXPECT_TRUE(world.rdma.active_transfers().empty());
}

TEST(RdmaEngine, TellsTheSenderOfALargeMessageThatItWasRead) {
  RdmaWorld world;
  std::array<std::byte, 55> memory{};
  RecvOperation& receive = world.post_receive(memory, 1);
  world.posted.unpost(receive);
  receive.transfers = 1;
  world.transfer.kind = Transfer::Kind::read;
  world.transfer.incoming.receive = &receive;
  world.transfer.incoming.fin = 0x200000001;
  world.transfer.status = Status{Code::peer_lost, "unreachable"};
  world.rdma.end_transfer(world.transfer);
  ASSERT_EQ(world.credit.posted.size(), 1u);
  const wire::ControlMessage fin = MessagingWorld::control_in(world.credit.posted[0]);
  EXPECT_EQ(fin.type, wire::Control::fin);
  EXPECT_EQ(fin.operation, 0x200000001u);
  EXPECT_EQ(fin.status, static_cast<std::uint32_t>(Code::peer_lost));
  EXPECT_TRUE(world.completions.has_error());
}

TEST(RdmaEngine, AnnouncesAWriteOnlyWhenItIsComplete) {
  RdmaWorld world;
  world.transfer.write = true;
  world.transfer.announcement = world.records.sends.take();
  (void)world.rdma.pump(world.transfer);
  EXPECT_EQ(world.above.count("try_operation"), 0u);
  world.complete(world.data);
  world.transfer.in_flight = 0;
  (void)world.rdma.pump(world.transfer);
  world.complete(world.data);
  world.transfer.in_flight = 0;
  (void)world.rdma.pump(world.transfer);
  EXPECT_EQ(world.above.count("try_operation"), 1u);
}

}  // namespace
}  // namespace turnout
