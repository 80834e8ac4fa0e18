// SPDX-License-Identifier: BSD-3-Clause
// select_aqps by examples: what changes, what stays, and the reason of each line.
#include <gtest/gtest.h>

#include "core/selection/policy.h"

namespace turnout::selection {
namespace {

constexpr auto kDc = ChannelKind::dc_sendrecv;
constexpr auto kRing = ChannelKind::dc_rdma;
constexpr auto kRc = ChannelKind::rc_rdma;

struct World {
  std::vector<SourceView> sources;
  CostModel costs;
  Limits limits;
  double gamma = 25;

  World() {
    limits.bytes_per_ring = 64 << 10;
    limits.bytes_per_rc = 44 << 10;
    limits.bytes_available = 1u << 30;
  }
  World& source(std::uint64_t messages, ChannelKind current = kDc, bool rc_exists = false,
                bool refused = false) {
    sources.push_back({static_cast<std::uint32_t>(sources.size()), current, messages,
                       rc_exists || current == kRc, refused});
    return *this;
  }
  [[nodiscard]] Plan plan() const { return select_aqps({sources, costs, limits, gamma}); }
};

const PlanLine& line_of(const Plan& plan, std::uint32_t peer) {
  for (const PlanLine& line : plan.lines) {
    if (line.peer == peer) return line;
  }
  throw std::runtime_error("no line for this peer");
}

void expect_line(const Plan& plan, std::uint32_t peer, ChannelKind to, Reason reason) {
  const PlanLine& line = line_of(plan, peer);
  EXPECT_EQ(name(line.to), name(to)) << "peer " << peer;
  EXPECT_EQ(explain(line.reason), explain(reason)) << "peer " << peer;
}

// Where the device has no DC every pair starts on UD, and RC is the only ring.
TEST(SelectAqps, UdInPlaceOfDc) {
  constexpr auto kUd = ChannelKind::ud_sendrecv;
  World world;
  world.source(10, kUd).source(100'000, kUd).source(50'000, kUd).source(0, kRc);
  world.limits.max_active_rc = 1;
  const Plan plan = select_aqps({world.sources, world.costs, world.limits, world.gamma, 0, kUd});
  EXPECT_TRUE(plan.changes);
  expect_line(plan, 0, kUd, Reason::too_few_messages);
  expect_line(plan, 1, kRc, Reason::gain);
  expect_line(plan, 2, kUd, Reason::limit_active_rc);
  expect_line(plan, 3, kUd, Reason::idle);
}

TEST(SelectAqps, NobodyWasHeard) {
  const Plan plan = World{}.plan();
  EXPECT_TRUE(plan.lines.empty());
  EXPECT_FALSE(plan.changes);
}

TEST(SelectAqps, BusySourceGetsItsQueuePairQuietOneDoesNot) {
  const Plan plan = World{}.source(10).source(100'000).plan();
  EXPECT_TRUE(plan.changes);
  expect_line(plan, 1, kRc, Reason::gain);
  expect_line(plan, 0, kDc, Reason::too_few_messages);
  EXPECT_EQ(plan.lines.front().peer, 1u) << "busiest first";
  // 100,000 messages: 131.25 - 5 ns, less 10 us of set-up.
  EXPECT_NEAR(line_of(plan, 1).gain_per_message, 126.25 - 0.1, 1e-9);
  EXPECT_EQ(line_of(plan, 0).gain_per_message, 0);
}

TEST(SelectAqps, SetUpIsChargedOnlyForWhatDoesNotExist) {
  World world;
  world.gamma = 0;
  EXPECT_FALSE(World(world).source(79).plan().changes) << "does not pay 10 us";
  const Plan reuse = World(world).source(79, kDc, true).plan();
  expect_line(reuse, 0, kRc, Reason::gain);
  const Plan stays = World(world).source(79, kRc).plan();
  EXPECT_FALSE(stays.changes);
  expect_line(stays, 0, kRc, Reason::gain);
}

// spec/aqps.md: at Table 2's values a ring pays from 80 messages (RC) or 132 (DC) per window for
// equal sources. r - c/s = 131.25 ns and a poll of 5 ns a message leave 126.25 ns: 10 us / 126.25
// ns = 79.2.
TEST(SelectAqps, RingPaysFrom80Or132Messages) {
  World world;
  world.gamma = 0;
  EXPECT_TRUE(World(world).source(80).plan().changes);
  world.limits.max_active_rc = 0;
  world.limits.dc_rdma_available = true;
  EXPECT_FALSE(World(world).source(131).plan().changes);
  EXPECT_TRUE(World(world).source(132).plan().changes);
}

// A source joins only above 3.8 % (RC) or 6.2 % (DC) of the busiest one's count: 5 / 131.25 = 3.81
// %, 5 / 81.25 = 6.15 % once the counts are so large that set-up does not matter.
TEST(SelectAqps, SourceJoinsAbove38Or62PermilleOfTheBusiest) {
  World world;
  world.gamma = world.costs.setup_dc = world.costs.setup_rc = 0;
  const auto joins = [&](std::uint64_t messages) {
    const Plan plan = World(world).source(10'000'000).source(messages).plan();
    return over_ring(line_of(plan, 1).to);
  };
  EXPECT_FALSE(joins(380'000));
  EXPECT_TRUE(joins(382'000));
  world.limits.max_active_rc = 0;
  world.limits.dc_rdma_available = true;
  EXPECT_FALSE(joins(615'000));
  EXPECT_TRUE(joins(616'000));
}

TEST(SelectAqps, GammaHoldsBackASmallGain) {
  World world;
  world.source(100'000, kRc).source(5000);
  // The second source gains 5000 x 131.25 - 500,000 - 10,000 = 146 us of 105,000 messages: 1.4 ns.
  const Plan held = world.plan();
  EXPECT_FALSE(held.changes);
  expect_line(held, 1, kDc, Reason::below_threshold);
  expect_line(held, 0, kRc, Reason::gain);
  EXPECT_GT(held.gain_best, held.gain_current);
  world.gamma = 1;
  expect_line(world.plan(), 1, kRc, Reason::gain);
}

TEST(SelectAqps, LimitOfActiveQueuePairs) {
  World world;
  world.limits.max_active_rc = 2;
  const Plan plan = world.source(1000).source(3000).source(2000).plan();
  expect_line(plan, 1, kRc, Reason::gain);
  expect_line(plan, 2, kRc, Reason::gain);
  expect_line(plan, 0, kDc, Reason::limit_active_rc);
}

TEST(SelectAqps, LimitOfChannels) {
  World world;
  world.limits.max_channels = 1;
  const Plan plan = world.source(1000).source(3000).plan();
  expect_line(plan, 1, kRc, Reason::gain);
  expect_line(plan, 0, kDc, Reason::limit_channels);
}

TEST(SelectAqps, LimitOfBytesCountsQueuePairsOnlyWhereNoneExists) {
  World world;
  world.gamma = 0;
  world.limits.bytes_available = 2 * world.limits.bytes_per_ring + world.limits.bytes_per_rc;
  const Plan plan = world.source(1000).source(900, kDc, true).source(800).plan();
  expect_line(plan, 0, kRc, Reason::gain);
  expect_line(plan, 1, kRc, Reason::gain);
  expect_line(plan, 2, kDc, Reason::limit_budget);
}

TEST(SelectAqps, TwoCheapOnesBeatOneDear) {
  World world;
  world.gamma = 0;
  world.limits.bytes_per_rc = world.limits.bytes_per_ring;
  world.limits.bytes_available = 2 * world.limits.bytes_per_ring;
  const Plan plan = world.source(1000).source(900, kDc, true).source(800, kDc, true).plan();
  expect_line(plan, 0, kDc, Reason::limit_budget);
  expect_line(plan, 1, kRc, Reason::gain);
  expect_line(plan, 2, kRc, Reason::gain);
}

TEST(SelectAqps, RefusedPeerStaysAndItsChannelCounts) {
  World world;
  world.limits.max_active_rc = 1;
  const Plan plan =
      world.source(5000, kRc, true, true).source(100'000).source(90'000, kDc, false, true).plan();
  EXPECT_FALSE(plan.changes);
  expect_line(plan, 0, kRc, Reason::refused_by_peer);
  expect_line(plan, 2, kDc, Reason::refused_by_peer);
  expect_line(plan, 1, kDc, Reason::limit_active_rc);
}

TEST(SelectAqps, SilentSourceKeepsItsChannelWhileNobodyWantsIt) {
  World world;
  const Plan plan = world.source(0, kRc).source(100'000).plan();
  expect_line(plan, 0, kRc, Reason::kept);
  expect_line(plan, 1, kRc, Reason::gain);
}

TEST(SelectAqps, SilentSourceMakesPlaceAndGoesFirst) {
  World world;
  world.limits.max_active_rc = 1;
  const Plan plan = world.source(0, kRc).source(100'000).plan();
  EXPECT_TRUE(plan.changes);
  expect_line(plan, 0, kDc, Reason::idle);
  expect_line(plan, 1, kRc, Reason::gain);
  EXPECT_EQ(plan.lines.front().peer, 0u) << "downgrades first";
}

TEST(SelectAqps, ChannelThatNoLongerPaysItsPollsGoes) {
  World world;
  world.gamma = 0;
  // 1 % of the busiest: 10,000 x 131.25 ns < 1,000,000 x 5 ns.
  const Plan plan = world.source(1'000'000, kRc).source(10'000, kRc).plan();
  EXPECT_TRUE(plan.changes);
  expect_line(plan, 1, kDc, Reason::too_few_messages);
  expect_line(plan, 0, kRc, Reason::gain);
}

TEST(SelectAqps, LimitThatShrankIsObeyedWhateverTheGain) {
  World world;
  world.limits.max_active_rc = 1;
  const Plan plan = world.source(1000, kRc).source(1001, kRc).plan();
  EXPECT_TRUE(plan.changes);
  expect_line(plan, 1, kRc, Reason::gain);
  expect_line(plan, 0, kDc, Reason::limit_active_rc);
}

TEST(SelectAqps, WithDcRdmaTheBusiestGetQueuePairsTheNextRings) {
  World world;
  world.limits.dc_rdma_available = true;
  world.limits.max_active_rc = 1;
  world.limits.max_channels = 2;
  const Plan plan = world.source(1000).source(3000).source(2000).plan();
  expect_line(plan, 1, kRc, Reason::gain);
  expect_line(plan, 2, kRing, Reason::gain);
  expect_line(plan, 0, kDc, Reason::limit_channels);
}

// The ring stays: to RC-RDMA only a queue pair that does not exist is paid for, in time and bytes.
TEST(SelectAqps, FromDcRdmaToRcRdmaKeepsTheRing) {
  World world;
  world.gamma = 0;
  world.limits.dc_rdma_available = true;
  world.limits.bytes_available = world.limits.bytes_per_ring + world.limits.bytes_per_rc;
  const Plan plan = World(world).source(1000, kRing).plan();
  expect_line(plan, 0, kRc, Reason::gain);
  EXPECT_NEAR(plan.gain_best - plan.gain_current, 1000 * 50 - 10'000, 1e-6) << "rho, not delta";
  EXPECT_FALSE(World(world).source(199, kRing).plan().changes) << "50 ns each do not pay 10 us";
  EXPECT_TRUE(World(world).source(199, kRing, true).plan().changes) << "the queue pair exists";
  world.limits.bytes_available -= 1;
  EXPECT_FALSE(World(world).source(1000, kRing).plan().changes) << "no room for a queue pair";
  EXPECT_TRUE(World(world).source(1000, kRing, true).plan().changes);
}

TEST(SelectAqps, FromRcRdmaToDcRdmaCostsNothing) {
  World world;
  world.gamma = 0;
  world.limits.dc_rdma_available = true;
  world.limits.max_active_rc = 1;
  world.limits.bytes_available = 2 * world.limits.bytes_per_ring + world.limits.bytes_per_rc;
  // 100 messages would not pay the set-up of a ring, but it exists.
  const Plan plan = world.source(100, kRc).source(1000).plan();
  EXPECT_TRUE(plan.changes);
  expect_line(plan, 0, kRing, Reason::limit_active_rc);
  expect_line(plan, 1, kRc, Reason::gain);
  EXPECT_EQ(plan.lines.front().peer, 0u) << "downgrades first";
  // 100 x (81.25 - 50) ns, and the other's 1000 x (131.25 - 5) ns less set-up.
  EXPECT_NEAR(plan.gain_best, 3125 + 116'250, 1e-6);
}

// Gains are divided by what came in the window, from sources that are not listed too.
TEST(SelectAqps, MessagesOfOthersDivideTheGain) {
  World world;
  world.source(10'000);
  Input input{world.sources, world.costs, world.limits, 25};
  EXPECT_TRUE(select_aqps(input).changes);
  input.messages = 100'000;
  const Plan held = select_aqps(input);
  EXPECT_FALSE(held.changes);
  EXPECT_FALSE(held.forced);
}

TEST(SelectAqps, ManySourcesAreOrderedAsFew) {
  World world;
  std::uint64_t n = 1;
  for (int i = 0; i < 3000; ++i) {
    n = n * 6364136223846793005u + 1442695040888963407u;
    const std::uint64_t messages = i % 3 == 0 ? n >> 60 : i % 3 == 1 ? n >> 44 : n >> 30;
    world.source(messages, i % 7 == 0 ? kRc : i % 11 == 0 ? kRing : kDc);
  }
  world.gamma = 1e9;
  world.limits = {3000, 3000, true, ~std::uint64_t{0}, 1, 1};
  const Plan plan = world.plan();
  ASSERT_EQ(plan.lines.size(), 3000u);
  for (std::size_t i = 1; i < plan.lines.size(); ++i) {
    const PlanLine &a = plan.lines[i - 1], &b = plan.lines[i];
    ASSERT_GE(a.messages, b.messages);
    const auto favour = [](ChannelKind kind) { return kind == kRc ? 2 : kind == kRing ? 1 : 0; };
    if (a.messages != b.messages) continue;
    ASSERT_GE(favour(a.from), favour(b.from));
    if (a.from == b.from) {
      ASSERT_LT(a.peer, b.peer);
    }
  }
}

TEST(SelectAqps, EveryReasonHasWords) {
  for (int r = 0; r <= static_cast<int>(Reason::kept); ++r) {
    EXPECT_GT(explain(static_cast<Reason>(r)).size(), 3u) << r;
  }
}

}  // namespace
}  // namespace turnout::selection
