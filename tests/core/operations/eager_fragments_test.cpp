// SPDX-License-Identifier: BSD-3-Clause
// Eager messages that do not fit one message of the stream: SendEngine cuts them, FragmentEngine
// and UnexpectedMessages put them together.
#include <gtest/gtest.h>

#include <algorithm>
#include <span>
#include <vector>

#include "tests/support/operations_world.h"
#include "tests/support/requests.h"

namespace turnout {
namespace {

constexpr std::size_t kTotal = 10'000;  // bytes of the message
constexpr std::size_t kFirst = 3'000;   // and of its first fragment

std::vector<std::byte> numbered(std::size_t bytes) {
  std::vector<std::byte> out(bytes);
  for (std::size_t i = 0; i < bytes; ++i) out[i] = static_cast<std::byte>(i * 7 + i / 256);
  return out;
}

struct SendingWorld : OperationsWorld {
  SendingWorld() { context.format.rendezvous_threshold = 32 << 10; }
  Status send(std::span<const std::byte> bytes, std::uint64_t tag, bool matched = false) {
    const iovec part{const_cast<std::byte*>(bytes.data()), bytes.size()};
    SendRequest request = tagged_send(peer.id, part, tag, report(&peer));
    request.match_complete = matched;
    return send_engine.send_now(request);
  }
  // What was posted, as the receiver sees it.
  [[nodiscard]] std::vector<wire::Parsed> messages() const {
    std::vector<wire::Parsed> all;
    for (const SendRecord& record : data.posted) {
      EXPECT_TRUE(wire::parse_data(reinterpret_cast<const std::byte*>(record.local), record.length,
                                   &all.emplace_back())
                      .ok());
    }
    return all;
  }
  Peer& peer = add_known_peer(8);
};

TEST(EagerFragments, CarryTheMessageInTheStream) {
  SendingWorld world;
  const std::vector<std::byte> bytes = numbered(kTotal);
  ASSERT_TRUE(world.send(bytes, 5).ok());
  EXPECT_EQ(world.next_completion().length, kTotal);
  EXPECT_EQ(world.records.sends.in_use(), 0u);
  const std::vector<wire::Parsed> sent = world.messages();
  ASSERT_EQ(sent.size(), 3u);
  EXPECT_EQ(sent[0].header.type, wire::Type::eager_first);
  EXPECT_EQ(sent[0].header.tag, 5u);
  std::uint64_t total = 0;
  EXPECT_TRUE(wire::parse_total(sent[0].header, sent[0].payload, &total).ok());
  EXPECT_EQ(total, kTotal);
  std::size_t at = sent[0].header.length - wire::kTotalBytes;
  EXPECT_EQ(std::memcmp(sent[0].payload + wire::kTotalBytes, bytes.data(), at), 0);
  for (std::size_t i = 1; i < sent.size(); ++i) {
    EXPECT_EQ(sent[i].header.type, wire::Type::fragment);
    EXPECT_EQ(sent[i].header.tag, 0u);
    EXPECT_EQ(sent[i].header.data, at);
    EXPECT_EQ(std::memcmp(sent[i].payload, bytes.data() + at, sent[i].header.length), 0);
    at += sent[i].header.length;
  }
  EXPECT_EQ(at, kTotal);
  EXPECT_EQ(world.peer.tx.carried.messages, 1u);
  EXPECT_EQ(world.peer.tx.carried.bytes, kTotal);
}

TEST(EagerFragments, GoOnWhenThereAreCreditsAgainAndCannotBeCancelled) {
  SendingWorld world;
  world.peer.tx.credits = 2;
  const std::vector<std::byte> bytes = numbered(kTotal);
  ASSERT_TRUE(world.send(bytes, 5).ok());
  ASSERT_TRUE(world.send(std::span(bytes).first(8), 6).ok());  // must not overtake it
  EXPECT_EQ(world.data.posted.size(), 2u);
  EXPECT_EQ(world.completions.size(), 0u);
  world.peer.tx.credits = 2;
  // The first one of the backlog with this context is the short one, which was sent later.
  EXPECT_TRUE(world.receive_engine.cancel(&world.peer));
  EXPECT_FALSE(world.receive_engine.cancel(&world.peer));
  EXPECT_TRUE(world.send_engine.pump_backlogs());
  EXPECT_EQ(world.data.posted.size(), 3u);
  EXPECT_EQ(world.next_completion().length, kTotal);
}

TEST(EagerFragments, OfAConfirmedMessageMustAllBeDelivered) {
  SendingWorld world;
  const std::vector<std::byte> bytes = numbered(kTotal);
  const iovec part{const_cast<std::byte*>(bytes.data()), bytes.size()};
  SendRequest request = tagged_send(world.peer.id, part, 5, world.report(&world.peer));
  request.delivery_complete = true;
  world.peer.tx.credits = 2;
  ASSERT_TRUE(world.send_engine.send_now(request).ok());
  ASSERT_EQ(world.data.posted.size(), 2u);
  const std::uint64_t operation = world.data.posted[0].operation;
  EXPECT_NE(operation, 0u);
  world.send_engine.on_delivered(world.peer, operation);
  world.send_engine.on_delivered(world.peer, operation);
  EXPECT_EQ(world.completions.size(), 0u) << "a part of it waits for credits";
  world.peer.tx.credits = 2;
  EXPECT_TRUE(world.send_engine.pump_backlogs());
  ASSERT_EQ(world.data.posted.size(), 3u);
  for (const SendRecord& record : world.data.posted) {
    EXPECT_TRUE(record.signalled);
    EXPECT_EQ(record.operation, operation);
  }
  EXPECT_EQ(world.completions.size(), 0u);
  world.send_engine.on_delivered(world.peer, operation);
  EXPECT_EQ(world.next_completion().length, kTotal);
  EXPECT_EQ(world.records.sends.in_use(), 0u);
  world.send_engine.on_delivered(world.peer, operation);  // nothing has that number any more
  EXPECT_EQ(world.completions.size(), 0u);
}

TEST(EagerFragments, EndWithTheirPeer) {
  SendingWorld world;
  world.data.result = Status(Code::system, "no queue pair");
  ASSERT_TRUE(world.send(numbered(kTotal), 5).ok());
  EXPECT_GT(world.above.count("lose_peer"), 0u);
  EXPECT_EQ(world.records.sends.in_use(), 0u);
}

TEST(EagerFragments, AreNotForMessagesThatAreLargeOrWaitForTheirMatch) {
  SendingWorld world;
  const std::vector<std::byte> bytes = numbered((32 << 10) + 1);
  ASSERT_TRUE(world.send(bytes, 5).ok());
  ASSERT_TRUE(world.send(std::span(bytes).first(kTotal), 6, true).ok());
  const std::vector<wire::Parsed> sent = world.messages();
  ASSERT_EQ(sent.size(), 2u);
  EXPECT_EQ(sent[0].header.type, wire::Type::rts);
  EXPECT_EQ(sent[1].header.type, wire::Type::rts);
}

struct ReceivingWorld : OperationsWorld {
  void arrive_first(std::uint32_t sequence, std::uint64_t tag) {
    std::vector<std::byte> payload(wire::kTotalBytes + kFirst);
    std::memcpy(payload.data(), &total, sizeof total);
    std::copy_n(bytes.begin(), kFirst, payload.begin() + wire::kTotalBytes);
    wire::Header header = eager(sequence, tag);
    header.type = wire::Type::eager_first;
    arrive(peer, header, payload);
  }
  void arrive_fragment(std::uint32_t sequence, std::size_t offset, std::size_t length) {
    wire::Header header;
    header.type = wire::Type::fragment;
    header.sequence = sequence;
    header.data = offset;
    arrive(peer, header, std::span(bytes).subspan(offset, length));
  }
  // The second and third fragment: all of the rest.
  void arrive_second(std::uint32_t sequence) { arrive_fragment(sequence, kFirst, 4'000); }
  void arrive_third(std::uint32_t sequence) { arrive_fragment(sequence, 7'000, 3'000); }
  [[nodiscard]] Status receive(std::uint64_t tag) {
    const iovec to = piece(memory);
    return receive_engine.recv_now(tagged_recv(kAnyPeer, to, tag, report(&memory[0])));
  }
  // The message of this tag, of which a part has arrived.
  void claim(std::uint64_t tag, int* of) {
    PeekRequest peek = tagged_peek(tag, report(of));
    peek.claim = true;
    ASSERT_TRUE(unexpected.peek(peek).ok());
    EXPECT_NE(next_completion().flags & kClaimed, 0u);
  }
  [[nodiscard]] Status receive_claimed(int* of) {
    const iovec to = piece(memory);
    return unexpected.recv_claimed(tagged_recv(kAnyPeer, to, 0, report(of)));
  }
  void lose_peer() {
    peer.lost = true;
    peer.state.make().loss = Status(Code::peer_lost, "it is gone");
    fragments.end_incoming(&peer);
    unexpected.drop_partial(peer);
  }
  void expect_whole() {
    const Completion done = next_completion();
    EXPECT_EQ(done.length, kTotal);
    EXPECT_EQ(done.source, peer.id);
    EXPECT_EQ(memory, bytes);
  }
  // Nothing of it is left, and nobody waits for a FIN.
  void expect_clean() {
    EXPECT_FALSE(fragments.awaits_fragment(peer));
    EXPECT_EQ(peer.rx.incoming_large, 0u);
    EXPECT_EQ(peer.rx.retained, 0u);
    EXPECT_EQ(resources.receives_kept, 0u);
    EXPECT_EQ(records.messages.in_use(), 0u);
    EXPECT_EQ(records.transfers.in_use(), 0u);
    EXPECT_EQ(context.account.line(MemoryKind::unexpected).now, before);
    for (const wire::ControlMessage& control : controls_of(credit))
      EXPECT_NE(control.type, wire::Control::fin);
    EXPECT_EQ(above.count("lose_peer"), 0u);
  }

  std::uint64_t total = kTotal;
  std::vector<std::byte> bytes = numbered(kTotal), memory = std::vector<std::byte>(kTotal);
  Peer& peer = add_known_peer(8);
  std::uint64_t before = records.messages.ready() && records.transfers.ready()
                             ? context.account.line(MemoryKind::unexpected).now
                             : 0;
};

TEST(EagerFragments, FillAReceiveThatIsPosted) {
  ReceivingWorld world;
  ASSERT_TRUE(world.receive(5).ok());
  world.arrive_first(0, 5);
  world.arrive_second(1);
  EXPECT_EQ(world.completions.size(), 0u);
  world.arrive_third(2);
  world.expect_whole();
  world.expect_clean();
  EXPECT_EQ(world.resources.to_post.size(), 3u);
  EXPECT_EQ(world.peer.rx.carried.messages, 1u);
  EXPECT_EQ(world.peer.rx.carried.bytes, kTotal);
}

TEST(EagerFragments, WaitForAReceiveThatIsPostedBeforeOrAfterTheLast) {
  for (const int posted_after : {1, 2, 3}) {
    ReceivingWorld world;
    world.arrive_first(0, 5);
    if (posted_after == 1) {
      ASSERT_TRUE(world.receive(5).ok());
    }
    world.arrive_second(1);
    if (posted_after == 2) {
      ASSERT_TRUE(world.receive(5).ok());
    }
    EXPECT_EQ(world.completions.size(), 0u);
    world.arrive_third(2);
    if (posted_after == 3) {
      ASSERT_TRUE(world.receive(5).ok());
    }
    world.expect_whole();
    world.expect_clean();
  }
}

TEST(EagerFragments, ThatDoNotFitTheReceiveAreReportedWithTheRest) {
  for (const bool unexpected : {false, true}) {
    ReceivingWorld world;
    world.memory.resize(5'000);
    if (!unexpected) {
      ASSERT_TRUE(world.receive(5).ok());
    }
    world.arrive_first(0, 5);
    if (unexpected) {
      ASSERT_TRUE(world.receive(5).ok());
    }
    world.arrive_second(1);
    EXPECT_FALSE(world.completions.has_error());
    world.arrive_third(2);
    ASSERT_TRUE(world.completions.has_error());
    const ErrorCompletion error = world.completions.pop_error();
    EXPECT_EQ(error.status.code(), Code::truncated);
    EXPECT_EQ(error.overflow, kTotal - 5'000);
    EXPECT_TRUE(std::equal(world.memory.begin(), world.memory.end(), world.bytes.begin()));
    world.expect_clean();
  }
}

TEST(EagerFragments, ArePeekedAtClaimedAndDiscardedAsOneMessage) {
  ReceivingWorld world;
  int claim = 0;
  world.arrive_first(0, 5);
  ASSERT_TRUE(world.unexpected.peek(tagged_peek(5, world.report(&claim))).ok());
  EXPECT_EQ(world.next_completion().length, kTotal);
  world.claim(5, &claim);
  world.arrive_second(1);
  ASSERT_TRUE(world.receive_claimed(&claim).ok());
  world.arrive_third(2);
  world.expect_whole();

  world.arrive_first(3, 6);
  PeekRequest peek = tagged_peek(6, world.report(&claim));
  peek.discard = true;
  ASSERT_TRUE(world.unexpected.peek(peek).ok());
  EXPECT_EQ(world.next_completion().length, kTotal);
  world.arrive_second(4);
  world.arrive_third(5);
  world.expect_clean();
  world.arrive_first(6, 5);  // the stream goes on
  ASSERT_TRUE(world.receive(5).ok());
  world.arrive_second(7);
  world.arrive_third(8);
  world.expect_whole();
  world.expect_clean();
}

TEST(EagerFragments, StallTheirStreamWhileThereIsNoRoomForTheMessage) {
  ReceivingWorld world;
  world.context.settings.unexpected_memory = 0;
  world.arrive_first(0, 5);
  EXPECT_EQ(world.peer.rx.retained, 1u);
  world.arrive_second(1);
  EXPECT_TRUE(world.peer.rx.stalled);
  world.arrive_third(2);
  EXPECT_EQ(world.peer.rx.sequence, 1u);
  EXPECT_FALSE(world.receive_engine.pump_stalled());
  // A receive waits for a message behind it: it is copied beyond the limit.
  EXPECT_TRUE(world.unexpected.relieve(world.peer));
  EXPECT_TRUE(world.receive_engine.pump_stalled());
  EXPECT_EQ(world.peer.rx.sequence, 3u);
  ASSERT_TRUE(world.receive(5).ok());
  world.expect_whole();
  world.expect_clean();
}

TEST(EagerFragments, GoOnIntoTheReceiveThatTakesAStalledMessage) {
  ReceivingWorld world;
  world.context.settings.unexpected_memory = 0;
  world.arrive_first(0, 5);
  world.arrive_second(1);
  ASSERT_TRUE(world.receive(5).ok());
  EXPECT_TRUE(world.receive_engine.pump_stalled());
  world.arrive_third(2);
  world.expect_whole();
  world.expect_clean();
}

TEST(EagerFragments, OfALostPeerDoNotReachAReceive) {
  for (const bool posted : {false, true}) {
    ReceivingWorld world;
    if (posted) {
      ASSERT_TRUE(world.receive(5).ok());
    }
    world.arrive_first(0, 5);
    world.lose_peer();
    EXPECT_EQ(world.completions.has_error(), posted);
    if (posted) {
      EXPECT_EQ(world.completions.pop_error().status.code(), Code::peer_lost);
    }
    EXPECT_EQ(world.records.matcher.find_unexpected({kAnyPeer, 5, 0, true}), nullptr);
    world.expect_clean();
  }
}

TEST(EagerFragments, OfALostPeerEndTheReceiveOfWhoClaimedThem) {
  ReceivingWorld world;
  int claim = 0;
  world.arrive_first(0, 5);
  world.claim(5, &claim);
  world.lose_peer();
  ASSERT_TRUE(world.receive_claimed(&claim).ok());
  ASSERT_TRUE(world.completions.has_error());
  EXPECT_EQ(world.completions.pop_error().status.code(), Code::peer_lost);
  world.expect_clean();
}

TEST(EagerFragments, ThatCannotBeRightLoseThePeer) {
  for (const bool posted : {false, true}) {
    for (const int wrong : {0, 1, 2, 3, 4}) {
      ReceivingWorld world;
      if (posted) {
        ASSERT_TRUE(world.receive(5).ok());
      }
      if (wrong == 0) world.total = kFirst;  // no longer than its first fragment
      if (wrong == 1) world.total = wire::kMostFragmented + 1;
      world.arrive_first(0, 5);
      if (wrong == 2) world.arrive_first(1, 5);                // the other has not ended
      if (wrong == 3) world.arrive_fragment(1, 4'000, 1'000);  // not the next one
      if (wrong == 4) {
        world.arrive_second(1);
        world.arrive_fragment(2, 6'500, 3'500);  // overlaps
      }
      EXPECT_EQ(world.above.count("lose_peer") + world.above.count("protocol_error"), 1u)
          << posted << wrong;
    }
  }
}

TEST(EagerFragments, ThatBelongToNoMessageAreDropped) {
  ReceivingWorld world;
  world.arrive_second(0);
  EXPECT_EQ(world.peer.rx.sequence, 1u);
  world.expect_clean();
}

}  // namespace
}  // namespace turnout
