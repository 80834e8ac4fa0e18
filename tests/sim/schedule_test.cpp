// SPDX-License-Identifier: BSD-3-Clause
// The messaging core under random schedules and faults in virtual time: a fixed set of seeds here,
// without end in `make soak`. A seed that fails is played again by
//   sim_soak --first SEED --count 1
#include "tests/sim/schedule.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "base/settings.h"

namespace turnout::sim {
namespace {

// Of seed 7. A change of protocol, engine or schedule changes it, and is meant to be seen here.
constexpr std::uint64_t kHashOfTen = 0xb5ae774bf79e09bb;

// Of the first seeds, all of which hold; the counts of all.
template <class Play>
ScheduleOutcome sum_of(std::uint64_t seeds, Play&& play) {
  ScheduleOutcome sum;
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    const ScheduleOutcome outcome = play(seed);
    EXPECT_EQ(outcome.broken, "") << outcome.told;
    if (!outcome.broken.empty()) break;
    sum.add(outcome);
  }
  return sum;
}

TEST(Schedules, HoldWhatMpiPromises) {
  const auto sum = sum_of(300, [](std::uint64_t seed) { return play_schedule(seed); });
  EXPECT_GT(sum.switches, 1000u);
  EXPECT_GT(sum.faults, 1000u);
  EXPECT_GT(sum.adds, 1000u);
}

// Every way a large message can travel, among eager ones, wildcards and longer receives.
class Rendezvous : public testing::TestWithParam<std::string_view> {};
TEST_P(Rendezvous, HoldsWhatMpiPromises) {
  sum_of(80, [](std::uint64_t seed) {
    return play_large_schedule(seed,
                               {.settings = {Setting{"rendezvous", std::string(GetParam())}}});
  });
}
INSTANTIATE_TEST_SUITE_P(Schedules, Rendezvous, testing::ValuesIn(kRendezvousNames),
                         [](const auto& info) { return std::string(info.param); });

// Eager messages that take large entries, or several entries, receives or datagrams; sends that end
// when they are delivered or matched.
TEST(Schedules, HoldWithEagerMessagesInFragments) {
  const auto sizes = [](std::uint64_t seed) {
    More more;
    add_eager_sizes(seed, &more);
    return more;
  };
  sum_of(150, [&](std::uint64_t seed) { return play_large_schedule(seed, sizes(seed)); });
  sum_of(50, [&](std::uint64_t seed) { return play_datagram_schedule(seed, sizes(seed)); });
  sum_of(50, [&](std::uint64_t seed) { return play_failure_schedule(seed, sizes(seed)); });
  sum_of(50, [&](std::uint64_t seed) { return play_scarce_schedule(seed, sizes(seed)); });
}

// Ended with nobody going on: credits lent to a peer that handed back all others, and never told
// of, were nobody's.
TEST(Schedules, LendTheCreditsThatAPeerWasNotToldOf) {
  for (const auto& [seed, way] : {std::pair{1753, "put"},
                                  {4238, "put"},
                                  {1854, "auto"},
                                  {1984, "auto"},
                                  {2454, "auto"},
                                  {3712, "auto"}}) {
    const ScheduleOutcome outcome = play_large_schedule(static_cast<std::uint64_t>(seed),
                                                        {.settings = {Setting{"rendezvous", way}}});
    EXPECT_EQ(outcome.broken, "") << outcome.told;
  }
}

// Receives of each connection's own, rings beside them, and queue pairs that come and go.
TEST(Schedules, HoldUnderArdmaSr) {
  const auto sum = sum_of(100, [](std::uint64_t seed) {
    return play_large_schedule(seed, {.settings = {Setting{"policy", "ardma-sr"}}});
  });
  EXPECT_GT(sum.switches, 500u);
}

// 1 to 4 connections for each process, or little memory for them: they give their places to each
// other while messages, atomic operations and faults go on, and there are never more.
TEST(Schedules, HoldWhileConnectionsAreTornDown) {
  const auto sum = sum_of(300, [](std::uint64_t seed) { return play_teardown_schedule(seed); });
  EXPECT_GT(sum.connections.made, 1000u);
  EXPECT_GT(sum.connections.tear_downs, 500u);
  EXPECT_GT(sum.reached, 5000u);
}
TEST(Schedules, HoldWhileConnectionsAreTornDownAndRanksDie) {
  const auto sum = sum_of(100, [](std::uint64_t seed) { return play_death_schedule(seed); });
  EXPECT_GT(sum.connections.tear_downs, 50u);
  EXPECT_GT(sum.refused, 500u);
}

// A peer that is lost leaves its credits to others, who are told over the queue pair whose failure
// told of the loss: that message has to go out after the queue pair is there again.
TEST(Schedules, CreditsOfTheLostReachTheOthers) {
  const auto outcome = play_death_schedule(1795464755623363009);
  EXPECT_EQ(outcome.broken, "") << outcome.told;
}

// Several ranks of a node share what others write to them over.
TEST(Schedules, HoldWhileConnectionsServeNodes) {
  const auto sum = sum_of(300, [](std::uint64_t seed) { return play_xrc_schedule(seed); });
  EXPECT_GT(sum.connections.made, 500u);
  EXPECT_GT(sum.connections.failed, 100u);
  EXPECT_GT(sum.refused, 500u);
  // Messages before their turn had every receive, and the one they waited for found none.
  EXPECT_EQ(play_xrc_schedule(2014).broken, "");
}

// Queue pairs go to the error state, under all that the others do: what was lost is sent again.
TEST(Schedules, HoldWhileConnectionsFail) {
  const auto sum = sum_of(300, [](std::uint64_t seed) { return play_failure_schedule(seed); });
  EXPECT_GT(sum.connections.failed, 800u);
  EXPECT_GT(sum.reached, 5000u);
  // Its operations held all send buffers but the one that was sent with, which nobody signalled.
  EXPECT_EQ(play_failure_schedule(20448).broken, "");
  // Messages of the default transport had every receive, and waited for the resent ones.
  EXPECT_EQ(play_failure_schedule(300463).broken, "");
  // A large message has a receive and a transfer, waits for its channel, and finds no record.
  EXPECT_EQ(play_failure_schedule(809724, {.settings = {Setting{"policy", "turnout"}}}).broken, "");
  // Credits were read of whose write the adapter had placed one half.
  EXPECT_EQ(play_failure_schedule(1796021940060185034, {.settings = {Setting{"policy", "turnout"}}})
                .broken,
            "");
}
// A message that is not sent again is missed.
TEST(Schedules, FindWhatIsNotSentAgain) {
  std::uint64_t found = 0;
  for (std::uint64_t seed = 1; seed <= 40 && found <= 5; ++seed) {
    if (!play_failure_schedule(seed, {.settings = {Setting{"break_rule", "drop-lost"}}})
             .broken.empty())
      ++found;
  }
  EXPECT_GT(found, 5u);
}

// Hints come and go, and channels that cost nothing to set up change often.
TEST(Schedules, HoldUnderThePolicyTurnout) {
  const auto sum = sum_of(60, [](std::uint64_t seed) {
    return play_schedule(seed, {.settings = {{"policy", "turnout"},
                                             {"test_switch_every", "0"},
                                             {"interval", "20us"},
                                             {"cost_poll", "0s"},
                                             {"cost_setup_dc", "0s"},
                                             {"cost_setup_rc", "0s"}}});
  });
  EXPECT_GT(sum.switches, 100u);
}

// Of the last run, right and wrong ones.
TEST(Schedules, HoldWithPredictions) {
  const auto sum = sum_of(100, [](std::uint64_t seed) { return play_predicted_schedule(seed); });
  EXPECT_GT(sum.switches, 100u);
}

TEST(Schedules, AreRepeatableToTheBitAndDifferBySeed) {
  std::set<std::uint64_t> hashes;
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    const ScheduleOutcome once = play_schedule(seed);
    EXPECT_EQ(once.hash, play_schedule(seed).hash) << once.told;
    EXPECT_NE(once.hash, 0u);
    hashes.insert(once.hash);
  }
  EXPECT_EQ(hashes.size(), 100u);
  // What every build must give, whatever its optimisation and sanitizers.
  std::uint64_t all = 0;
  for (std::uint64_t seed = 1; seed <= 10; ++seed) all = all * 31 + play_schedule(seed).hash;
  EXPECT_EQ(all, kHashOfTen);
}

// UD in DC's place: datagrams are lost, come twice and out of order; what MPI promises holds.
TEST(Schedules, HoldOverDatagrams) {
  const auto sum = sum_of(300, [](std::uint64_t seed) { return play_datagram_schedule(seed); });
  EXPECT_GT(sum.switches, 1000u);
  EXPECT_GT(sum.faults, 10'000u);
  EXPECT_EQ(play_datagram_schedule(7).hash, play_datagram_schedule(7).hash);
  // What a program's last messages lost, its process sends again although it only waits to close.
  EXPECT_EQ(play_datagram_schedule(33475).broken, "");
}

// The budget is small: much is refused, and no rank's account is ever above it.
// A sample; the long suites play 1,000.
TEST(Schedules, NeverExceedASmallBudget) {
  std::uint64_t full = 0, gave_up = 0;
  const auto sum = sum_of(120, [&](std::uint64_t seed) {
    const ScheduleOutcome outcome = play_scarce_schedule(seed);
    if (outcome.fullest > 0.93) ++full;  // a sixteenth is promised to operations
    if (outcome.gave_up) ++gave_up;
    return outcome;
  });
  EXPECT_GT(sum.switches, 200u);
  EXPECT_GT(full, 8u);
  EXPECT_LT(gave_up, 12u);  // most programs get by
}

// An account that refuses nothing is found out.
TEST(Schedules, FindAnAccountAboveItsBudget) {
  std::uint64_t found = 0;
  for (std::uint64_t seed = 1; seed <= 60 && found <= 15; ++seed) {
    const ScheduleOutcome outcome =
        play_scarce_schedule(seed, {.settings = {Setting{"break_rule", "over-budget"}}});
    if (outcome.broken.find("are over the budget of") != std::string::npos) ++found;
  }
  EXPECT_GT(found, 15u);
}

// A hand-over with two steps in the wrong order is found, and its seed finds it again.
TEST(Schedules, FindABrokenHandOver) {
  const More broken{.settings = {Setting{"break_rule", "free-before-drain"}}};
  std::uint64_t found = 0;
  for (std::uint64_t seed = 1; seed <= 1000 && found == 0; ++seed) {
    if (!play_schedule(seed, broken).broken.empty()) found = seed;
  }
  ASSERT_NE(found, 0u);
  RecordProperty("found_by_seed", static_cast<int>(found));
  const ScheduleOutcome first = play_schedule(found, broken), again = play_schedule(found, broken);
  EXPECT_EQ(first.broken, again.broken);
  EXPECT_EQ(play_schedule(found).broken, "") << first.told;
}

// Rings that trust the last byte are found out where writes are placed out of order; the same
// seeds hold when the core asks the adapter.
TEST(Schedules, FindTrustInAnAdapterThatPlacesOutOfOrder) {
  const More trust{.settings = {Setting{"ring_order", "trust"}}};
  std::uint64_t found = 0;
  for (std::uint64_t seed = 1; seed <= 200 && found == 0; ++seed) {
    if (!play_schedule(seed, trust).broken.empty()) found = seed;
  }
  ASSERT_NE(found, 0u);
  const ScheduleOutcome asked = play_schedule(found);
  EXPECT_EQ(asked.broken, "") << asked.told;
}

}  // namespace
}  // namespace turnout::sim
