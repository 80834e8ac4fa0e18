// SPDX-License-Identifier: BSD-3-Clause
// UD in DC's place: what an endpoint promises where the device has no DC.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "tests/support/requests.h"
#include "tests/support/test_world.h"

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

// Memory of endpoint 1 that endpoint 0 reaches one-sidedly.
class Reached {
 public:
  Reached(TestWorld& world, std::size_t bytes, unsigned access)
      : world_(world),
        bytes_(pattern(bytes, 3)),
        key_(world[1].memory().register_memory(bytes_.data(), bytes, access).value()) {}
  ~Reached() { abandon_rtr(); }
  Reached(const Reached&) = delete;
  Reached& operator=(const Reached&) = delete;

  void abandon_rtr() {
    if (std::exchange(there_, false)) world_[1].memory().deregister_memory(key_);
  }
  [[nodiscard]] RmaRequest request(bool write, const iovec& local) {
    RmaRequest request;
    request.peer = world_.peer(0, 1);
    request.write = write;
    request.local = {&local, 1};
    request.length = local.iov_len;
    request.remote_address = reinterpret_cast<std::uint64_t>(bytes_.data());
    request.key = key_.remote;
    request.report = world_.report(0, nullptr);
    return request;
  }
  // What became of the oldest.
  [[nodiscard]] Status end() {
    EXPECT_TRUE(
        world_.until([&] { return world_.queue(0).size() > 0 || world_.queue(0).has_error(); }));
    if (world_.queue(0).has_error()) return world_.queue(0).pop_error().status;
    world_.queue(0).pop();
    return {};
  }
  [[nodiscard]] Status run(bool write, std::vector<std::byte>& local) {
    const iovec bytes = piece(local);
    if (Status status = world_[0].rma(request(write, bytes)); !status.ok()) return status;
    return end();
  }
  std::vector<std::byte>& bytes() { return bytes_; }

 private:
  TestWorld& world_;
  std::vector<std::byte> bytes_;
  MemoryKey key_;
  bool there_ = true;
};

constexpr unsigned kReadAndWrite = kAccessRemoteRead | kAccessRemoteWrite;

// Over a queue pair, or as messages: where there is none, where the policy allows none, and where
// few credits and little room leave one segment to be under way at a time.
TEST(EndpointUd, OneSidedOperationsNeedNoQueuePair) {
  for (const Overrides& settings :
       {Overrides{}, Overrides{{"max_active_rc", "0"}}, Overrides{{"policy", "static:ud-sendrecv"}},
        Overrides{{"max_active_rc", "0"}, {"credits", "2"}, {"ring_entry_size", "512"}}}) {
    TestWorld world(2, ud(settings));
    for (const std::size_t size : {0u, 1u, 3900u, 5000u, 300'000u}) {
      Reached there(world, size + 16, kReadAndWrite);
      std::vector<std::byte> in(size), out = pattern(size, 7);
      const std::vector<std::byte> before = there.bytes();
      ASSERT_TRUE(there.run(false, in).ok()) << size;
      EXPECT_TRUE(std::equal(in.begin(), in.end(), before.begin()));
      ASSERT_TRUE(there.run(true, out).ok()) << size;
      EXPECT_TRUE(std::equal(out.begin(), out.end(), there.bytes().begin()));
      EXPECT_TRUE(std::equal(before.end() - 16, before.end(), there.bytes().end() - 16));
    }
    EXPECT_EQ(receives_over(world, 0) == ChannelKind::rc_rdma, settings.empty());
  }
}

// One that is refused ends alone, with the addresses in words.
TEST(EndpointUd, OneSidedOperationsAreCheckedSegmentBySegment) {
  TestWorld world(2, ud({{"max_active_rc", "0"}}));
  std::vector<std::byte> local(20'000);
  const auto is_denied = [](const Status& status) {
    EXPECT_EQ(status.code(), Code::permission);
    EXPECT_NE(status.text().find("one-sided operation denied"), std::string::npos);
  };
  Reached shorter(world, 15'000, kReadAndWrite), readable(world, 20'000, kAccessRemoteRead);
  const std::vector<std::byte> before = readable.bytes();
  for (const bool write : {true, false}) is_denied(shorter.run(write, local));
  is_denied(readable.run(true, local));
  EXPECT_EQ(readable.bytes(), before);
  EXPECT_TRUE(readable.run(false, local).ok());
  EXPECT_EQ(local, before);
  readable.abandon_rtr();
  is_denied(readable.run(false, local));
  exchange(world, 8, true);
}

// What many operations ask at once is answered, in both directions and beside messages and to a
// peer that is busy with its own; a write tells its target when it is there.
TEST(EndpointUd, ManyOneSidedOperationsAndMessagesShareTheStream) {
  TestWorld world(2, ud({{"max_active_rc", "0"}, {"credits", "4"}}));
  constexpr std::size_t kOperations = 40, kBytes = 9'000;
  Reached there(world, kBytes, kReadAndWrite);
  std::vector<std::byte> out = pattern(kBytes, 5), message(8), into(8);
  std::vector<std::vector<std::byte>> in(kOperations, std::vector<std::byte>(kBytes));
  const iovec from = piece(out), word = piece(message), to = piece(into);
  world[1].set_remote_access({.writes = world.report(1, nullptr)});
  std::size_t ended = 0, came = 0, writes_told = 0;
  const auto collect = [&] {
    for (; world.queue(0).size() > 0; world.queue(0).pop()) ++ended;
    for (; world.queue(1).size() > 0; world.queue(1).pop()) {
      ++((world.queue(1).front().flags & kRemoteWrite) != 0 ? writes_told : came);
    }
    ASSERT_FALSE(world.queue(0).has_error() || world.queue(1).has_error());
  };
  for (std::size_t i = 0; i < kOperations; ++i) {
    const iovec bytes = piece(in[i]);
    RmaRequest request = there.request(i % 2 == 0, i % 2 == 0 ? from : bytes);
    request.has_remote_data = i % 2 == 0;
    request.remote_data = i;
    ASSERT_TRUE(world[0].rma(request).ok());
    ASSERT_TRUE(world[1].recv(tagged_recv(world.peer(1, 0), to, 0, world.report(1, &into))).ok());
    ASSERT_TRUE(
        world[0].send(tagged_send(world.peer(0, 1), word, 0, world.report(0, &message))).ok());
  }
  EXPECT_TRUE(world.until([&] {
    collect();
    return HasFailure() ||
           (ended == 2 * kOperations && came == kOperations && writes_told == kOperations / 2);
  })) << ended
      << " ended, " << came << " messages came, " << writes_told << " writes were told of";
  EXPECT_EQ(there.bytes(), out);
}

// Of a peer that dies, every operation ends.
TEST(EndpointUd, OneSidedOperationsWithTheDeadEnd) {
  TestWorld world(2, ud({{"max_active_rc", "0"}, {"ud_timeout", "200ms"}}));
  exchange(world, 8, true);
  auto there = std::make_unique<Reached>(world, 50'000, kReadAndWrite);
  std::vector<std::byte> local(50'000);
  const iovec bytes = piece(local);
  for (const bool write : {true, false, true}) {
    ASSERT_TRUE(world[0].rma(there->request(write, bytes)).ok());
  }
  there.reset();
  world[1].abandon();
  world.close(1);
  std::size_t ended = 0;
  ASSERT_TRUE(world.until([&] {
    world.clock().advance(100'000);
    for (; world.queue(0).has_error(); ++ended) {
      EXPECT_EQ(world.queue(0).pop_error().status.code(), Code::peer_lost);
    }
    return ended == 3;
  }));
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
