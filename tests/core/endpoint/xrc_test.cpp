// SPDX-License-Identifier: BSD-3-Clause
// Rings over XRC: one connection of an endpoint serves all endpoints of a node.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/core/endpoint/connections.h"
#include "tests/core/endpoint/forged_messages.h"
#include "tests/core/endpoint/two_way_traffic.h"
#include "tests/support/requests.h"
#include "tests/support/test_world.h"

namespace turnout {
namespace {

class Xrc : public TwoWayTraffic {
 protected:
  static Overrides with(const Overrides& more = {}) {
    Overrides all = {{"policy", "xrc-rdma-od"},
                     {"interval", "1ms"},
                     // Of the adapter's own clock: a dead end is found out at once.
                     {"ack_timeout", "4"},
                     {"retry_count", "1"}};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  static bool both_over_xrc(TestWorld& world, std::size_t a, std::size_t b) {
    return over_xrc(channel(world, a, b)) && over_xrc(channel(world, b, a));
  }
  void connect(TestWorld& world, std::size_t a = 0, std::size_t b = 1) {
    for (int n = 0; n < 100 && !both_over_xrc(world, a, b); ++n) {
      swap(world, 64, a, b);
      world.clock().advance(1'000'000);
    }
    ASSERT_TRUE(both_over_xrc(world, a, b)) << a << " and " << b;
  }
  static std::uint64_t of_queue_pairs(const Endpoint& endpoint) {
    for (const MemoryLine& line : endpoint.report().memory) {
      if (line.kind == name(MemoryKind::queue_pairs)) return line.now;
    }
    return 0;
  }
  void connect_all(TestWorld& world) {
    for (std::size_t a = 0; a < world.size(); ++a) {
      for (std::size_t b = a + 1; b < world.size(); ++b) connect(world, a, b);
    }
  }
};

TEST_F(Xrc, OneConnectionServesAllOfANode) {
  TestWorld world(4, with());
  connect_all(world);
  for (std::size_t i = 0; i < 4; ++i) {
    const EndpointReport report = world[i].report();
    EXPECT_EQ(report.rc_queue_pairs_peak, 1u) << i;
    EXPECT_EQ(report.connections.made, 1u) << i;
  }
  for (std::size_t a = 0; a < 4; ++a) {
    for (std::size_t b = 0; b < 4; ++b) {
      if (a != b) swap(world, 300, a, b);
    }
  }
}

TEST_F(Xrc, MessagesOfEverySizeArrive) {
  for (const std::uint64_t late : {0u, 5u}) {
    TestWorld world(2, with(), late);
    swap_every_size(world, 60);
    ASSERT_TRUE(both_over_xrc(world, 0, 1));
  }
}

TEST_F(Xrc, RingsWithChecksumsHoldOverIt) {
  TestWorld world(2, with({{"ring_order", "check"}}));
  swap_every_size(world, 30);
  ASSERT_TRUE(both_over_xrc(world, 0, 1));
}

// The direction leaves it and comes back while messages go on: via the default transport, and via
// a ring over DC.
TEST_F(Xrc, ChannelsChangeUnderTraffic) {
  for (const char* const every : {"1", "3", "10"}) {
    TestWorld world(3, with({{"test_switch_every", every}}), 7);
    for (int n = 0; n < 20; ++n) {
      swap_every_size(world, 1);
      for (std::size_t b : {1u, 2u}) swap(world, 100, 0, b);
      swap(world, 2000, 1, 2);
      ASSERT_FALSE(HasFatalFailure()) << every;
    }
    EXPECT_GT(world[0].report().connections.made, 1u) << every;
  }
}

TEST_F(Xrc, WhoLeavesLastTakesTheConnectionAlong) {
  TestWorld world(3, with({{"keepalive", "20ms"}}));
  connect(world, 0, 1);
  connect(world, 0, 2);
  const std::uint64_t with_both = of_queue_pairs(world[0]);
  world.close(2);
  connect(world, 0, 1);
  for (int n = 0; n < 50; ++n) swap(world, 64, 0, 1);
  ASSERT_TRUE(both_over_xrc(world, 0, 1)) << "the target is everybody's who has it open";
  EXPECT_TRUE(world.until([&] {
    world.clock().advance(1'000'000);
    return of_queue_pairs(world[0]) < with_both;
  })) << "the target that it had made for who left";
}

TEST_F(Xrc, ManyAskAtOnce) {
  TestWorld world(6, with(), 3);
  std::vector<std::vector<std::byte>> in(6);
  std::vector<std::byte> out = pattern(64, 1);
  const iovec from = piece(out);
  // Everybody's first message to one: five requests of one node.
  std::vector<iovec> to(6);
  for (int round = 0; round < 40; ++round) {
    for (std::size_t i = 1; i < 6; ++i) {
      in[i].assign(64, {});
      to[i] = piece(in[i]);
      ASSERT_TRUE(
          world[i].recv(tagged_recv(world.peer(i, 0), to[i], 1, world.report(i, &in[i]))).ok());
      ASSERT_TRUE(
          world[0].send(tagged_send(world.peer(0, i), from, 1, world.report(0, nullptr))).ok());
    }
    ASSERT_TRUE(world.until([&] {
      for (std::size_t i = 1; i < 6; ++i) {
        if (world.queue(i).size() == 0) return false;
      }
      return world.queue(0).size() == 5;
    }));
    for (std::size_t i = 1; i < 6; ++i) {
      take(world.queue(i));
      take(world.queue(0));
      EXPECT_EQ(in[i], out);
    }
  }
  EXPECT_EQ(world[0].report().rc_queue_pairs_peak, 1u);
  for (std::size_t i = 1; i < 6; ++i) EXPECT_TRUE(over_xrc(channel(world, i, 0))) << i;
}

TEST_F(Xrc, WithoutAPlaceItIsRefusedAndTheStartServiceGoesOn) {
  TestWorld world(2, with({{"max_active_rc", "0"}}));
  swap_every_size(world, 10);
  EXPECT_EQ(channel(world, 0, 1), ChannelKind::dc_sendrecv);
  EXPECT_NE(world[0].report().peers[world.peer(0, 1)].reason.find("limit"), std::string::npos);
}

TEST_F(Xrc, EverySizeArrivesOnceWhileTheConnectionFailsAgainAndAgain) {
  for (const char* const every : {"1", "2", "7", "30"}) {
    TestWorld world(3, with({{"test_break_every", every}}), 17);
    for (int n = 0; n < 60; ++n) {
      for (const std::size_t size : {0u, 8u, 200u, 300u, 4000u, 20000u}) {
        swap(world, size, 0, 1);
        swap(world, size, 0, 2);
        swap(world, size, 1, 2);
        ASSERT_FALSE(HasFatalFailure()) << every;
      }
    }
    EXPECT_GT(connections(world).failed, 1u) << every;
  }
}

// And changes its channel meanwhile.
TEST_F(Xrc, ItFailsWhileChannelsChange) {
  for (const char* const every : {"2", "5", "11"}) {
    TestWorld world(3, with({{"test_break_every", every}, {"test_switch_every", "3"}}), 23);
    for (int n = 0; n < 60; ++n) {
      for (const std::size_t size : {0u, 200u, 4000u}) {
        swap(world, size, 0, 1);
        swap(world, size, 0, 2);
        swap(world, size, 1, 2);
        ASSERT_FALSE(HasFatalFailure()) << every;
      }
    }
    EXPECT_GT(connections(world).failed, 1u) << every;
  }
}

TEST_F(Xrc, ManyUnderWayComeInOrder) {
  TestWorld world(2, with());
  connect(world);
  std::size_t next = 20;
  send_many(world, [&](std::size_t received) {
    if (received < next || !over_xrc(channel(world, 1, 0))) return;
    if (ForgedMessages::fail_queue_pair(world, 0, 1)) next = received + 20;
  });
  EXPECT_GT(connections(world).failed, 3u);
}

// What a process that ended leaves behind breaks the connection of those that write to it; they go
// on with the others of its node.
TEST_F(Xrc, TheEndOfOneLeavesTheOthers) {
  TestWorld world(4, with({{"keepalive", "20ms"}}));
  connect_all(world);
  const PeerId gone = world.peer(0, 3);
  world[3].abandon();  // without a word
  world.close(3);
  std::vector<std::byte> out = pattern(64, 1);
  const iovec from = piece(out);
  Status last;
  EXPECT_TRUE(world.until([&] {
    last = world[0].send(tagged_send(gone, from, 1, world.report(0, nullptr)));
    while (world.queue(0).size() > 0) take(world.queue(0));
    return last.code() == Code::peer_lost;
  })) << last.text();
  while (world.queue(0).size() > 0) take(world.queue(0));
  while (world.queue(0).has_error()) (void)world.queue(0).pop_error();
  for (int n = 0; n < 20; ++n) {
    swap(world, 300, 0, 1);
    swap(world, 300, 0, 2);
    swap(world, 300, 1, 2);
    ASSERT_FALSE(HasFatalFailure());
  }
  connect(world, 0, 1);
  connect(world, 0, 2);
}

// What tells of a failed connection may be wrong in every field.
TEST_F(Xrc, APeerThatTellsNonsenseIsGivenUp) {
  const auto of = [](wire::Control type) {
    wire::ControlMessage message;
    message.type = type;
    return message;
  };
  struct Case {
    wire::ControlMessage message;
    const char* words;
  };
  for (const auto& [message, words] :
       {Case{of(wire::Control::xrc_replay), "node replay request: no failed connection"},
        Case{of(wire::Control::xrc_resumed), "node resume message: no failed connection"},
        Case{of(wire::Control::error), "error message: the pair has no connection of its own"}}) {
    TestWorld world(2, with());
    connect(world);
    ForgedMessages::send(world, 0, 1, message);
    std::vector<std::byte> in(8);
    const iovec to = piece(in);
    ASSERT_TRUE(world[1].recv(tagged_recv(world.peer(1, 0), to, 9, world.report(1, &in))).ok());
    ASSERT_TRUE(world.until([&] { return world.queue(1).has_error(); }));
    const std::string text = world.queue(1).pop_error().status.text();
    EXPECT_NE(text.find(words), std::string::npos) << text;
  }
}

TEST_F(Xrc, ANumberThatNoTargetHasIsRefused) {
  TestWorld world(2, with(), 3);
  std::vector<std::byte> in(8), out(8);
  const iovec to = piece(in), from = piece(out);
  ASSERT_TRUE(world[1].recv(tagged_recv(world.peer(1, 0), to, 9, world.report(1, &in))).ok());
  ASSERT_TRUE(world[0].send(tagged_send(world.peer(0, 1), from, 1, world.report(0, nullptr))).ok());
  wire::ControlMessage accept;
  accept.type = wire::Control::accept;
  accept.request = 1;  // the first there is
  accept.qp_id = 5;
  accept.operation = std::uint64_t{1} << 24;
  ASSERT_TRUE(world.until([&] {
    ForgedMessages::send(world, 0, 1, accept);
    return world.queue(1).has_error();
  }));
  const std::string text = world.queue(1).pop_error().status.text();
  EXPECT_NE(text.find("invalid target number"), std::string::npos) << text;
}

TEST_F(Xrc, AFailureSaidTwiceIsRefused) {
  TestWorld world(2, with());
  connect(world);
  wire::ControlMessage error;
  error.type = wire::Control::xrc_error;
  ForgedMessages::send(world, 0, 1, error);
  ForgedMessages::send(world, 0, 1, error);
  std::vector<std::byte> in(8);
  const iovec to = piece(in);
  ASSERT_TRUE(world[1].recv(tagged_recv(world.peer(1, 0), to, 9, world.report(1, &in))).ok());
  ASSERT_TRUE(world.until([&] { return world.queue(1).has_error(); }));
  const std::string text = world.queue(1).pop_error().status.text();
  EXPECT_NE(text.find("node error message: sent twice"), std::string::npos) << text;
}

// A pair has one kind of connection: of two requests that cross one or both are refused, and what
// there is can leave, fail and be asked for again.
TEST_F(Xrc, APairHasOneKindOfConnection) {
  using enum ChannelKind;
  int xrc = 0, rc = 0;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    TestWorld world(
        2,
        {{"policy", "turnout"}, {"interval", "3600s"}, {"ack_timeout", "4"}, {"retry_count", "1"}},
        seed);
    for (int n = 0; n < 3; ++n) swap(world, 64);
    const auto steady = [&] {
      return ForgedMessages::is_steady(world, 0, 1) && ForgedMessages::is_steady(world, 1, 0);
    };
    bool first = seed % 2 == 0;
    for (int round = 0; round < 12; ++round, first = !first) {
      ForgedMessages::ask_for(world, 0, 1, first ? xrc_rdma : rc_rdma);
      world.progress_all(static_cast<int>(seed % 5));
      ForgedMessages::ask_for(world, 1, 0, first ? rc_rdma : xrc_rdma);
      for (int n = 0; n < 5; ++n) swap(world, n % 2 == 0 ? 64 : 4000);
      ASSERT_FALSE(HasFatalFailure()) << seed;
      ASSERT_TRUE(world.until(steady)) << seed << " " << round;
      const ChannelKind in = channel(world, 0, 1), out = channel(world, 1, 0);
      EXPECT_FALSE((over_xrc(in) && over_rc(out)) || (over_rc(in) && over_xrc(out))) << seed;
      xrc += over_xrc(in) || over_xrc(out) ? 1 : 0;
      rc += over_rc(in) || over_rc(out) ? 1 : 0;
      if (round % 3 == 2) {
        ForgedMessages::ask_for(world, 0, 1, dc_sendrecv);
        ForgedMessages::ask_for(world, 1, 0, dc_sendrecv);
        ASSERT_TRUE(world.until(steady)) << seed;
        world.progress_all(20);
      }
    }
    for (std::size_t i = 0; i < 2; ++i) {
      for (const PeerReport& peer : world[i].report().peers) EXPECT_FALSE(peer.lost);
    }
  }
  EXPECT_GT(xrc, 20);
  EXPECT_GT(rc, 20);
}

// It computes, and does not make the target that it was asked for.
TEST_F(Xrc, OneThatDoesNotAnswerHoldsUpNobodyForLong) {
  TestWorld world(3, {{"policy", "turnout"}, {"interval", "3600s"}, {"keepalive", "20ms"}});
  for (int n = 0; n < 3; ++n) {
    for (const std::size_t b : {1u, 2u}) swap(world, 64, 0, b);
  }
  const auto go_on = [&](std::initializer_list<std::size_t> who, auto&& condition) {
    for (int n = 0; n < 2000 && !condition(); ++n) {
      for (const std::size_t i : who) world[i].progress();
      world.clock().advance(100'000);
    }
    return condition();
  };
  ForgedMessages::ask_for(world, 2, 0, ChannelKind::xrc_rdma);
  world[2].progress();  // its ring is made
  ASSERT_TRUE(go_on({0}, [&] { return ForgedMessages::was_accepted(world, 0, 2); }));
  ForgedMessages::ask_for(world, 1, 0, ChannelKind::xrc_rdma);
  EXPECT_TRUE(go_on({0, 1}, [&] { return over_xrc(channel(world, 1, 0)); }));
  // And it is told.
  EXPECT_TRUE(world.until([&] { return ForgedMessages::is_steady(world, 2, 0); }));
  EXPECT_FALSE(over_xrc(channel(world, 2, 0)));
  ForgedMessages::ask_for(world, 2, 0, ChannelKind::xrc_rdma);
  EXPECT_TRUE(world.until([&] { return over_xrc(channel(world, 2, 0)); }));
  for (const std::size_t b : {1u, 2u}) swap(world, 64, 0, b);
}

// What nobody asked for is dropped, and the pair goes on.
TEST_F(Xrc, WordsOutOfTurnAreDropped) {
  for (const wire::Control type : {wire::Control::accept, wire::Control::ready,
                                   wire::Control::closed, wire::Control::request}) {
    TestWorld world(3, with());
    connect_all(world);
    wire::ControlMessage message;
    message.type = type;
    message.kind = static_cast<std::uint8_t>(ChannelKind::xrc_rdma);
    message.request = 77;
    message.qp_id = 5;
    message.ring_entries = 8;
    message.entry_units = 4096 / Address::kSizeUnit;
    ForgedMessages::send(world, 0, 1, message);
    for (int n = 0; n < 5; ++n) {
      swap(world, 64, 0, 1);
      swap(world, 64, 1, 2);
      ASSERT_FALSE(HasFatalFailure());
    }
  }
}

}  // namespace
}  // namespace turnout
