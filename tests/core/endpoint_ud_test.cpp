// SPDX-License-Identifier: BSD-3-Clause
// UD in DC's place: what an endpoint promises where the device has no DC.
#include <gtest/gtest.h>

#include <vector>

#include "tests/core/requests.h"
#include "tests/core/test_world.h"

namespace turnout {
namespace {

Overrides ud(Overrides more = {}) {
  more.emplace_back("default_transport", "ud");
  return more;
}

// Sends one message from 0 to `to` and compares what came.
void exchange(TestWorld& world, std::size_t size, bool posted, std::size_t to = 1) {
  std::vector<std::byte> out = pattern(size, static_cast<unsigned>(size)), in(size);
  const iovec from{out.data(), size}, into{in.data(), size};
  const auto receive = [&] {
    ASSERT_TRUE(
        world[to].recv(tagged_recv(world.peer(to, 0), into, 0, world.report(to, &in))).ok());
  };
  if (posted) receive();
  ASSERT_TRUE(world[0].send(tagged_send(world.peer(0, to), from, 0, world.report(0, &out))).ok());
  if (!posted) {
    world.progress_all(200);
    receive();
  }
  int ended = 0;
  const auto collect = [&](std::size_t i) {
    for (; world.queue(i).size() > 0; ++ended) world.queue(i).pop();
  };
  EXPECT_TRUE(world.until([&] {
    collect(0);
    if (to != 0) collect(to);
    return ended == 2;
  })) << size
      << " bytes";
  EXPECT_EQ(in, out) << size << " bytes";
}

ChannelKind receives_over(TestWorld& world, std::size_t at) {
  return world[at].report().peers.at(0).receive.spans.back().channel;
}

TEST(EndpointUd, MessagesOfEverySizeArriveLargeOnesOverAQueuePairOfTheirOwn) {
  TestWorld world(2, ud());
  for (const std::size_t size : {0u, 1u, 500u, 3900u, 3992u, 3993u, 4096u, 70'000u, 3'000'000u}) {
    exchange(world, size, true);
    exchange(world, size, false);
  }
  EXPECT_EQ(receives_over(world, 1), ChannelKind::rc_rdma);
}

TEST(EndpointUd, LargeMessagesComeInPiecesWhereThereIsNoQueuePair) {
  for (const Overrides& settings :
       {Overrides{{"policy", "static:ud-sendrecv"}}, Overrides{{"max_active_rc", "0"}},
        Overrides{{"credits", "2"}, {"max_active_rc", "0"}}}) {
    TestWorld world(2, ud(settings));
    for (const std::size_t size : {4096u, 70'000u, 1'000'000u}) {
      exchange(world, size, true);
      exchange(world, size, false);
    }
    EXPECT_EQ(receives_over(world, 1), ChannelKind::ud_sendrecv);
  }
}

TEST(EndpointUd, MessagesToItselfArrive) {
  TestWorld world(1, ud());
  for (const std::size_t size : {10u, 3992u, 70'000u}) exchange(world, size, true, 0);
}

TEST(EndpointUd, TheSelectionMovesABusySourceToRc) {
  TestWorld world(2, ud({{"interval", "50ms"}}));
  for (int i = 0; i < 3000 && world[1].report().decisions.empty(); ++i) exchange(world, 8, true);
  world.progress_all(2000);
  EXPECT_EQ(receives_over(world, 1), ChannelKind::rc_rdma);
  const EndpointReport report = world[1].report();
  ASSERT_FALSE(report.decisions.empty());
  EXPECT_EQ(report.decisions[0].from, ChannelKind::ud_sendrecv);
  EXPECT_EQ(report.decisions[0].to, ChannelKind::rc_rdma);
}

TEST(EndpointUd, OneSidedOperationsTakeAQueuePairOrSayThatThereIsNone) {
  for (const bool possible : {true, false}) {
    TestWorld world(2, ud({{"max_active_rc", possible ? "26" : "0"}}));
    std::vector<std::byte> target(5000), source = pattern(5000, 7);
    auto key = world[1].memory().register_memory(target.data(), target.size(),
                                                 kAccessRemoteRead | kAccessRemoteWrite);
    ASSERT_TRUE(key.ok());
    const iovec local{source.data(), source.size()};
    RmaRequest request;
    request.peer = world.peer(0, 1);
    request.write = true;
    request.local = {&local, 1};
    request.length = source.size();
    request.remote_address = reinterpret_cast<std::uint64_t>(target.data());
    request.key = key.value().remote;
    request.report = world.report(0, &source);
    ASSERT_TRUE(world[0].rma(request).ok());  // the first the peer hears of this process
    EXPECT_TRUE(
        world.until([&] { return world.queue(0).size() > 0 || world.queue(0).has_error(); }));
    EXPECT_EQ(world.queue(0).has_error(), !possible);
    if (possible) {
      EXPECT_EQ(target, source);
    } else if (world.queue(0).has_error()) {
      const ErrorCompletion error = world.queue(0).pop_error();
      EXPECT_EQ(error.status.code(), Code::unsupported);
      EXPECT_NE(error.status.text().find("RC queue pair"), std::string::npos);
    }
    world[1].memory().deregister_memory(key.value());
  }
}

TEST(EndpointUd, AProcessThatDiedIsLostAfterTheTimeSet) {
  TestWorld world(2, ud({{"ud_timeout", "200ms"}}));
  exchange(world, 8, true);
  std::vector<std::byte> in(8);
  const iovec into{in.data(), in.size()};
  ASSERT_TRUE(world[0].recv(tagged_recv(world.peer(0, 1), into, 0, world.report(0, &in))).ok());
  world[1].abandon();
  world.close(1);
  ASSERT_TRUE(world.until([&] {
    world.clock().advance(100'000);
    return world.queue(0).has_error();
  }));
  const ErrorCompletion error = world.queue(0).pop_error();
  EXPECT_EQ(error.status.code(), Code::peer_lost);
  EXPECT_NE(error.status.text().find("has not responded"), std::string::npos);
}

TEST(EndpointUd, ProcessesThatStartOnDifferentServicesAreTold) {
  TestWorld with(1, {{"default_transport", "dc"}}), without(1, ud());
  testing::internal::CaptureStderr();
  const auto peer = with[0].peer(without[0].address());
  EXPECT_FALSE(with[0].peer(without[0].address()).ok());
  const std::string said = testing::internal::GetCapturedStderr();
  ASSERT_FALSE(peer.ok());
  EXPECT_EQ(peer.status().code(), Code::unsupported);
  EXPECT_NE(peer.status().text().find("TURNOUT_DEFAULT_TRANSPORT"), std::string::npos);
  // To people as well, once: a program hears a number.
  const std::size_t first = said.find("TURNOUT_DEFAULT_TRANSPORT=ud for the whole job");
  EXPECT_NE(first, std::string::npos) << said;
  EXPECT_EQ(said.find("TURNOUT_DEFAULT_TRANSPORT", first + 1), std::string::npos) << said;
}

TEST(EndpointUd, ProcessesOfDifferentFabricsAreTold) {
  TestWorld world(2, {});
  Address other = world[1].address();
  other.gid[15] ^= 1;
  other.seal();
  const auto peer = world[0].peer(other);
  ASSERT_FALSE(peer.ok());
  EXPECT_EQ(peer.status().code(), Code::unsupported);
  EXPECT_NE(peer.status().text().find("TURNOUT_FABRIC"), std::string::npos);
}

TEST(EndpointUd, APolicyThatNeedsDcIsRefused) {
  Settings settings = Settings::defaults();
  ASSERT_TRUE(settings.set("default_transport", "ud").ok());
  ASSERT_TRUE(settings.set("policy", "dc-rdma-od").ok());
  EXPECT_NE(settings.validate().text().find("TURNOUT_POLICY"), std::string::npos);
}

}  // namespace
}  // namespace turnout
