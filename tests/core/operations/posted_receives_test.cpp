// SPDX-License-Identifier: BSD-3-Clause
#include "core/operations/posted_receives.h"

#include <gtest/gtest.h>

#include <array>

#include "tests/support/operations_world.h"

namespace turnout {
namespace {

// A message of `length` bytes whose values are its number.
struct EagerMessage {
  EagerMessage(std::uint8_t number, std::uint16_t length) : header(OperationsWorld::eager(0, 1)) {
    payload.fill(std::byte{number});
    header.length = length;
  }
  wire::Header header;
  std::array<std::byte, 16> payload;
};

TEST(PostedReceives, ReportATruncatedMessageWithWhatDidNotFit) {
  OperationsWorld world;
  Peer& peer = world.add_known_peer();
  std::array<std::byte, 5> memory{};
  RecvOperation& receive = world.post_receive(std::span(memory).first(4), 1);
  const EagerMessage message(7, 6);
  world.posted.receive_eager(receive, peer, message.header, message.payload.data());
  EXPECT_EQ(world.completions.size(), 0u);
  ASSERT_TRUE(world.completions.has_error());
  const ErrorCompletion error = world.completions.pop_error();
  EXPECT_EQ(error.status.code(), Code::truncated);
  EXPECT_EQ(error.overflow, 2u);
  EXPECT_EQ(error.length, 4u);
  EXPECT_EQ(memory[3], std::byte{7});
  EXPECT_EQ(memory[4], std::byte{0});
  EXPECT_EQ(world.records.receives.in_use(), 0u);
  EXPECT_EQ(world.records.matcher.find_posted(peer.id, true, 1), nullptr);
}

TEST(PostedReceives, TakeManyMessagesUntilLessThanTheLeastIsFree) {
  OperationsWorld world;
  Peer& peer = world.add_known_peer();
  std::array<std::byte, 10> memory{};
  RecvOperation& receive = world.post_receive(memory, 1);
  receive.multi = true;
  receive.min_free = 4;
  for (std::uint8_t i = 1; i <= 3; ++i) {
    EXPECT_EQ(world.records.matcher.find_posted(peer.id, true, 1), &receive);
    const EagerMessage message(i, 3);
    world.posted.receive_eager(receive, peer, message.header, message.payload.data());
    const Completion done = world.next_completion();
    EXPECT_EQ(done.buffer, &memory[(i - 1u) * 3]);
    EXPECT_EQ((done.flags & kMultiRecvDone) != 0, i == 3);
    EXPECT_EQ(memory[i * 3u - 1], std::byte{i});
  }
  EXPECT_EQ(world.records.matcher.find_posted(peer.id, true, 1), nullptr);
  EXPECT_EQ(world.records.receives.in_use(), 0u);
}

TEST(PostedReceives, TellASenderThatWaitsForDelivery) {
  OperationsWorld world;
  Peer& peer = world.add_known_peer();
  std::array<std::byte, 8> memory{};
  RecvOperation& receive = world.post_receive(memory, 1);
  EagerMessage message(7, wire::kOperationBytes + 2);
  message.header.flags |= wire::kAcknowledge;
  const std::uint64_t operation = 0x300000001;
  std::memcpy(message.payload.data(), &operation, sizeof operation);
  world.posted.receive_eager(receive, peer, message.header, message.payload.data());
  ASSERT_EQ(world.credit.posted.size(), 1u);
  const wire::ControlMessage fin = MessagingWorld::control_in(world.credit.posted[0]);
  EXPECT_EQ(fin.type, wire::Control::fin);
  EXPECT_EQ(fin.operation, operation);
  EXPECT_EQ(world.next_completion().length, 2u);
}

TEST(PostedReceives, FreeTheReceiveOfAMessageAndItsCredit) {
  OperationsWorld world;
  Peer& peer = world.add_known_peer();
  world.posted.release_arrival(peer, UnexpectedMessage::Storage::buffer, 5, 0);
  EXPECT_EQ(world.resources.to_post, std::vector<std::uint32_t>{5});
  EXPECT_EQ(peer.rx.grant.unreported, 1u);
  world.posted.release_arrival(peer, UnexpectedMessage::Storage::none, 6, 0);
  EXPECT_EQ(world.resources.to_post.size(), 1u);
}

TEST(PostedReceives, AbandonTheRtrOfACancelledReceive) {
  OperationsWorld world;
  Peer& peer = world.add_known_peer();
  std::array<std::byte, 8> memory{};
  RecvOperation& receive = world.post_receive(memory, 1);
  receive.match.peer = peer.id;
  peer.rx.directed_receives = 1;
  receive.rtr = world.records.transfers.take();
  world.posted.end_cancelled(receive);
  EXPECT_EQ(world.above.count("abandon_rtr"), 1u);
  EXPECT_EQ(peer.rx.directed_receives, 0u);
  ASSERT_TRUE(world.completions.has_error());
  EXPECT_EQ(world.completions.pop_error().status.code(), Code::canceled);
}

}  // namespace
}  // namespace turnout
