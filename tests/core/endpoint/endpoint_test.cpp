// SPDX-License-Identifier: BSD-3-Clause
// What one endpoint promises another, case by case.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <vector>

#include "base/settings.h"
#include "tests/core/endpoint/deliver.h"
#include "tests/support/requests.h"
#include "tests/support/test_world.h"

namespace turnout {
namespace {

// A message of `bytes` from one endpoint to the other, its receive posted before and after.
void send_posted_and_unexpected(TestWorld& world, std::size_t bytes) {
  for (const bool early : {true, false}) {
    auto out = pattern(bytes, early);
    std::vector<std::byte> in(bytes + 8);
    const iovec to = piece(in), from = piece(out);
    int context = 0;
    if (early) {
      ASSERT_TRUE(world[1].recv(tagged_recv(kAnyPeer, to, 5, world.report(1, &context))).ok());
    }
    ASSERT_TRUE(
        world[0].send(tagged_send(world.peer(0, 1), from, 5, world.report(0, nullptr))).ok());
    if (!early) {
      world.progress_all(20);
      ASSERT_TRUE(
          world[1].recv(tagged_recv(world.peer(1, 0), to, 5, world.report(1, &context))).ok());
    }
    ASSERT_TRUE(
        world.until([&] { return world.queue(0).size() == 1 && world.queue(1).size() == 1; }));
    const Completion sent = take(world.queue(0));
    EXPECT_NE(sent.flags & kSend, 0u);
    const Completion got = take(world.queue(1));
    EXPECT_EQ(got.context, &context);
    EXPECT_EQ(got.length, out.size());
    EXPECT_EQ(got.tag, 5u);
    EXPECT_EQ(got.source, world.peer(1, 0));
    EXPECT_TRUE(std::equal(out.begin(), out.end(), in.begin()));
  }
}

class Sizes : public testing::TestWithParam<std::size_t> {};

TEST_P(Sizes, PostedAndUnexpectedArriveWhole) {
  TestWorld world(2);
  send_posted_and_unexpected(world, GetParam());
}
INSTANTIATE_TEST_SUITE_P(Core, Sizes,
                         testing::Values(0, 1, 8, 192, 193, 256, 3991, 3992, 3993, 4000, 4001, 4065,
                                         65536, 1 << 20, (3 << 20) + 5));

class EagerSizes : public testing::TestWithParam<std::string_view> {};

// Several times, so that a policy that changes the channel of a pair does.
TEST_P(EagerSizes, ArriveWholeInFragments) {
  TestWorld world(2, {{"rendezvous_threshold", "65536"},
                      {"policy", std::string(GetParam())},
                      {"ring_threshold", "2"}});
  for (int round = 0; round < 5; ++round) {
    for (const std::size_t bytes : {3991, 4033, 4065, 8192, 20'000, 65'536, 65'537})
      send_posted_and_unexpected(world, bytes);
  }
}
INSTANTIATE_TEST_SUITE_P(Core, EagerSizes, testing::ValuesIn(kPolicyNames), [](const auto& info) {
  std::string name(info.param);
  std::erase_if(name, [](char c) { return std::isalnum(c) == 0; });
  return name;
});

TEST(Endpoint, TruncationIsReportedWithWhatDidNotFit) {
  TestWorld world(2);
  for (const std::size_t size : {std::size_t{100}, std::size_t{100000}}) {
    auto out = pattern(size, 1);
    std::vector<std::byte> in(60);
    const iovec to = piece(in), from = piece(out);
    ASSERT_TRUE(world[1].recv(tagged_recv(kAnyPeer, to, 1, world.report(1, nullptr))).ok());
    ASSERT_TRUE(
        world[0].send(tagged_send(world.peer(0, 1), from, 1, world.report(0, nullptr))).ok());
    ASSERT_TRUE(
        world.until([&] { return world.queue(1).has_error() && world.queue(0).size() == 1; }));
    const ErrorCompletion error = world.queue(1).pop_error();
    EXPECT_EQ(error.status.code(), Code::truncated);
    EXPECT_EQ(error.overflow, size - 60);
    EXPECT_EQ(std::memcmp(in.data(), out.data(), 60), 0);
    take(world.queue(0));
  }
}

TEST(Endpoint, PeekClaimAndDiscard) {
  TestWorld world(2);
  for (const std::size_t size : {std::size_t{10}, std::size_t{50000}}) {
    auto out = pattern(size, 2);
    const iovec from = piece(out);
    PeekRequest peek;
    int context = 0;
    peek.report = world.report(1, &context);
    peek.tag = 9;
    ASSERT_TRUE(world[1].peek(peek).ok());
    ASSERT_TRUE(world.queue(1).has_error());
    EXPECT_EQ(world.queue(1).pop_error().status.code(), Code::no_message);
    for (int i = 0; i < 3; ++i) {
      ASSERT_TRUE(
          world[0].send(tagged_send(world.peer(0, 1), from, 9, world.report(0, nullptr))).ok());
    }
    world.progress_all(50);
    ASSERT_TRUE(world[1].peek(peek).ok());  // looks only
    EXPECT_EQ(take(world.queue(1)).length, size);
    peek.claim = true;
    ASSERT_TRUE(world[1].peek(peek).ok());
    EXPECT_NE(take(world.queue(1)).flags & kClaimed, 0u);
    peek.claim = false;
    peek.discard = true;
    ASSERT_TRUE(world[1].peek(peek).ok());
    take(world.queue(1));
    std::vector<std::byte> in(size);
    const iovec to = piece(in);
    // The claimed one is found by its context, whatever peer and tag say.
    ASSERT_TRUE(
        world[1].recv_claimed(tagged_recv(kAnyPeer, to, 0, world.report(1, &context))).ok());
    ASSERT_TRUE(world.until([&] { return world.queue(1).size() == 1; }));
    take(world.queue(1));
    EXPECT_EQ(in, out);
    ASSERT_TRUE(world[1].recv(tagged_recv(kAnyPeer, to, 9, world.report(1, nullptr))).ok());
    ASSERT_TRUE(
        world.until([&] { return world.queue(1).size() == 1 && world.queue(0).size() == 3; }));
    take(world.queue(1));
    for (int i = 0; i < 3; ++i) take(world.queue(0));
    EXPECT_FALSE(
        world[1].recv_claimed(tagged_recv(kAnyPeer, to, 0, world.report(1, &context))).ok());
  }
}

TEST(Endpoint, TellsOfMessagesThatNoReceiveWaitsFor) {
  struct Watcher : UnexpectedWatcher {
    void on_unexpected(const TakenMessage& message, bool arrived) override {
      told.push_back({arrived ? 1 : -1, static_cast<int>(message.tag), message.length});
    }
    struct Told {
      int change, tag;
      std::size_t length;
      bool operator==(const Told&) const = default;
    };
    std::vector<Told> told;
  } watcher;
  TestWorld world(2);
  std::vector<std::byte> little(8), large(100'000), in(100'000);
  EXPECT_TRUE(world[1].watch_unexpected(&watcher).empty());
  const auto send = [&](std::vector<std::byte>& bytes, std::uint64_t tag) {
    const iovec out = piece(bytes);
    ASSERT_TRUE(
        world[0].send(tagged_send(world.peer(0, 1), out, tag, world.report(0, nullptr))).ok());
    const std::size_t before = watcher.told.size();
    ASSERT_TRUE(world.until([&] { return watcher.told.size() > before; }));
  };
  send(little, 1);
  send(large, 2);
  const std::vector<TakenMessage> waiting = world[1].watch_unexpected(&watcher);
  ASSERT_EQ(waiting.size(), 2u);
  EXPECT_EQ(waiting[1].tag, 2u);
  EXPECT_EQ(waiting[1].length, large.size());
  EXPECT_TRUE(waiting[1].tagged);
  PeekRequest peek;
  peek.tag = 1;
  peek.discard = true;
  peek.report = world.report(1, nullptr);
  ASSERT_TRUE(world[1].peek(peek).ok());
  (void)take(world.queue(1));
  const iovec place = piece(in);
  ASSERT_TRUE(world[1].recv(tagged_recv(kAnyPeer, place, 2, world.report(1, nullptr))).ok());
  ASSERT_TRUE(world.until([&] { return world.queue(1).size() == 1; }));
  const std::vector<Watcher::Told> expected = {
      {1, 1, 8}, {1, 2, large.size()}, {-1, 1, 8}, {-1, 2, large.size()}};
  EXPECT_EQ(watcher.told, expected);
  EXPECT_TRUE(world[1].watch_unexpected(nullptr).empty());
}

TEST(Endpoint, CancelEndsInAnErrorEntryOnce) {
  TestWorld world(2);
  std::vector<std::byte> in(10);
  const iovec to = piece(in);
  int context = 0;
  ASSERT_TRUE(world[1].recv(tagged_recv(kAnyPeer, to, 1, world.report(1, &context))).ok());
  EXPECT_TRUE(world[1].cancel(&context));
  EXPECT_FALSE(world[1].cancel(&context));
  ASSERT_TRUE(world.queue(1).has_error());
  EXPECT_EQ(world.queue(1).pop_error().status.code(), Code::canceled);
}

TEST(Endpoint, MultiReceiveFillsOneBufferAndSaysWhenItIsDone) {
  TestWorld world(2);
  std::vector<std::byte> in(1000);
  const iovec to = piece(in);
  RecvRequest request;
  request.buffer = {&to, 1};
  request.multi = true;
  request.min_free = 200;
  request.report = world.report(1, &in);
  ASSERT_TRUE(world[1].recv(request).ok());
  auto out = pattern(300, 3);
  const iovec from = piece(out);
  for (int i = 0; i < 3; ++i) {
    SendRequest send;
    send.peer = world.peer(0, 1);
    send.data = {&from, 1};
    send.report = world.report(0, nullptr);
    ASSERT_TRUE(world[0].send(send).ok());
  }
  ASSERT_TRUE(world.until([&] { return world.queue(1).size() == 3; }));
  for (int i = 0; i < 3; ++i) {
    const Completion c = take(world.queue(1));
    EXPECT_EQ(c.buffer, in.data() + 300 * i);
    EXPECT_EQ(c.length, 300u);
    EXPECT_EQ((c.flags & kMultiRecvDone) != 0, i == 2);
    EXPECT_EQ(std::memcmp(c.buffer, out.data(), 300), 0);
  }
}

TEST(Endpoint, RmaWritesReadsAndRefusesBadKeys) {
  TestWorld world(2);
  auto target = pattern(200000, 4);
  auto key = world[1].memory().register_memory(target.data(), target.size(),
                                               kAccessRemoteRead | kAccessRemoteWrite);
  ASSERT_TRUE(key.ok());
  for (const std::size_t size :
       {std::size_t{0}, std::size_t{8}, std::size_t{4096}, std::size_t{150000}}) {
    auto local = pattern(size, 9);
    const iovec from = piece(local);
    RmaRequest write;
    write.peer = world.peer(0, 1);
    write.write = true;
    write.local = {&from, 1};
    write.length = size;
    write.remote_address = reinterpret_cast<std::uint64_t>(target.data() + 100);
    write.key = key.value().remote;
    write.report = world.report(0, nullptr);
    ASSERT_TRUE(world[0].rma(write).ok());
    ASSERT_TRUE(world.until([&] { return world.queue(0).size() == 1; }));
    EXPECT_NE(take(world.queue(0)).flags & kRmaWrite, 0u);
    EXPECT_TRUE(std::equal(local.begin(), local.end(), target.begin() + 100));
    std::vector<std::byte> back(size);
    const iovec to = piece(back);
    RmaRequest read = write;
    read.write = false;
    read.local = {&to, 1};
    ASSERT_TRUE(world[0].rma(read).ok());
    ASSERT_TRUE(world.until([&] { return world.queue(0).size() == 1; }));
    take(world.queue(0));
    EXPECT_EQ(back, local);
  }
  auto local = pattern(64, 1);
  const iovec from = piece(local);
  RmaRequest bad;
  bad.peer = world.peer(0, 1);
  bad.write = true;
  bad.local = {&from, 1};
  bad.length = 64;
  bad.remote_address = reinterpret_cast<std::uint64_t>(target.data() + target.size() - 10);
  bad.key = key.value().remote;
  bad.report = world.report(0, nullptr);
  ASSERT_TRUE(world[0].rma(bad).ok());
  ASSERT_TRUE(world.until([&] { return world.queue(0).has_error(); }));
  EXPECT_EQ(world.queue(0).pop_error().status.code(), Code::permission);
  // The channel it went over still works.
  std::vector<std::byte> in(64);
  const iovec to = piece(in);
  ASSERT_TRUE(world[1].recv(tagged_recv(kAnyPeer, to, 3, world.report(1, nullptr))).ok());
  ASSERT_TRUE(world[0].send(tagged_send(world.peer(0, 1), from, 3, world.report(0, nullptr))).ok());
  ASSERT_TRUE(world.until([&] { return world.queue(1).size() == 1; }));
  world[1].memory().deregister_memory(key.value());
}

TEST(Endpoint, RemoteDataOfAWriteArrivesBehindIt) {
  TestWorld world(2);
  world[1].set_remote_access({.writes = world.report(1, nullptr)});
  std::vector<std::byte> target(100);
  auto key = world[1].memory().register_memory(target.data(), target.size(), kAccessRemoteWrite);
  ASSERT_TRUE(key.ok());
  auto local = pattern(100, 5);
  const iovec from = piece(local);
  RmaRequest write;
  write.peer = world.peer(0, 1);
  write.write = true;
  write.has_remote_data = true;
  write.remote_data = 0x1234;
  write.local = {&from, 1};
  write.length = 100;
  write.remote_address = reinterpret_cast<std::uint64_t>(target.data());
  write.key = key.value().remote;
  write.report = world.report(0, nullptr);
  ASSERT_TRUE(world[0].rma(write).ok());
  ASSERT_TRUE(world.until([&] { return world.queue(1).size() == 1; }));
  const Completion c = take(world.queue(1));
  EXPECT_NE(c.flags & kRemoteWrite, 0u);
  EXPECT_EQ(c.data, 0x1234u);
  EXPECT_EQ(target, local);
  world[1].memory().deregister_memory(key.value());
}

// Of both kinds, over DC and over a connection; who does not ask for events sends none.
TEST(Endpoint, CountsWhatPeersDoWithItsMemory) {
  TestWorld world(2, {{"test_switch_every", "50"}});
  Counter writes, reads;
  world[1].set_remote_access(
      {.writes = {nullptr, nullptr, &writes, nullptr}, .reads = &reads, .events = true});
  std::vector<std::byte> target(100);
  auto key = world[1].memory().register_memory(target.data(), target.size(),
                                               kAccessRemoteWrite | kAccessRemoteRead);
  ASSERT_TRUE(key.ok());
  auto local = pattern(100, 5);
  const iovec from = piece(local);
  RmaRequest request;
  request.peer = world.peer(0, 1);
  request.local = {&from, 1};
  request.length = 100;
  request.remote_address = reinterpret_cast<std::uint64_t>(target.data());
  request.key = key.value().remote;
  request.report = world.report(0, nullptr);
  std::vector<std::byte> in(16);
  auto out = pattern(16, 6);
  std::uint64_t wrote = 0, read = 0;
  for (int i = 0; i < 300; ++i) {
    request.write = i % 3 != 0;
    request.has_event = i % 4 != 0;
    ASSERT_TRUE(world[0].rma(request).ok());
    ASSERT_TRUE(world.until([&] { return world.queue(0).size() == 1; }));
    (void)take(world.queue(0));
    if (request.has_event) ++(request.write ? wrote : read);
    ASSERT_TRUE(world.until([&] { return writes.value == wrote && reads.value == read; }));
    ASSERT_TRUE(deliver(world, 0, 1, out, in, kAnyPeer));
    ASSERT_EQ(writes.value, wrote);
    ASSERT_EQ(reads.value, read);
  }
  EXPECT_EQ(target, local);
  world[1].memory().deregister_memory(key.value());
}

TEST(Endpoint, ADirectionChangesChannelAndBackAndItsQueuePairIsReused) {
  TestWorld world(2, {{"test_switch_every", "50"}});
  std::vector<std::byte> in(16);
  auto out = pattern(16, 6);
  for (int i = 0; i < 1000; ++i) {
    ASSERT_TRUE(deliver(world, 0, 1, out, in, kAnyPeer)) << "message " << i;
  }
  const EndpointReport report = world[1].report();
  ASSERT_EQ(report.peers.size(), 1u);
  EXPECT_GE(report.peers[0].receive.switches, 18u);
  std::uint64_t over_rc = 0, messages = 0;
  for (const ChannelSpan& span : report.peers[0].receive.spans) {
    messages += span.messages;
    if (turnout::over_rc(span.channel)) over_rc += span.messages;
  }
  EXPECT_EQ(messages, 1000u);
  EXPECT_GT(over_rc, 300u);
  EXPECT_LE(report.peak, report.budget);
}

// `count` messages of 8 bytes from 0 to 1, one after the other, and what 1 reports then.
EndpointReport after_messages(TestWorld& world, int count) {
  std::vector<std::byte> in(8);
  auto out = pattern(8, 7);
  for (int i = 0; i < count; ++i) EXPECT_TRUE(deliver(world, 0, 1, out, in, kAnyPeer));
  world.progress_all(50);
  return world[1].report();
}

TEST(Endpoint, SelectionMovesABusySourceToRcByItself) {
  TestWorld world(2, {{"policy", "aqps"}});
  std::vector<std::byte> in(8);
  auto out = pattern(8, 7);
  bool on_rc = false;
  for (int i = 0; i < 20000 && !on_rc; ++i) {
    ASSERT_TRUE(deliver(world, 0, 1, out, in, kAnyPeer));
    world.clock().advance(300'000);
    const EndpointReport report = world[1].report();
    on_rc = report.peers[0].receive.spans.back().channel == ChannelKind::rc_rdma;
  }
  ASSERT_TRUE(on_rc);
  const EndpointReport report = world[1].report();
  ASSERT_FALSE(report.decisions.empty());
  EXPECT_EQ(report.decisions[0].to, ChannelKind::rc_rdma);
  EXPECT_NE(report.decisions[0].outcome.find("done"), std::string::npos);
  const EndpointReport later = after_messages(world, 100);
  EXPECT_EQ(later.peers[0].receive.spans.back().channel, ChannelKind::rc_rdma);
  EXPECT_EQ(later.decisions.size(), report.decisions.size());
  EXPECT_FALSE(report.peers[0].reason.empty());
}

TEST(Endpoint, AResponderWithoutAQueuePairRefusesAndTheReasonIsReported) {
  TestWorld world(2, {{"policy", "static:rc-rdma"}, {"max_active_rc", "0"}});
  const EndpointReport report = after_messages(world, 100);
  EXPECT_EQ(report.peers[0].receive.switches, 0u);
  ASSERT_FALSE(report.decisions.empty());
  EXPECT_NE(report.decisions[0].outcome.find("refused by peer: its limit"), std::string::npos)
      << report.decisions[0].outcome;
  EXPECT_GT(world[0].report().operations.refusals, 0u);
}

TEST(Endpoint, AResponderWithoutAQueuePairOffersARingOverDcInstead) {
  TestWorld world(2, {{"test_switch_every", "20"}, {"max_active_rc", "0"}});
  const EndpointReport report = after_messages(world, 500);
  bool offered = false;
  for (const DecisionReport& decision : report.decisions) {
    if (decision.to != ChannelKind::rc_rdma || decision.from != ChannelKind::dc_sendrecv) continue;
    offered = true;
    EXPECT_NE(decision.outcome.find("refused by peer: its limit"), std::string::npos);
    EXPECT_NE(decision.outcome.find("the peer writes to the ring over DC"), std::string::npos)
        << decision.outcome;
  }
  EXPECT_TRUE(offered);
  std::uint64_t over_dc_ring = 0;
  for (const ChannelSpan& span : report.peers[0].receive.spans) {
    EXPECT_NE(span.channel, ChannelKind::rc_rdma);
    if (span.channel == ChannelKind::dc_rdma) over_dc_ring += span.messages;
  }
  EXPECT_GT(over_dc_ring, 100u);
}

TEST(Endpoint, EveryChangeBetweenTheKindsOfChannelIsMade) {
  TestWorld world(2, {{"test_switch_every", "10"}});
  const EndpointReport report = after_messages(world, 200);
  std::set<std::pair<ChannelKind, ChannelKind>> made;
  for (const DecisionReport& decision : report.decisions) {
    if (decision.outcome.starts_with("done")) made.emplace(decision.from, decision.to);
  }
  EXPECT_EQ(made.size(), 10u);
}

TEST(Endpoint, OnDemandPoliciesGiveTheirChannelAtTheFirstMessage) {
  for (const auto& [policy, kind] : std::vector<std::pair<std::string, ChannelKind>>{
           {"dc-rdma-od", ChannelKind::dc_rdma},
           {"static:dc-rdma", ChannelKind::dc_rdma},
           {"rc-rdma-od", ChannelKind::rc_rdma},
           {"static:rc-rdma", ChannelKind::rc_rdma},
           {"srq", ChannelKind::rc_srq},
           {"ardma-sr", ChannelKind::rc_sr},
           {"static:dc-sendrecv", ChannelKind::dc_sendrecv}}) {
    TestWorld world(2, {{"policy", policy}});
    const EndpointReport report = after_messages(world, 50);
    const auto& spans = report.peers[0].receive.spans;
    EXPECT_EQ(spans.back().channel, kind) << policy;
    EXPECT_GE(spans.back().messages, 40u) << policy;
    EXPECT_LE(spans.size(), 2u) << policy;
  }
}

TEST(Endpoint, AClosedPeerEndsTheOperationsThatWaitForIt) {
  TestWorld world(3);
  std::vector<std::byte> in(8);
  auto out = pattern(8, 1);
  const iovec to = piece(in), from = piece(out);
  // They know each other.
  ASSERT_TRUE(world[1].send(tagged_send(world.peer(1, 0), from, 1, world.report(1, nullptr))).ok());
  ASSERT_TRUE(world[0].recv(tagged_recv(kAnyPeer, to, 1, world.report(0, nullptr))).ok());
  ASSERT_TRUE(world.until([&] { return world.queue(0).size() == 1; }));
  take(world.queue(0));
  ASSERT_TRUE(world[0].recv(tagged_recv(world.peer(0, 1), to, 2, world.report(0, nullptr))).ok());
  world.progress_all(10);
  const Address gone = world[1].address();
  world.close(1);
  ASSERT_TRUE(world.until(
      [&] {
        world.clock().advance(10'000'000);
        return world.queue(0).has_error();
      },
      200000));
  EXPECT_EQ(world.queue(0).pop_error().status.code(), Code::peer_lost);
  auto id = world[0].peer(gone);
  ASSERT_TRUE(id.ok());
  EXPECT_EQ(world[0].send(tagged_send(id.value(), from, 1, world.report(0, nullptr))).code(),
            Code::peer_lost);
  // Others go on.
  ASSERT_TRUE(world[2].recv(tagged_recv(kAnyPeer, to, 1, world.report(2, nullptr))).ok());
  ASSERT_TRUE(world[0].send(tagged_send(world.peer(0, 2), from, 1, world.report(0, nullptr))).ok());
  ASSERT_TRUE(world.until([&] { return world.queue(2).size() == 1; }));
}

TEST(Endpoint, MessagesToItselfArrive) {
  TestWorld world(1);
  for (const std::size_t size : {std::size_t{8}, std::size_t{100000}}) {
    auto out = pattern(size, 8);
    std::vector<std::byte> in(size);
    const iovec to = piece(in), from = piece(out);
    ASSERT_TRUE(world[0].recv(tagged_recv(kAnyPeer, to, 1, world.report(0, nullptr))).ok());
    ASSERT_TRUE(
        world[0].send(tagged_send(world.peer(0, 0), from, 1, world.report(0, nullptr))).ok());
    ASSERT_TRUE(world.until([&] { return world.queue(0).size() == 2; }));
    take(world.queue(0));
    take(world.queue(0));
    EXPECT_EQ(in, out);
  }
}

// Sends 8 bytes for which there is a receive only later. `delay` says when the send ends.
void send_before_receive(bool SendRequest::*delay, bool ends_before_receive) {
  TestWorld world(2);
  auto out = pattern(8, 8);
  std::vector<std::byte> in(8);
  const iovec to = piece(in), from = piece(out);
  SendRequest send = tagged_send(world.peer(0, 1), from, 1, world.report(0, nullptr));
  send.*delay = true;
  ASSERT_TRUE(world[0].send(send).ok());
  EXPECT_EQ(world.queue(0).size(), 0u);
  if (ends_before_receive) {
    ASSERT_TRUE(world.until([&] { return world.queue(0).size() == 1; }));
  } else {
    world.progress_all(200);
    EXPECT_EQ(world.queue(0).size(), 0u);
  }
  ASSERT_TRUE(world[1].recv(tagged_recv(kAnyPeer, to, 1, world.report(1, nullptr))).ok());
  ASSERT_TRUE(
      world.until([&] { return world.queue(0).size() == 1 && world.queue(1).size() == 1; }));
  EXPECT_EQ(take(world.queue(0)).length, out.size());
  EXPECT_EQ(in, out);
}

// The adapter of UD does not know what arrives: there the receiver says so.
TEST(Endpoint, DeliveryCompleteWaitsForTheAdapterOnly) {
  const bool datagrams = std::getenv("TURNOUT_DEFAULT_TRANSPORT") != nullptr;
  send_before_receive(&SendRequest::delivery_complete, !datagrams);
}

TEST(Endpoint, MatchCompleteWaitsForTheReceiver) {
  send_before_receive(&SendRequest::match_complete, false);
}

}  // namespace
}  // namespace turnout
