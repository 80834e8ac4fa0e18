// SPDX-License-Identifier: BSD-3-Clause
// RC connections that fail while both processes live: what was under way arrives exactly once, the
// pair goes on and is connected again.
#include <gtest/gtest.h>

#include <algorithm>
#include <ostream>
#include <string>
#include <vector>

#include "tests/core/endpoint/connections.h"
#include "tests/core/endpoint/forged_messages.h"
#include "tests/core/endpoint/two_way_traffic.h"
#include "tests/support/requests.h"
#include "tests/support/test_world.h"

namespace turnout {
namespace {

std::uint64_t failures(TestWorld& world) {
  return connections(world).failed;
}

struct Design {
  const char* name;
  const char* policy;
  const char* start;
};
void PrintTo(const Design& design, std::ostream* out) {
  *out << design.name;
}

class Recovery : public TwoWayTraffic, public testing::WithParamInterface<Design> {
 protected:
  static Overrides with(Overrides more = {}) {
    Overrides all = {{"policy", GetParam().policy},
                     {"default_transport", GetParam().start},
                     {"ring_threshold", "20"},
                     {"interval", "1ms"},
                     // Of the adapter's own clock: a dead end is found out at once.
                     {"ack_timeout", "4"},
                     {"retry_count", "1"}};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  void connect(TestWorld& world) {
    for (int n = 0; n < 100 && !connected(world); ++n) {
      swap(world, 64);
      world.clock().advance(1'000'000);
    }
    ASSERT_TRUE(connected(world));
  }
  static bool connected(TestWorld& world) {
    return over_rc(channel(world, 0, 1)) && over_rc(channel(world, 1, 0));
  }
};

TEST_P(Recovery, EverySizeArrivesOnceWhileTheConnectionFailsAgainAndAgain) {
  for (const char* every : {"1", "2", "7", "30"}) {
    TestWorld world(2, with({{"test_break_every", every}}), 17);
    swap_every_size(world, 60);
    ASSERT_FALSE(HasFatalFailure()) << every;
    EXPECT_GT(failures(world), 1u) << every;
  }
}

TEST_P(Recovery, ThePairIsConnectedAgainAndItsMemoryIsWhatItWas) {
  TestWorld world(2, with({{"test_break_every", "60"}}));
  connect(world);
  std::uint64_t used = 0;
  for (int n = 0; n < 600; ++n) {
    swap(world, 64);
    if (failures(world) == 0) used = std::max(used, world[0].report().used);
  }
  EXPECT_GT(failures(world), 4u);
  connect(world);
  EXPECT_GT(world[0].report().connections.made, 3u);
  EXPECT_LE(world[0].report().used, used + 64 * 1024) << "a few operations and decisions more";
}

// Many at once: the queue pair fails with all of them in it.
TEST_P(Recovery, ManyUnderWayComeInOrder) {
  TestWorld world(2, with({{"test_break_every", "25"}}));
  connect(world);
  send_many(world, [](std::size_t) {});
  EXPECT_GT(failures(world), 1u);
}

// Nothing is sent, and nobody waits for anything.
TEST_P(Recovery, AnIdleConnectionThatFailedIsNoticed) {
  TestWorld world(2, with({{"keepalive", "20ms"}}));
  connect(world);
  ASSERT_TRUE(ForgedMessages::fail_queue_pair(world, 0, 1));
  EXPECT_EQ(failures(world), 0u);
  EXPECT_TRUE(world.until([&] {
    world.clock().advance(1'000'000);
    return failures(world) == 2;
  }));
  swap(world, 64);
  connect(world);
}

// What tells of a failed connection may be wrong in every field.
TEST_P(Recovery, APeerThatTellsNonsenseIsGivenUp) {
  struct Case {
    wire::Control type;
    const char* words;
  };
  for (const auto& [type, words] :
       {Case{wire::Control::replay, "replay request: no failed connection"},
        Case{wire::Control::resumed, "resume message: no failed connection"}}) {
    TestWorld world(2, with());
    connect(world);
    wire::ControlMessage message;
    message.type = type;
    ForgedMessages::send(world, 0, 1, message);
    std::vector<std::byte> in(8);
    const iovec to = piece(in);
    ASSERT_TRUE(world[1].recv(tagged_recv(world.peer(1, 0), to, 9, world.report(1, &in))).ok());
    ASSERT_TRUE(world.until([&] { return world.queue(1).has_error(); }));
    EXPECT_NE(world.queue(1).pop_error().status.text().find(words), std::string::npos);
  }
}

TEST_P(Recovery, AFailureSaidTwiceOrBeyondTheStreamIsRefused) {
  wire::ControlMessage error, replay;
  error.type = wire::Control::error;
  replay.type = wire::Control::replay;
  replay.last_sequence = 1'000'000;
  for (const auto& [second, words] : {std::pair{error, "error message: sent twice"},
                                      std::pair{replay, "last_sequence names a message"}}) {
    TestWorld world(2, with());
    connect(world);
    ForgedMessages::send(world, 0, 1, error);
    // When its own end is dead, and it waits for the rest.
    world.progress_all(1);
    std::vector<std::byte> in(8);
    const iovec to = piece(in);
    ASSERT_TRUE(world[1].recv(tagged_recv(world.peer(1, 0), to, 9, world.report(1, &in))).ok());
    for (int n = 0; n < 3; ++n) {
      ForgedMessages::send(world, 0, 1, second);
      world.progress_all(1);
    }
    ASSERT_TRUE(world.until([&] { return world.queue(1).has_error(); }));
    const std::string text = world.queue(1).pop_error().status.text();
    EXPECT_NE(text.find(words), std::string::npos) << text;
  }
}

INSTANTIATE_TEST_SUITE_P(Designs, Recovery,
                         testing::Values(Design{"ring", "rc-rdma-od", "dc"},
                                         Design{"srq", "srq", "dc"},
                                         Design{"ardma_srq", "ardma-srq", "dc"},
                                         Design{"ardma_sr", "ardma-sr", "dc"},
                                         Design{"datagrams", "rc-rdma-od", "ud"}),
                         [](const auto& info) { return std::string(info.param.name); });

// One-sided operations over the pair's queue pair: a key that is refused costs that operation and a
// connection, nothing else.
class RecoveryOfOneSided : public TwoWayTraffic, public testing::WithParamInterface<const char*> {};

TEST_P(RecoveryOfOneSided, ARefusedKeyEndsItsOperationOnly) {
  TestWorld world(2, {{"policy", "rc-rdma-od"}, {"default_transport", GetParam()}});
  for (int n = 0; n < 100 && !over_rc(channel(world, 0, 1)); ++n) swap(world, 64);
  ASSERT_TRUE(over_rc(channel(world, 0, 1)));
  std::vector<std::byte> target = pattern(50'000, 1);
  auto key = world[1].memory().register_memory(target.data(), target.size(),
                                               kAccessRemoteRead | kAccessRemoteWrite);
  ASSERT_TRUE(key.ok());
  std::vector<std::vector<std::byte>> locals(9, std::vector<std::byte>(50'000));
  for (std::size_t n = 0; n < locals.size(); ++n) {
    const iovec to = piece(locals[n]);
    RmaRequest read;
    read.peer = world.peer(0, 1);
    read.local = {&to, 1};
    read.length = locals[n].size();
    read.remote_address = reinterpret_cast<std::uint64_t>(target.data());
    read.key = n == 4 ? 0x123456 : key->remote;
    read.report = world.report(0, &locals[n]);
    ASSERT_TRUE(world[0].rma(read).ok());
  }
  std::size_t done = 0, refused = 0;
  EXPECT_TRUE(world.until([&] {
    while (world.queue(0).size() > 0) done += take(world.queue(0)).context != nullptr ? 1 : 0;
    while (world.queue(0).has_error()) {
      const ErrorCompletion error = world.queue(0).pop_error();
      EXPECT_EQ(error.context, &locals[4]);
      EXPECT_EQ(error.status.code(), Code::permission) << error.status.text();
      ++refused;
    }
    return done + refused == locals.size();
  }));
  EXPECT_EQ(refused, 1u);
  for (std::size_t n = 0; n < locals.size(); ++n) {
    EXPECT_EQ(locals[n] == target, n != 4) << n;
  }
  EXPECT_EQ(failures(world), 2u);
  swap(world, 64);
  world[1].memory().deregister_memory(key.value());
}

INSTANTIATE_TEST_SUITE_P(Starts, RecoveryOfOneSided, testing::Values("dc", "ud"));

}  // namespace
}  // namespace turnout
