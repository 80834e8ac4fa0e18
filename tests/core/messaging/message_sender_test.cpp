// SPDX-License-Identifier: BSD-3-Clause
#include "core/messaging/message_sender.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "tests/support/messaging_world.h"

namespace turnout {
namespace {

constexpr std::array<std::byte, 5> kPayload{std::byte{1}, std::byte{2}, std::byte{3}};

StreamMessage message_of_five() {
  StreamMessage message;
  message.bytes = kPayload.data();
  message.length = kPayload.size();
  return message;
}

TEST(MessageSender, LeavesAMessageWithoutACreditUntouched) {
  MessagingWorld world;
  Peer& peer = world.add_known_peer(0);
  const std::size_t free = world.resources.send_pool.available();
  EXPECT_FALSE(world.sender.post_stream(peer, message_of_five()));
  EXPECT_EQ(peer.tx.sequence, 0u);
  EXPECT_EQ(world.resources.send_pool.available(), free);
}

TEST(MessageSender, NumbersMessagesAndSaysWhichTookTheLastCredit) {
  MessagingWorld world;
  Peer& peer = world.add_known_peer(2);
  EXPECT_TRUE(world.sender.post_stream(peer, message_of_five()));
  EXPECT_TRUE(world.sender.post_stream(peer, message_of_five()));
  EXPECT_FALSE(world.sender.post_stream(peer, message_of_five()));
  ASSERT_EQ(world.data.posted.size(), 2u);
  const wire::Header first = MessagingWorld::header_in(world.data.posted[0]);
  const wire::Header second = MessagingWorld::header_in(world.data.posted[1]);
  EXPECT_EQ(first.sequence, 0u);
  EXPECT_EQ(second.sequence, 1u);
  EXPECT_EQ(first.flags & wire::kLastCredit, 0);
  EXPECT_NE(second.flags & wire::kLastCredit, 0);
  EXPECT_EQ(peer.tx.carried.messages, 2u);
}

TEST(MessageSender, FillsLargeRingEntriesWhenThereAreBuffersForThem) {
  constexpr std::uint32_t kEntry = 16 << 10;
  MessagingWorld world;
  Peer& peer = world.add_known_peer();
  peer.send_on(ChannelKind::dc_rdma, 0);
  peer.state.make().tx.ring = {0x10000, 77, 32, kEntry, 32, 1, {}, false};
  EXPECT_EQ(world.sender.max_payload(peer), MessagingWorld::kEager - sizeof(wire::Header));
  world.sender.make_large_buffers();  // the endpoint has no such entries itself
  EXPECT_EQ(world.sender.max_payload(peer), MessagingWorld::kEager - sizeof(wire::Header));
  world.context.format.large_ring_entry = kEntry;
  const std::uint64_t before = world.context.account.available();
  world.sender.make_large_buffers();
  world.sender.make_large_buffers();
  EXPECT_EQ(before - world.context.account.available(), 16u * kEntry);
  const std::size_t most = world.sender.max_payload(peer);
  EXPECT_EQ(most, kEntry - sizeof(wire::Header));
  const std::vector<std::byte> bytes(most, std::byte{9});
  StreamMessage message;
  message.bytes = bytes.data();
  message.length = bytes.size();
  std::vector<SendRecord> posted;
  for (int i = 0; i < 16; ++i) {
    ASSERT_TRUE(world.sender.post_stream(peer, message)) << i;
    for (const SendRecord& record : world.data.take_all()) posted.push_back(record);
  }
  ASSERT_EQ(posted.size(), 16u);
  EXPECT_FALSE(world.sender.post_stream(peer, message)) << "no buffer is left";
  const SendRecord& record = posted.back();
  EXPECT_EQ(record.pool, SendRecord::Pool::large);
  EXPECT_FALSE(posted[0].signalled);
  // Completions of half of the buffers come, whatever other queues do.
  for (std::size_t i = 8; i < 16; ++i) EXPECT_TRUE(posted[i].signalled) << i;
  EXPECT_EQ(record.remote, 0x10000u + 15 * kEntry);
  EXPECT_EQ(record.length, kEntry);
  world.resources.give_back(record);
  EXPECT_TRUE(world.sender.post_stream(peer, message));
}

TEST(MessageSender, TellsAFinInALargeRingThatHasEntriesToSpare) {
  MessagingWorld world;
  Peer& peer = world.add_known_peer();
  world.connect(peer);
  peer.send_on(ChannelKind::rc_rdma, 0);
  RingSender& ring = peer.state.make().tx.ring;
  ring = {0x10000, 77, 16, 16 << 10, 16, 1, {}, false};
  EXPECT_FALSE(world.sender.post_fin(peer, 5, 1000));  // entries are not large for this endpoint
  world.context.format.large_ring_entry = 16 << 10;
  EXPECT_TRUE(world.sender.post_fin(peer, 5, 1000));
  EXPECT_EQ(ring.credits, 15u);
  EXPECT_EQ(peer.tx.sequence, 1u);
  EXPECT_EQ(peer.tx.carried.messages, 0u);  // none of the application's
  ring.credits = 8;
  EXPECT_FALSE(world.sender.post_fin(peer, 5, 1000));
  ring.credits = 9;
  peer.shut_down = true;
  EXPECT_FALSE(world.sender.post_fin(peer, 5, 1000));
  peer.shut_down = false;
  peer.tx.kind = ChannelKind::dc_rdma;
  EXPECT_FALSE(world.sender.post_fin(peer, 5, 1000));
  peer.tx.kind = ChannelKind::rc_rdma;
  EXPECT_TRUE(world.sender.post_fin(peer, 5, 1000));
}

TEST(MessageSender, TakesTheCreditsThatThePeerHasWrittenWhenItHasNone) {
  MessagingWorld world;
  Peer& peer = world.add_known_peer(0);
  world.connect(peer);
  alignas(64) std::uint64_t word = CreditWord::value(4, 16);  // of an earlier ring
  peer.connect().rc->credit_word = {reinterpret_cast<std::byte*>(&word), 1};
  RingSender& ring = peer.state.make().tx.ring;
  ring = {0x10000, 77, 16, 4096, 1, 5, {}, false};
  peer.tx.kind = ChannelKind::rc_rdma;
  const StreamMessage message{.type = wire::Type::eager};
  EXPECT_TRUE(world.sender.post_stream(peer, message));
  EXPECT_FALSE(world.sender.post_stream(peer, message));
  EXPECT_FALSE(world.sender.post_short(peer, message));
  word = CreditWord::value(5, 2);
  EXPECT_TRUE(world.sender.post_stream(peer, message));
  EXPECT_TRUE(world.sender.post_stream(peer, message));
  EXPECT_FALSE(world.sender.post_stream(peer, message));
  word = CreditWord::value(5, 3);
  EXPECT_TRUE(world.sender.post_short(peer, message));
  EXPECT_EQ(ring.credits, 0u);
}

TEST(MessageSender, AsksForAWireUpUntilThePeerHasReplied) {
  MessagingWorld world;
  Peer& peer = world.add_known_peer();
  const std::size_t most = world.sender.max_payload(peer);
  peer.remote_index = wire::kUnknownIndex;
  EXPECT_EQ(world.sender.max_payload(peer), most - sizeof(wire::WireupRequest));
  EXPECT_TRUE(world.sender.post_stream(peer, message_of_five()));
  peer.remote_index = 3;
  EXPECT_TRUE(world.sender.post_stream(peer, message_of_five()));
  for (const bool known : {false, true}) {
    const SendRecord& record = world.data.posted[known];
    const wire::Header header = MessagingWorld::header_in(record);
    EXPECT_EQ((header.flags & wire::kWireup) == 0, known);
    EXPECT_EQ(record.length, sizeof header + (known ? 0 : sizeof(wire::WireupRequest)) + 5);
    EXPECT_EQ(std::memcmp(reinterpret_cast<const std::byte*>(record.local) + record.length - 5,
                          kPayload.data(), 5),
              0);
  }
}

TEST(MessageSender, ReturnsCreditsWithAMessage) {
  MessagingWorld world;
  Peer& peer = world.add_known_peer();
  peer.rx.grant.unreported = 300;
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(world.sender.post_stream(peer, message_of_five()));
  EXPECT_EQ(MessagingWorld::header_in(world.data.posted[0]).credits, 255);
  EXPECT_EQ(MessagingWorld::header_in(world.data.posted[1]).credits, 45);
  EXPECT_EQ(MessagingWorld::header_in(world.data.posted[2]).credits, 0);
}

TEST(MessageSender, FlushesOnceBeforeADirectionChangesItsChannel) {
  MessagingWorld world;
  Peer& peer = world.add_known_peer();
  EXPECT_TRUE(world.sender.post_stream(peer, message_of_five()));
  peer.tx.state = SendState::flushing;
  EXPECT_FALSE(world.sender.post_stream(peer, message_of_five()));
  EXPECT_FALSE(world.sender.post_stream(peer, message_of_five()));
  ASSERT_EQ(world.data.posted.size(), 2u);
  EXPECT_EQ(world.data.posted[1].kind, SendRecord::Kind::flush);
  EXPECT_EQ(world.above.count("on_flushed"), 0u);

  Peer& idle = world.add_known_peer();
  world.complete(world.data);
  world.sender.post_flush(idle);
  EXPECT_EQ(world.above.count("on_flushed"), 1u);
}

TEST(MessageSender, LosesThePeerAndFreesTheBufferIfThePostFails) {
  MessagingWorld world;
  Peer& peer = world.add_known_peer();
  const std::size_t free = world.resources.send_pool.available();
  world.data.result = {Code::system, "broken"};
  EXPECT_TRUE(world.sender.post_stream(peer, message_of_five()));
  EXPECT_EQ(world.above.count("lose_peer"), 1u);
  EXPECT_EQ(world.resources.send_pool.available(), free);
}

}  // namespace
}  // namespace turnout
