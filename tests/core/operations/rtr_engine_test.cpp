// SPDX-License-Identifier: BSD-3-Clause
#include "core/operations/rtr_engine.h"

#include <gtest/gtest.h>

#include "tests/support/operations_world.h"

namespace turnout {
namespace {

constexpr std::size_t kLarge = 2 * MessagingWorld::kEager;

struct RtrWorld : OperationsWorld {
  RtrWorld() { context.rendezvous = Rendezvous::put; }
  // A receive from the peer, announced if that is allowed.
  RecvOperation& receive(std::span<std::byte> buffer, std::uint64_t tag, bool announce = true) {
    RecvOperation& receive = post_receive(buffer, tag);
    receive.match.peer = peer.id;
    ++peer.rx.directed_receives;
    if (announce) rtr.send_rtr(receive, peer);
    return receive;
  }
  void complete_put(std::uint64_t transfer, std::uint64_t length) {
    const wire::PutCompletion completion{transfer, length, 0, 42, {}};
    wire::Header header = eager(0, 1);
    header.type = wire::Type::put_completion;
    header.length = sizeof completion;
    rtr.on_put_completion(peer, header, reinterpret_cast<const std::byte*>(&completion));
  }
  [[nodiscard]] std::size_t announced() const { return credit.posted.size(); }

  Peer& peer = add_known_peer();
  std::vector<std::byte> memory = std::vector<std::byte>(2 * kLarge);
  std::span<std::byte> first = std::span(memory).first(kLarge);
  std::span<std::byte> second = std::span(memory).last(kLarge);
};

TEST(RtrEngine, AnnouncesLargeReceivesFromAKnownPeerOnly) {
  RtrWorld world;
  iovec part{world.first.data(), world.first.size()};
  RecvRequest request;
  request.buffer = {&part, 1};
  EXPECT_TRUE(world.rtr.wants_rtr(request, world.peer));
  part.iov_len = 100;  // an eager message
  EXPECT_FALSE(world.rtr.wants_rtr(request, world.peer));
  part.iov_len = kLarge;
  world.peer.remote_index = wire::kUnknownIndex;
  EXPECT_FALSE(world.rtr.wants_rtr(request, world.peer));
  world.peer.remote_index = 0;
  world.context.rendezvous = Rendezvous::getcqe;
  EXPECT_FALSE(world.rtr.wants_rtr(request, world.peer));
}

TEST(RtrEngine, AnnouncesNoReceiveBehindOneThatMayTakeItsMessage) {
  RtrWorld world;
  (void)world.receive(world.first, 1, false);
  EXPECT_EQ(world.receive(world.second, 1).rtr, nullptr);
  EXPECT_EQ(world.announced(), 0u);
  EXPECT_NE(world.receive(world.second, 2).rtr, nullptr);  // another tag
  EXPECT_EQ(world.announced(), 1u);
}

TEST(RtrEngine, AnnouncesReceivesOfOnePositionInTheirOrder) {
  RtrWorld world;
  EXPECT_NE(world.receive(world.first, 1).rtr, nullptr);
  EXPECT_NE(world.receive(world.second, 1).rtr, nullptr);
  ++world.peer.rx.sequence;  // a message in between: the earlier RTRs may be declined
  std::vector<std::byte> third(kLarge);
  EXPECT_EQ(world.receive(third, 1).rtr, nullptr);
  EXPECT_EQ(world.announced(), 2u);
  EXPECT_EQ(world.rtr.rtrs_sent(), 2u);
}

TEST(RtrEngine, NeverAnnouncesTheSameMemoryTwice) {
  RtrWorld world;
  EXPECT_NE(world.receive(world.first, 1).rtr, nullptr);
  EXPECT_EQ(world.receive(std::span(world.memory).subspan(kLarge - 1, kLarge), 2).rtr, nullptr);
}

TEST(RtrEngine, CompletesAReceiveWithTheLastByteOfThePutCompletion) {
  RtrWorld world;
  RecvOperation& receive = world.receive(world.first, 1);
  ASSERT_NE(receive.rtr, nullptr);
  const std::uint64_t number = receive.rtr->incoming.id;
  world.complete_put(number, 1000);
  EXPECT_EQ(world.next_completion().length, 1000u);
  EXPECT_EQ(world.memory[999], std::byte{42});
  EXPECT_EQ(world.peer.state->rx.rtrs_sent, 0u);
  EXPECT_EQ(world.above.count("lose_peer"), 0u);
  world.complete_put(number, 1000);  // the RTR is closed
  EXPECT_EQ(world.above.count("lose_peer"), 1u);
}

TEST(RtrEngine, LosesAPeerThatPutMoreThanTheReceiveHolds) {
  RtrWorld world;
  RecvOperation& receive = world.receive(world.first, 1);
  world.complete_put(receive.rtr->incoming.id, kLarge + 1);
  EXPECT_EQ(world.above.count("lose_peer"), 1u);
  EXPECT_EQ(world.completions.size(), 0u);
}

TEST(RtrEngine, EndsAReceiveAtTheAnswerToItsCancelOnly) {
  RtrWorld world;
  RecvOperation& receive = world.receive(world.first, 1);
  const std::uint64_t number = receive.rtr->incoming.id;
  world.rtr.on_rtr_cancelled(world.peer, number);
  EXPECT_FALSE(world.completions.has_error());
  receive.cancelled = true;
  world.rtr.on_rtr_cancelled(world.peer, number);
  ASSERT_TRUE(world.completions.has_error());
  EXPECT_EQ(world.completions.pop_error().status.code(), Code::canceled);
}

TEST(RtrEngine, FinishesAnRtsWhoseMessageWasPutAlready) {
  RtrWorld world;
  RecvOperation& receive = world.receive(world.first, 1);
  wire::Rts rts = OperationsWorld::rts_of(1000, 0x500000001);
  EXPECT_FALSE(world.rtr.put_completed(world.peer, rts));
  rts.has_rtr = 1;
  rts.rtr = receive.rtr->incoming.id;
  EXPECT_FALSE(world.rtr.put_completed(world.peer, rts));
  world.complete_put(rts.rtr, 1000);
  EXPECT_TRUE(world.rtr.put_completed(world.peer, rts));
  const wire::ControlMessage fin = MessagingWorld::control_in(world.credit.posted.back());
  EXPECT_EQ(fin.type, wire::Control::fin);
  EXPECT_EQ(fin.operation, 0x500000001u);
}

TEST(RtrEngine, FindsAMessageByItsLastByte) {
  RtrWorld world;
  RecvOperation& receive = world.receive(world.first, 1);
  // As if the adapter wrote in order.
  world.rdma.poll_for_last_byte(*receive.rtr, &world.first.back(), std::byte{0});
  EXPECT_FALSE(world.rtr.poll_last_bytes());
  world.first.back() = std::byte{1};
  EXPECT_TRUE(world.rtr.poll_last_bytes());
  EXPECT_EQ(world.next_completion().length, kLarge);
  EXPECT_EQ(world.above.count("on_message_counted"), 1u);
}

}  // namespace
}  // namespace turnout
