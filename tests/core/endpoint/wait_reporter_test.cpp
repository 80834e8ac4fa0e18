// SPDX-License-Identifier: BSD-3-Clause
// What pending operations wait for, how long they are known to, and TURNOUT_STUCK.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "core/endpoint/stuck_watch.h"
#include "tests/support/parts_world.h"
#include "tests/support/requests.h"
#include "tests/support/scratch.h"

namespace turnout {
namespace {

constexpr Nanoseconds kSecond = 1'000'000'000;

struct WaitWorld : PartsWorld {
  explicit WaitWorld(const Settings& settings = stub_settings()) : PartsWorld(settings) {
    make_queues();
    context.format.own_eager_size = kBytes;
    registration.start_registrations();
  }
  // A second later.
  WaitsReport look() {
    clock.time += kSecond;
    return waits.look(clock.time);
  }
  // The only operation that is pending.
  WaitReport only() {
    const WaitsReport all = look();
    EXPECT_EQ(all.list.size(), 1u);
    return all.list.empty() ? WaitReport{} : all.list.front();
  }
  // One that can be sent to.
  Peer& ready_peer(std::uint32_t credits = 8) {
    Peer& peer = add_peer();
    peer.tx.kind = peer.rx.kind = ChannelKind::dc_sendrecv;
    peer.tx.credits = credits;
    peer.address.port = &port;
    return peer;
  }
  void receive(PeerId peer, std::uint64_t tag, std::uint64_t ignore = 0) {
    RecvRequest request = tagged_recv(peer, part, tag, report());
    request.ignore = ignore;
    ASSERT_TRUE(operations.receive_engine.recv_now(request).ok());
  }
  SendRequest send_request(const Peer& peer, std::uint64_t tag) {
    return tagged_send(peer.id, part, tag, report());
  }
  void send(const Peer& peer, std::uint64_t tag) {
    ASSERT_TRUE(operations.send_engine.send_now(send_request(peer, tag)).ok());
  }
  void send_large(const Peer& peer, std::uint64_t tag) {
    SendRequest request = send_request(peer, tag);
    request.data = {&large_part, 1};
    ASSERT_TRUE(operations.send_engine.send_now(request).ok());
  }
  UnexpectedMessage& arrived(const Peer& peer, std::uint64_t tag, std::uint32_t sequence) {
    UnexpectedMessage& message = *records.messages.take();
    message.peer = peer.id;
    message.tagged = true;
    message.tag = tag;
    message.total = 12;
    message.header.sequence = sequence;
    return message;
  }
  Transfer& transfer(Peer& peer, Transfer::Kind kind) {
    Transfer& made = *records.transfers.take();
    made.peer = &peer;
    made.kind = kind;
    made.total = 1000;
    return made;
  }

  std::vector<std::byte> bytes = std::vector<std::byte>(100),
                         large = std::vector<std::byte>(1 << 20);
  iovec part = piece(bytes), large_part = piece(large);
  RemotePort port;
  WaitReporter waits{*this};
};

TEST(WaitReporter, NothingIsPending) {
  WaitWorld world;
  world.ready_peer();
  const WaitsReport report = world.look();
  EXPECT_TRUE(report.list.empty());
  EXPECT_EQ(report.totals, decltype(report.totals){});
  EXPECT_TRUE(report.mpi.empty());
}

TEST(WaitReporter, AReceiveAndItsAge) {
  WaitWorld world;
  Peer& peer = world.ready_peer();
  world.receive(peer.id, 5, 0xf0);
  WaitReport wait = world.only();
  EXPECT_EQ(wait.kind, WaitKind::receive);
  EXPECT_EQ(wait.waits_for, WaitFor::message);
  EXPECT_EQ(wait.peer, peer.id);
  EXPECT_TRUE(wait.tagged);
  EXPECT_EQ(wait.tag, 5u);
  EXPECT_EQ(wait.ignore, 0xf0u);
  EXPECT_EQ(wait.bytes, 100u);
  EXPECT_EQ(wait.age, 0);
  EXPECT_EQ(world.only().age, kSecond);
  EXPECT_EQ(world.only().age, 2 * kSecond);
  // Its record may be another receive's by now.
  ++peer.rx.sequence;
  EXPECT_EQ(world.only().age, 0);
  ++world.context.delivered;  // of another peer
  EXPECT_EQ(world.only().age, kSecond);
}

TEST(WaitReporter, AReceiveOfAnyPeer) {
  WaitWorld world;
  world.receive(kAnyPeer, 5);
  EXPECT_FALSE(world.only().peer.has_value());
  EXPECT_EQ(world.only().age, kSecond);
  ++world.context.delivered;
  EXPECT_EQ(world.only().age, 0);
}

TEST(WaitReporter, AReceiveForManyMessagesIsNone) {
  WaitWorld world;
  RecvRequest request = tagged_recv(kAnyPeer, world.part, 0, world.report());
  request.tagged = false;
  request.multi = true;
  ASSERT_TRUE(world.operations.receive_engine.recv_now(request).ok());
  EXPECT_TRUE(world.look().list.empty());
}

TEST(WaitReporter, TheOldestAreListedAndAllAreCounted) {
  WaitWorld world;
  const Peer& peer = world.ready_peer();
  for (std::uint64_t tag = 0; tag < 40; ++tag) world.receive(peer.id, tag);
  (void)world.look();
  for (std::uint64_t tag = 40; tag < 100; ++tag) world.receive(peer.id, tag);
  const WaitsReport report = world.look();
  ASSERT_EQ(report.list.size(), WaitsReport::kMost);
  EXPECT_EQ(report.total(WaitKind::receive), 100u);
  EXPECT_EQ(report.list.front().tag, 0u);
  EXPECT_EQ(report.list.front().age, kSecond);
  EXPECT_EQ(report.list.back().tag, 63u);
  EXPECT_EQ(report.list.back().age, 0);
}

TEST(WaitReporter, AnUnexpectedMessage) {
  WaitWorld world;
  Peer& peer = world.ready_peer();
  world.records.matcher.add_unexpected(&world.arrived(peer, 9, 3));
  WaitReport wait = world.only();
  EXPECT_EQ(wait.kind, WaitKind::unexpected);
  EXPECT_EQ(wait.waits_for, WaitFor::receive);
  EXPECT_EQ(wait.tag, 9u);
  EXPECT_EQ(wait.bytes, 12u);
  ++peer.rx.sequence;
  EXPECT_EQ(world.only().age, kSecond);  // it has a number of its own
  EXPECT_FALSE(blocks(wait.kind));
}

TEST(WaitReporter, WhatHoldsUpTheFirstOfABacklog) {
  WaitWorld world;
  Peer& peer = world.ready_peer(0);
  world.send(peer, 1);
  world.send(peer, 2);
  const auto first_waits_for = [&](const std::function<void()>& change) {
    change();
    const WaitsReport report = world.look();
    EXPECT_EQ(report.list.size(), 2u);
    EXPECT_EQ(report.total(WaitKind::send), 2u);
    EXPECT_EQ(report.list[1].waits_for, WaitFor::order);
    EXPECT_EQ(report.list[0].kind, WaitKind::send);
    EXPECT_EQ(report.list[0].tag, 1u);
    EXPECT_EQ(report.list[0].bytes, 100u);
    return report.list[0].waits_for;
  };
  EXPECT_EQ(first_waits_for([] {}), WaitFor::credits);
  EXPECT_EQ(first_waits_for([&] { peer.remote_index = wire::kUnknownIndex; }), WaitFor::wire_up);
  EXPECT_EQ(first_waits_for([&] { peer.tx.credits = 1; }), WaitFor::resources);
  EXPECT_EQ(first_waits_for([&] { peer.tx.kind = ChannelKind::dc_rdma; }), WaitFor::ring);
  EXPECT_EQ(first_waits_for([&] { peer.state.make().tx.ring.credits = 1; }), WaitFor::resources);
  const WaitsReport report = world.look();
  EXPECT_EQ(report.list[0].age, 5 * kSecond);
  ++peer.tx.sequence;  // something was sent
  EXPECT_EQ(world.look().list[0].age, 0);
}

TEST(WaitReporter, AChangingChannelHoldsUpMessages) {
  WaitWorld world;
  Peer& peer = world.ready_peer();
  peer.tx.state = SendState::error;
  world.send(peer, 1);
  const WaitsReport report = world.look();
  ASSERT_EQ(report.list.size(), 2u);
  EXPECT_EQ(report.list[0].waits_for, WaitFor::channel);
  EXPECT_EQ(report.list[1].kind, WaitKind::channel);
  EXPECT_EQ(report.list[1].peer, peer.id);
  peer.tx.state = SendState::steady;
  peer.rx.state = ReceiveState::requested;
  EXPECT_EQ(world.look().total(WaitKind::channel), 1u);
}

TEST(WaitReporter, ALargeMessageThatWasAnnounced) {
  WaitWorld world;
  Peer& peer = world.ready_peer();
  world.send_large(peer, 7);
  WaitReport wait = world.only();
  EXPECT_EQ(wait.kind, WaitKind::send);
  EXPECT_EQ(wait.waits_for, WaitFor::match);
  EXPECT_EQ(wait.bytes, world.large.size());
  ++peer.tx.sequence;
  EXPECT_EQ(world.only().age, kSecond);  // it has a number of its own
}

TEST(WaitReporter, AMessageWhoseArrivalIsToBeConfirmed) {
  WaitWorld world;
  Peer& peer = world.ready_peer();
  SendRequest request = world.send_request(peer, 3);
  request.match_complete = true;
  ASSERT_TRUE(world.operations.send_engine.send_now(request).ok());
  EXPECT_EQ(world.only().waits_for, WaitFor::delivery);
}

TEST(WaitReporter, MessagesThatHaveArrivedInPart) {
  WaitWorld world;
  Peer& peer = world.ready_peer();
  world.operations.unexpected.waiting().push_back(&world.arrived(peer, 4, 1));
  WaitReport wait = world.only();
  EXPECT_EQ(wait.kind, WaitKind::incoming);
  EXPECT_EQ(wait.waits_for, WaitFor::memory);
  world.operations.unexpected.waiting().pop_front();
  world.operations.unexpected.stalled().push_back(&peer);
  EXPECT_EQ(world.only().waits_for, WaitFor::memory);
  world.operations.unexpected.stalled().clear();

  Transfer& transfer = world.transfer(peer, Transfer::Kind::read);
  transfer.in_flight = 1;
  wait = world.only();
  EXPECT_EQ(wait.kind, WaitKind::incoming);
  EXPECT_EQ(wait.waits_for, WaitFor::adapter);
  EXPECT_EQ(world.only().age, kSecond);
  transfer.posted = 500;  // it moves
  EXPECT_EQ(world.only().age, 0);
  transfer.incoming.id = 1;
  EXPECT_EQ(world.only().waits_for, WaitFor::data);
}

TEST(WaitReporter, OneSidedOperations) {
  WaitWorld world;
  Peer& peer = world.ready_peer();
  Transfer& transfer = world.transfer(peer, Transfer::Kind::user);
  WaitReport wait = world.only();
  EXPECT_EQ(wait.kind, WaitKind::one_sided);
  EXPECT_EQ(wait.waits_for, WaitFor::resources);
  EXPECT_EQ(wait.bytes, 1000u);
  transfer.in_flight = 1;
  EXPECT_EQ(world.only().waits_for, WaitFor::adapter);
  transfer.by_messages = true;
  EXPECT_EQ(world.only().waits_for, WaitFor::answer);
}

TEST(WaitReporter, AtomicOperations) {
  WaitWorld world;
  Peer& peer = world.ready_peer(1);
  std::int64_t value = 1;
  const iovec operand{&value, sizeof value};
  AtomicRequest request;
  request.peer = peer.id;
  request.count = 1;
  request.operands = {&operand, 1};
  request.report = world.report();
  ASSERT_TRUE(world.operations.atomic_engine.atomic_now(request).ok());
  WaitReport wait = world.only();
  EXPECT_EQ(wait.kind, WaitKind::atomic);
  EXPECT_EQ(wait.waits_for, WaitFor::answer);
  ASSERT_TRUE(world.operations.atomic_engine.atomic_now(request).ok());  // no credit is left
  const WaitsReport report = world.look();
  EXPECT_EQ(report.total(WaitKind::atomic), 2u);
  EXPECT_EQ(report.list.back().waits_for, WaitFor::credits);
}

TEST(WaitReporter, HowLongNoMessageMoved) {
  WaitWorld world;
  Peer& peer = world.ready_peer();
  EXPECT_EQ(world.look().quiet, 0);
  EXPECT_EQ(world.look().quiet, kSecond);
  ++peer.tx.sequence;
  EXPECT_EQ(world.look().quiet, 0);
  ++world.context.delivered;
  EXPECT_EQ(world.look().quiet, 0);
  EXPECT_EQ(world.look().quiet, kSecond);
}

struct StuckWorld : WaitWorld {
  explicit StuckWorld(Nanoseconds limit, const std::string& folder = "0")
      : WaitWorld(settings_of(limit, folder)) {}
  static Settings settings_of(Nanoseconds limit, const std::string& folder) {
    Settings settings = stub_settings();
    settings.stuck = limit;
    settings.report = folder;
    settings.report_job = "job";
    return settings;
  }
  // What is logged while so many seconds pass.
  std::string after(int seconds) {
    test::CapturedStderr captured;
    for (int i = 0; i < 4 * seconds; ++i) stuck.tick(clock.time += kSecond / 4);
    return captured.text();
  }
  EndpointReporter reporter{*this};
  StuckWatch stuck{*this, reporter};
};

TEST(StuckWatch, SaysOnceWhatIsPendingForLonger) {
  StuckWorld world(2 * kSecond);
  Peer& peer = world.ready_peer();
  EXPECT_EQ(world.after(5), "");
  world.receive(peer.id, 0x55);
  EXPECT_EQ(world.after(1), "");
  const std::string log = world.after(2);
  EXPECT_NE(log.find("receive is pending: " + peer.address.to_string() +
                     ": tag 0x55, 100 bytes, for 2 s: no matching message has arrived; run "
                     "turnout stuck"),
            std::string::npos)
      << log;
  EXPECT_EQ(world.after(10), "");
  ++peer.rx.sequence;  // it may be another: the episode ends
  EXPECT_EQ(world.after(1), "");
  EXPECT_NE(world.after(3).find("is pending"), std::string::npos);
}

TEST(StuckWatch, AReceiveThatStaysPostedHidesNoOther) {
  StuckWorld world(2 * kSecond);
  world.receive(kAnyPeer, 0x1);
  EXPECT_NE(world.after(4).find("tag 0x1,"), std::string::npos);
  world.receive(kAnyPeer, 0x2);
  EXPECT_NE(world.after(4).find("tag 0x2,"), std::string::npos);
  EXPECT_EQ(world.after(4), "");
}

TEST(StuckWatch, SaysNothingUnlessItIsSet) {
  StuckWorld world(0);
  world.receive(kAnyPeer, 1);
  EXPECT_EQ(world.after(100), "");
}

TEST(StuckWatch, AnUnexpectedMessageAloneHoldsUpNobody) {
  StuckWorld world(kSecond);
  world.records.matcher.add_unexpected(&world.arrived(world.ready_peer(), 1, 1));
  EXPECT_EQ(world.after(10), "");
}

TEST(StuckWatch, ManyOperationsTakeFewLines) {
  StuckWorld world(kSecond);
  for (std::uint64_t tag = 0; tag < 50; ++tag) world.receive(kAnyPeer, tag);
  const std::string log = world.after(3);
  EXPECT_EQ(std::ranges::count(log, '\n'), 9);
  EXPECT_NE(log.find("42 more operations are pending"), std::string::npos) << log;
}

TEST(StuckWatch, LeavesTheReport) {
  const test::Folder scratch;
  StuckWorld world(kSecond, scratch.path().string());
  world.receive(kAnyPeer, 1);
  const std::string log = world.after(3);
  std::size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(scratch.path())) {
    if (entry.path().extension() != ".json") continue;
    ++files;
    const auto report = report_from_json(test::content_of(entry.path()));
    ASSERT_TRUE(report.ok()) << report.status().text();
    ASSERT_TRUE(report.value().waits.has_value());
    EXPECT_EQ(report.value().waits->total(WaitKind::receive), 1u);
    EXPECT_EQ(report.value().job, "job");
  }
  EXPECT_EQ(files, 1u) << log;
}

}  // namespace
}  // namespace turnout
