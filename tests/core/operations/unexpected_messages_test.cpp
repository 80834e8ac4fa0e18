// SPDX-License-Identifier: BSD-3-Clause
#include "core/operations/unexpected_messages.h"

#include <gtest/gtest.h>

#include <array>

#include "tests/support/operations_world.h"
#include "tests/support/requests.h"

namespace turnout {
namespace {

struct UnexpectedWorld : OperationsWorld {
  // A message of 8 bytes in receive `buffer`.
  void keep(std::uint64_t tag, std::uint32_t buffer) {
    wire::Header header = eager(buffer, tag);
    header.length = 8;
    std::byte* const payload = resources.receive_pool.data(buffer);
    std::memset(payload, static_cast<int>(tag), 8);
    unexpected.keep_unexpected(
        peer, header, {UnexpectedMessage::Storage::buffer, payload, buffer, 0, nullptr}, 8);
  }
  [[nodiscard]] UnexpectedMessage* find(std::uint64_t tag) const {
    return records.matcher.find_unexpected({kAnyPeer, tag, 0, true});
  }
  [[nodiscard]] PeekRequest peek_of(std::uint64_t tag, void* context_of) {
    return tagged_peek(tag, report(context_of));
  }
  Peer& peer = add_known_peer();
};

TEST(UnexpectedMessages, AreCopiedAsideAsFarAsTheLimitAllows) {
  UnexpectedWorld world;
  world.context.settings.unexpected_memory = 8 + sizeof(UnexpectedMessage);
  world.keep(1, 3);
  EXPECT_EQ(world.resources.to_post, std::vector<std::uint32_t>{3});
  EXPECT_EQ(world.peer.rx.retained, 0u);
  world.keep(2, 4);
  EXPECT_EQ(world.resources.to_post.size(), 1u);
  EXPECT_EQ(world.peer.rx.retained, 1u);
  EXPECT_EQ(world.resources.receives_kept, 1u);
  // A receive waits for a message behind them.
  EXPECT_TRUE(world.unexpected.relieve(world.peer));
  EXPECT_EQ(world.resources.to_post, (std::vector<std::uint32_t>{3, 4}));
  EXPECT_EQ(world.peer.rx.retained, 0u);
  EXPECT_FALSE(world.unexpected.relieve(world.peer));
  ASSERT_NE(world.find(2), nullptr);
  EXPECT_EQ(world.find(2)->payload[7], std::byte{2});
}

TEST(UnexpectedMessages, GoToAReceiveAndFreeWhatTheyKept) {
  UnexpectedWorld world;
  ASSERT_TRUE(world.records.messages.ready());  // has its memory
  const std::uint64_t before = world.context.account.line(MemoryKind::unexpected).now;
  world.context.settings.unexpected_memory = 0;
  world.keep(1, 3);
  EXPECT_TRUE(world.resources.to_post.empty());
  std::array<std::byte, 8> memory{};
  RecvOperation& receive = world.post_receive(memory, 1);
  UnexpectedMessage& message = *world.find(1);
  world.records.matcher.remove_unexpected(&message);
  world.unexpected.take_unexpected(receive, message);
  EXPECT_EQ(world.next_completion().length, 8u);
  EXPECT_EQ(memory[7], std::byte{1});
  EXPECT_EQ(world.resources.to_post, std::vector<std::uint32_t>{3});
  EXPECT_EQ(world.resources.receives_kept, 0u);
  EXPECT_EQ(world.records.messages.in_use(), 0u);
  EXPECT_EQ(world.context.account.line(MemoryKind::unexpected).now, before);
}

TEST(UnexpectedMessages, AreHiddenFromOtherReceivesOnceClaimed) {
  UnexpectedWorld world;
  world.keep(1, 3);
  int claim = 0, other = 0;
  PeekRequest request = world.peek_of(1, &claim);
  request.claim = true;
  EXPECT_TRUE(world.unexpected.peek(request).ok());
  EXPECT_NE(world.next_completion().flags & kClaimed, 0u);
  EXPECT_EQ(world.find(1), nullptr);
  std::array<std::byte, 8> memory{};
  const iovec part{memory.data(), memory.size()};
  RecvRequest receive;
  receive.buffer = {&part, 1};
  receive.report = world.report(&other);
  EXPECT_EQ(world.unexpected.recv_claimed(receive).code(), Code::invalid);
  receive.report = world.report(&claim);
  EXPECT_TRUE(world.unexpected.recv_claimed(receive).ok());
  EXPECT_EQ(memory[0], std::byte{1});
  EXPECT_EQ(world.unexpected.recv_claimed(receive).code(), Code::invalid);
}

TEST(UnexpectedMessages, GoInTheirOrderToWhoMatchesThemItself) {
  UnexpectedWorld world;
  world.context.settings.unexpected_memory = 0;
  EXPECT_FALSE(world.unexpected.matched_outside());
  EXPECT_FALSE(world.unexpected.take_message().has_value());
  EXPECT_TRUE(world.unexpected.matched_outside());
  world.keep(1, 3);
  world.keep(2, 4);
  const std::optional<TakenMessage> first = world.unexpected.take_message();
  const std::optional<TakenMessage> second = world.unexpected.take_message();
  ASSERT_TRUE(first.has_value() && second.has_value());
  EXPECT_EQ(first->tag, 1u);
  EXPECT_EQ(first->length, 8u);
  EXPECT_EQ(first->peer, world.peer.id);
  EXPECT_TRUE(first->tagged);
  EXPECT_EQ(second->tag, 2u);
  EXPECT_EQ(world.find(1), nullptr);
  EXPECT_EQ(world.peer.rx.retained, 2u);
  // What it takes up still can be copied aside.
  EXPECT_TRUE(world.unexpected.relieve(world.peer));
  EXPECT_EQ(world.resources.to_post, (std::vector<std::uint32_t>{3, 4}));
  std::array<std::byte, 8> memory{};
  const iovec part{memory.data(), memory.size()};
  int of = 0;
  RecvRequest receive;
  receive.report = world.report(&of);
  const std::vector<iovec> parts(kMaxIov + 1, part);
  receive.buffer = parts;
  EXPECT_EQ(world.unexpected.recv_taken(second->handle, receive).code(), Code::invalid);
  receive.buffer = {&part, 1};
  EXPECT_TRUE(world.unexpected.recv_taken(second->handle, receive).ok());
  EXPECT_EQ(world.next_completion().context, &of);
  EXPECT_EQ(memory[7], std::byte{2});
  world.unexpected.discard_taken(first->handle);
  EXPECT_EQ(world.records.messages.in_use(), 0u);
}

TEST(UnexpectedMessages, StayWhereTheyAreWhenAPeekOnlyLooks) {
  UnexpectedWorld world;
  world.keep(1, 3);
  EXPECT_TRUE(world.unexpected.peek(world.peek_of(1, nullptr)).ok());
  EXPECT_EQ(world.next_completion().length, 8u);
  EXPECT_NE(world.find(1), nullptr);
  EXPECT_TRUE(world.unexpected.peek(world.peek_of(2, nullptr)).ok());
  EXPECT_EQ(world.above.count("progress"), 1u);
  ASSERT_TRUE(world.completions.has_error());
  EXPECT_EQ(world.completions.pop_error().status.code(), Code::no_message);
}

TEST(UnexpectedMessages, AreReceivedForTheirSenderWhenDiscarded) {
  UnexpectedWorld world;
  std::array<std::byte, wire::kMostRtsBytes> bytes;
  wire::Header header = OperationsWorld::eager(0, 1);
  header.type = wire::Type::rts;
  header.length = static_cast<std::uint16_t>(
      wire::write_rts(OperationsWorld::rts_of(100'000, 0x400000001), bytes.data()));
  std::memcpy(world.resources.receive_pool.data(2), bytes.data(), header.length);
  world.unexpected.keep_unexpected(
      world.peer, header,
      {UnexpectedMessage::Storage::buffer, world.resources.receive_pool.data(2), 2, 0, nullptr},
      100'000);
  PeekRequest request = world.peek_of(1, nullptr);
  request.discard = true;
  EXPECT_TRUE(world.unexpected.peek(request).ok());
  EXPECT_EQ(world.next_completion().length, 100'000u);
  ASSERT_EQ(world.credit.posted.size(), 1u);
  EXPECT_EQ(MessagingWorld::control_in(world.credit.posted[0]).operation, 0x400000001u);
  EXPECT_EQ(world.records.messages.in_use(), 0u);
}

TEST(UnexpectedMessages, StallThePeerWhoseNextMessageFindsNoMemory) {
  UnexpectedWorld world;
  MemoryAccount& account = world.context.account;
  std::array<std::byte, 8> memory{};
  (void)world.post_receive(memory, 2);
  ASSERT_TRUE(account.reserve(MemoryKind::operations, account.available()));
  EXPECT_FALSE(world.unexpected.may_deliver(world.peer, OperationsWorld::eager(0, 1)));
  EXPECT_FALSE(world.unexpected.may_deliver(world.peer, OperationsWorld::eager(0, 1)));
  EXPECT_TRUE(world.peer.rx.stalled);
  EXPECT_EQ(world.unexpected.stalled().size(), 1u);
  // A receive waits for this one: it needs no record.
  EXPECT_TRUE(world.unexpected.may_deliver(world.peer, OperationsWorld::eager(0, 2)));
}

}  // namespace
}  // namespace turnout
