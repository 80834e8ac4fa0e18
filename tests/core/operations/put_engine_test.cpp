// SPDX-License-Identifier: BSD-3-Clause
#include "core/operations/put_engine.h"

#include <gtest/gtest.h>

#include <array>

#include "tests/support/operations_world.h"

namespace turnout {
namespace {

// A receive of 64 bytes that is posted for the next message.
wire::Detail rtr_for(std::uint64_t tag, std::uint64_t transfer, std::uint32_t sequence = 0) {
  wire::Detail rtr;
  rtr.address = 0x8000;
  rtr.length = 64;
  rtr.rkey = 6;
  rtr.tag = tag;
  rtr.transfer = transfer;
  rtr.sequence = sequence;
  rtr.flags = wire::kTagged;
  rtr.polled = 1;
  rtr.last = 9;
  return rtr;
}

// Puts a message with tag 1 to the first RTR.
struct PutWorld : OperationsWorld {
  PutWorld() { memory.fill(std::byte{1}); }
  void put_to_first() {
    const iovec part{memory.data(), memory.size()};
    IoVec iov;
    EXPECT_TRUE(iov.set({&part, 1}));
    SendRequest request;
    request.peer = peer.id;
    request.tagged = true;
    request.tag = 1;
    request.report = report(this);
    const wire::Detail rtr = peer.state->tx.rtrs->open.at(0).detail;
    EXPECT_TRUE(put.may_put(peer, iov, rtr));
    EXPECT_TRUE(put.put(peer, request, iov, rtr).ok());
    put.consume_rtr(peer, 0);
  }
  Peer& peer = add_known_peer();
  std::array<std::byte, 64> memory{};
};

TEST(PutEngine, TakesTheFirstRtrOfTheTagInTheOrderOfTheReceives) {
  OperationsWorld world;
  Peer& peer = world.add_known_peer();
  EXPECT_EQ(world.put.find_rtr(peer, true, 2), PutEngine::kNoRtr);
  world.put.on_rtr(peer, rtr_for(1, 11));
  world.put.on_rtr(peer, rtr_for(2, 12));
  world.put.on_rtr(peer, rtr_for(2, 13));
  for (const std::uint64_t transfer : {12u, 13u}) {
    const std::size_t at = world.put.find_rtr(peer, true, 2);
    ASSERT_NE(at, PutEngine::kNoRtr);
    EXPECT_EQ(peer.state->tx.rtrs->open[at].detail.transfer, transfer);
    world.put.consume_rtr(peer, at);
  }
  EXPECT_EQ(world.put.find_rtr(peer, true, 2), PutEngine::kNoRtr);
  EXPECT_EQ(world.put.find_rtr(peer, false, 1), PutEngine::kNoRtr);  // a message without a tag
  EXPECT_EQ(world.put.find_rtr(peer, true, 1), 0u);
}

TEST(PutEngine, DeclinesAnRtrThatMissedAMessageAndLaterOnesOfItsPosition) {
  OperationsWorld world;
  Peer& peer = world.add_known_peer();
  peer.tx.sequence = 1;
  world.put.on_rtr(peer, rtr_for(1, 11, 0));
  EXPECT_EQ(world.put.find_rtr(peer, true, 1), PutEngine::kNoRtr);
  world.put.on_rtr(peer, rtr_for(1, 12, 1));
  EXPECT_EQ(world.put.find_rtr(peer, true, 1), 0u);
  world.put.consume_rtr(peer, 0);

  SendOperation& waiting = *world.records.sends.take();
  waiting.peer = &peer;
  world.backlog.enqueue(waiting);
  world.put.on_rtr(peer, rtr_for(1, 13, 1));  // the waiting message may be for that receive
  peer.state.make().tx.backlog.remove(&waiting);
  world.put.on_rtr(peer, rtr_for(1, 14, 1));
  EXPECT_EQ(world.put.find_rtr(peer, true, 1), PutEngine::kNoRtr);
}

TEST(PutEngine, KeepsABoundedNumberOfRtrs) {
  OperationsWorld world;
  Peer& peer = world.add_known_peer();
  for (std::uint64_t i = 0; i < kMostRtrs + 5; ++i) world.put.on_rtr(peer, rtr_for(1, i + 1));
  EXPECT_EQ(peer.state->tx.rtrs->open.size(), kMostRtrs);
}

TEST(PutEngine, WritesAMessageAsAnnouncedWithoutAPutCompletion) {
  PutWorld world;
  world.put.on_rtr(world.peer, rtr_for(1, 11));
  world.put_to_first();
  ASSERT_EQ(world.data.posted.size(), 1u);
  const SendRecord& write = world.data.posted[0];
  EXPECT_EQ(write.opcode, IBV_WR_RDMA_WRITE);
  EXPECT_EQ(write.length, 64u);
  EXPECT_EQ(write.remote, 0x8000u);
  EXPECT_EQ(write.rkey, 6u);
  EXPECT_TRUE(is_putting(world.peer));
  world.put.end_put(*write.transfer);
  EXPECT_FALSE(is_putting(world.peer));
  EXPECT_EQ(world.put.put_completions(), 0u);
  EXPECT_EQ(world.above.count("try_operation"), 0u);
  EXPECT_EQ(world.next_completion().length, 64u);
}

TEST(PutEngine, SendsTheLastByteThatThePeerCannotDetect) {
  PutWorld world;
  world.memory.back() = std::byte{9};  // what the peer looks at is 9 already
  world.put.on_rtr(world.peer, rtr_for(1, 11));
  world.put_to_first();
  ASSERT_EQ(world.data.posted.size(), 1u);
  EXPECT_EQ(world.data.posted[0].length, 63u);
  world.above.answer = false;  // no room for the put completion
  world.put.end_put(*world.data.posted[0].transfer);
  const SendOperation* const completion = world.peer.state->tx.backlog.first();
  ASSERT_NE(completion, nullptr);
  EXPECT_EQ(completion->type, wire::Type::put_completion);
  EXPECT_EQ(completion->grant.transfer, 11u);
  EXPECT_EQ(completion->grant.length, 64u);
  EXPECT_EQ(completion->grant.last, 9u);
}

TEST(PutEngine, WritesNoMessageThatIsTooLongOrBehindOthers) {
  PutWorld world;
  const iovec part{world.memory.data(), world.memory.size()};
  IoVec iov;
  ASSERT_TRUE(iov.set({&part, 1}));
  wire::Detail rtr = rtr_for(1, 11);
  EXPECT_TRUE(world.put.may_put(world.peer, iov, rtr));
  rtr.length = 63;
  EXPECT_FALSE(world.put.may_put(world.peer, iov, rtr));
  rtr.length = 64;
  SendOperation& waiting = *world.records.sends.take();
  waiting.peer = &world.peer;
  world.backlog.enqueue(waiting);
  EXPECT_FALSE(world.put.may_put(world.peer, iov, rtr));
}

TEST(PutEngine, AnswersACancelAndForgetsTheRtr) {
  OperationsWorld world;
  Peer& peer = world.add_known_peer();
  world.put.on_rtr(peer, rtr_for(1, 11));
  world.put.on_rtr(peer, rtr_for(1, 12));
  world.put.on_rtr_cancel(peer, 11);
  ASSERT_EQ(peer.state->tx.rtrs->open.size(), 1u);
  EXPECT_EQ(peer.state->tx.rtrs->open[0].detail.transfer, 12u);
  world.above.answer = false;
  EXPECT_TRUE(world.put.pump_rtr_cancels());
  ASSERT_NE(peer.state->tx.backlog.first(), nullptr);
  EXPECT_EQ(peer.state->tx.backlog.first()->type, wire::Type::rtr_cancelled);
  EXPECT_EQ(peer.state->tx.backlog.first()->tag, 11u);
  EXPECT_FALSE(world.put.pump_rtr_cancels());
}

}  // namespace
}  // namespace turnout
