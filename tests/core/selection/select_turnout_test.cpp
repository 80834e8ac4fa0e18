// SPDX-License-Identifier: BSD-3-Clause
// select_turnout: what both ends' view changes, the oracle, properties.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "core/selection/turnout_policy.h"
#include "tests/core/selection/oracle.h"
#include "tests/core/selection/random_world.h"

namespace turnout::selection {
namespace {

struct TurnoutWorld {
  std::vector<SourceView> sources;
  TurnoutTerms terms;
  Limits limits{4096, 4096, true, ~std::uint64_t{0} >> 1, 64 << 10, 100 << 10};
  [[nodiscard]] TurnoutInput input() const { return {sources, terms, limits, 0}; }
  // Sources 0.. with so many messages each.
  void add(std::uint32_t count, std::uint64_t messages, SenderFeedback feedback = {}) {
    for (std::uint32_t i = 0; i < count; ++i) {
      SourceView& s = sources.emplace_back();
      s.peer = static_cast<std::uint32_t>(sources.size() - 1);
      s.messages = messages;
      s.feedback = feedback;
    }
  }
};

std::size_t count(const Plan& plan, ChannelKind kind) {
  return static_cast<std::size_t>(std::count_if(plan.lines.begin(), plan.lines.end(),
                                                [&](const PlanLine& l) { return l.to == kind; }));
}

// The gain of a map, written down from the header's formulas.
double gain(const TurnoutWorld& w, const std::vector<ChannelKind>& map) {
  const DeviceCosts& c = w.terms.costs;
  const auto loss = [&](double active) {
    double sum = 0;
    if (active > c.context_first_entries.value) {
      sum += c.context_first_beyond.value * (1 - c.context_first_entries.value / active);
    }
    if (active > c.context_second_entries.value) {
      sum += c.context_second_beyond.value * (1 - c.context_second_entries.value / active);
    }
    return sum;
  };
  double all = 0, active = w.terms.sending_rc, operations = 0, total = 0;
  for (const SourceView& s : w.sources) all += static_cast<double>(s.messages);
  const double waits = (1 - w.terms.busy) * all;
  for (std::size_t i = 0; i < map.size(); ++i) {
    const SourceView& s = w.sources[i];
    if (!oracle::ring(map[i])) continue;
    const double n = static_cast<double>(s.messages);
    const double busy = std::max<double>(s.feedback.busy, w.terms.busy);
    total -= n * (1 - w.terms.busy) * c.receiver_credit.value / w.terms.ring_entries;
    total += n * w.terms.busy *
             (c.receiver_busy_dc_sendrecv.value -
              (map[i] == ChannelKind::dc_rdma ? c.receiver_busy_dc_rdma : c.receiver_busy_rc_rdma)
                  .value);
    total -= waits * c.receiver_poll.value / (s.messages == 0 ? kSilentRounds : 1);
    const double base = c.receiver_dc_sendrecv.value;
    if (map[i] == ChannelKind::dc_rdma) {
      total += n * (1 - busy) * (base - c.receiver_dc_rdma.value);
      if (!oracle::ring(s.current)) {
        total -= c.setup_dc_processor.value;
      }
      continue;
    }
    total +=
        n * (1 - busy) *
        (base - c.receiver_rc_rdma.value + s.feedback.switched * c.sender_switch_latency.value);
    total += n * s.feedback.busy *
             (c.sender_post_dc.value +
              s.feedback.switched * (c.sender_post_dc_switch.value - c.sender_post_dc.value) -
              c.sender_post_rc.value);
    if (!s.rc_exists && s.current != ChannelKind::rc_rdma) {
      total -= rc_price(c);
    }
    total -= n * loss(s.feedback.active_rc + (s.current == ChannelKind::rc_rdma ? 0.0 : 1.0));
    active += 1;
    operations += n;
  }
  return total - operations * loss(active);
}

Input limits_only(const TurnoutWorld& w) {
  Input input;
  input.sources = w.sources;
  input.limits = w.limits;
  return input;
}

double best_gain(const TurnoutWorld& w) {
  const std::size_t n = w.sources.size();
  std::vector<ChannelKind> map(n);
  std::size_t maps = 1;
  for (std::size_t i = 0; i < n; ++i) maps *= 3;
  double best = -1e300;
  for (std::size_t code = 0; code < maps; ++code) {
    bool possible = true;
    std::size_t rest = code;
    for (std::size_t i = 0; i < n; ++i, rest /= 3) {
      map[i] = static_cast<ChannelKind>(rest % 3);
      const SourceView& s = w.sources[i];
      if (s.refused && map[i] != s.current) possible = false;
      if (map[i] == ChannelKind::dc_rdma && !w.limits.dc_rdma_available &&
          s.current != ChannelKind::dc_rdma) {
        possible = false;
      }
    }
    if (possible && oracle::within_limits(limits_only(w), map)) best = std::max(best, gain(w, map));
  }
  return best;
}

TurnoutWorld random_world(Generator* g, std::size_t most, bool limited) {
  TurnoutWorld w;
  const World base = g->world(most, g->below(4) != 0);
  w.sources = base.sources;
  if (limited) {
    w.limits = base.limits;
  } else {
    w.limits.dc_rdma_available = base.limits.dc_rdma_available;
    w.limits.bytes_per_rc = 0;
  }
  for (SourceView& s : w.sources) {
    s.feedback = {static_cast<float>(g->below(11)) / 10, static_cast<float>(g->below(11)) / 10,
                  static_cast<std::uint32_t>(g->below(100))};
    if (s.messages == 0) s.messages = 1;
  }
  DeviceCosts& c = w.terms.costs;
  c.context_first_entries.value = static_cast<double>(1 + g->below(8));
  c.context_first_beyond.value = static_cast<double>(g->below(200));
  c.context_second_entries.value = 64;
  c.receiver_poll.value = static_cast<double>(g->below(30));
  w.terms.busy = g->below(2) == 0 ? 0 : 0.5;
  w.terms.sending_rc = static_cast<std::uint32_t>(g->below(6));
  return w;
}

// gain_best is the optimum where nothing but the costs limits; else it seldom misses, and little.
TEST(SelectTurnout, TheOracleAgrees) {
  Generator generator(31);
  int worlds = 0, missed = 0;
  double lost = 0;
  for (int round = 0; round < 4000; ++round) {
    const bool limited = round % 2 == 0, contexts = round % 4 < 2;
    TurnoutWorld w = random_world(&generator, 6, limited);
    if (!contexts) w.terms.costs.context_first_beyond.value = 0;
    if (!contexts) w.terms.costs.context_second_beyond.value = 0;
    std::vector<ChannelKind> current;
    for (const SourceView& s : w.sources) current.push_back(s.current);
    if (!oracle::within_limits(limits_only(w), current)) continue;
    const Plan plan = select_turnout(w.input());
    ASSERT_NEAR(plan.gain_current, gain(w, current), 1e-3) << round;
    const double best = best_gain(w);
    ASSERT_LE(plan.gain_best, best + 1e-3) << round;
    if (!limited && !contexts) {
      ASSERT_NEAR(plan.gain_best, best, 1e-3) << "round " << round;
      continue;
    }
    ++worlds;
    if (plan.gain_best > best - 1e-3) continue;
    ++missed;
    lost += (best - plan.gain_best) / std::max(std::abs(best), 1.0);
  }
  EXPECT_LT(missed * 20, worlds) << missed << " of " << worlds;
  EXPECT_LT(lost / worlds, 0.01);
}

TEST(SelectTurnout, LimitsAreKeptAndTheOrderOfSourcesDoesNotMatter) {
  Generator generator(37);
  for (int round = 0; round < 2000; ++round) {
    TurnoutWorld w = random_world(&generator, round % 10 == 0 ? 100 : 12, true);
    const Plan plan = select_turnout(w.input());
    std::map<std::uint32_t, ChannelKind> to;
    for (const PlanLine& line : plan.lines) to[line.peer] = line.to;
    std::vector<ChannelKind> map, current;
    for (const SourceView& s : w.sources) {
      map.push_back(to.at(s.peer));
      current.push_back(s.current);
      if (s.refused && !plan.forced) {
        ASSERT_EQ(map.back(), s.current);
      }
    }
    if (plan.changes || !plan.forced) {
      ASSERT_TRUE(oracle::within_limits(limits_only(w), map)) << round;
    }
    ASSERT_EQ(plan.changes, map != current);
    if (plan.changes && !plan.forced) {
      ASSERT_GT(plan.gain_best - plan.gain_current, plan.threshold);
    }
    std::reverse(w.sources.begin(), w.sources.end());
    const Plan again = select_turnout(w.input());
    ASSERT_EQ(plan.gain_best, again.gain_best);
    ASSERT_EQ(plan.lines.size(), again.lines.size());
    for (const PlanLine& line : again.lines) ASSERT_EQ(to.at(line.peer), line.to);
  }
}

TEST(SelectTurnout, BusyProcessesSaveNoLatency) {
  TurnoutWorld w;
  w.add(4, 50'000);
  EXPECT_EQ(count(select_turnout(w.input()), ChannelKind::rc_rdma), 4u);
  w.terms.busy = 1;
  DeviceCosts& c = w.terms.costs;
  c.receiver_busy_dc_rdma = c.receiver_busy_rc_rdma = c.receiver_busy_dc_sendrecv;
  const Plan plan = select_turnout(w.input());
  EXPECT_EQ(count(plan, ChannelKind::dc_sendrecv), 4u);
  EXPECT_EQ(plan.lines[0].reason, Reason::too_busy);
}

TEST(SelectTurnout, ABusyReceiverSavesWhatAMessageTakesItLess) {
  TurnoutWorld w;
  w.add(4, 50'000);
  w.terms.busy = 1;
  w.terms.costs.receiver_busy_dc_sendrecv = {150, 0.02};
  w.terms.costs.receiver_busy_dc_rdma = {140, 0.02};
  w.terms.costs.receiver_busy_rc_rdma = {100, 0.02};
  EXPECT_EQ(count(select_turnout(w.input()), ChannelKind::rc_rdma), 4u);
  w.limits.max_active_rc = 0;
  EXPECT_EQ(count(select_turnout(w.input()), ChannelKind::rc_rdma), 0u);
}

TEST(SelectTurnout, SetUpsThatSavedNothingMakeItAskForMore) {
  TurnoutWorld w;
  w.add(1, 300);
  EXPECT_EQ(count(select_turnout(w.input()), ChannelKind::rc_rdma), 1u);
  w.terms.repaid = 0.1;
  EXPECT_EQ(count(select_turnout(w.input()), ChannelKind::dc_sendrecv), 1u);
  // What is set up already costs nothing.
  w.sources[0].current = ChannelKind::rc_rdma;
  w.sources[0].rc_exists = true;
  EXPECT_EQ(count(select_turnout(w.input()), ChannelKind::rc_rdma), 1u);
}

TEST(SelectTurnout, ASendersSwitchesAskForRc) {
  TurnoutWorld w;
  w.add(1, 300);
  w.terms.costs.setup_rc_processor.value = 60'000;
  EXPECT_EQ(count(select_turnout(w.input()), ChannelKind::rc_rdma), 0u);
  w.sources[0].feedback.switched = 1;
  const Plan plan = select_turnout(w.input());
  EXPECT_EQ(count(plan, ChannelKind::rc_rdma), 1u);
  EXPECT_EQ(plan.lines[0].reason, Reason::sender_switches);
}

TEST(SelectTurnout, ContextsBoundTheQueuePairsAndNotAConstant) {
  TurnoutWorld w;
  w.add(100, 20'000);
  w.terms.costs.receiver_poll.value = 0;
  EXPECT_EQ(count(select_turnout(w.input()), ChannelKind::rc_rdma), 100u);
  w.terms.costs.context_first_entries.value = 40;
  w.terms.costs.context_first_beyond.value = 3000;
  const Plan plan = select_turnout(w.input());
  const std::size_t rc = count(plan, ChannelKind::rc_rdma);
  EXPECT_GE(rc, 35u);
  EXPECT_LE(rc, 45u);
  EXPECT_EQ(plan.lines.back().reason, Reason::contexts);
  // The sender's adapter counts as ours does.
  w.add(0, 0);
  w.terms.costs.context_first_entries.value = 200;
  for (SourceView& s : w.sources) s.feedback.active_rc = 4000;
  EXPECT_EQ(count(select_turnout(w.input()), ChannelKind::rc_rdma), 0u);
}

TEST(SelectTurnout, WhatCouldBeAnErrorOfMeasurementChangesNothing) {
  TurnoutWorld w;
  w.add(1, 2000);
  EXPECT_TRUE(select_turnout(w.input()).changes);
  w.terms.costs.receiver_dc_sendrecv.uncertainty = 3;
  const Plan plan = select_turnout(w.input());
  EXPECT_FALSE(plan.changes);
  EXPECT_EQ(plan.lines[0].reason, Reason::not_certain);
  EXPECT_GT(plan.threshold, plan.gain_best - plan.gain_current);
}

// A queue pair serves what is left after it was made: a window far shorter than that is not enough.
TEST(SelectTurnout, AQueuePairHasToBeMadeBeforeItServes) {
  TurnoutWorld w;
  w.add(1, 100'000);
  w.terms.costs.setup_rc_time.value = 4e6;
  TurnoutInput input = w.input();
  input.limits.dc_rdma_available = false;
  EXPECT_EQ(count(select_turnout(input), ChannelKind::rc_rdma), 1u);
  input.window = 1e3;
  EXPECT_EQ(count(select_turnout(input), ChannelKind::rc_rdma), 0u);
  input.window = 1e9;
  EXPECT_EQ(count(select_turnout(input), ChannelKind::rc_rdma), 1u);
  w.sources[0].rc_exists = true;
  input = w.input();
  input.window = 1e3;
  EXPECT_EQ(count(select_turnout(input), ChannelKind::rc_rdma), 1u);
}

// A program that waits for each message polls all rings for each; a busy one finds messages.
TEST(SelectTurnout, RingsThatDelayAllMessagesAreNotTaken) {
  TurnoutWorld w;
  w.add(4, 1'000'000);
  EXPECT_EQ(count(select_turnout(w.input()), ChannelKind::dc_sendrecv), 0u);
  w.add(40, 1'000'000);
  EXPECT_EQ(count(select_turnout(w.input()), ChannelKind::dc_sendrecv), 44u);
  w.terms.busy = 1;
  w.terms.costs.receiver_poll.value = 1;
  EXPECT_EQ(count(select_turnout(w.input()), ChannelKind::dc_sendrecv), 0u);
}

// Where few set-ups repaid it takes more messages. There are as many that suffice.
TEST(SelectTurnout, SetUpsThatMayNotRepayNeedMoreMessages) {
  TurnoutWorld w;
  w.add(1, 400);
  EXPECT_EQ(count(select_turnout(w.input()), ChannelKind::dc_sendrecv), 0u);
  w.terms.repaid = 0.25;
  EXPECT_EQ(count(select_turnout(w.input()), ChannelKind::dc_sendrecv), 1u);
  w.sources[0].messages = 1'000'000;
  EXPECT_EQ(count(select_turnout(w.input()), ChannelKind::dc_sendrecv), 0u);
}

// No more are asked for than can be made within a window, those under way counted.
TEST(SelectTurnout, QueuePairsAreMadeOneByOne) {
  TurnoutWorld w;
  w.add(10, 1'000'000);
  w.terms.costs.setup_rc_time.value = 4e6;
  w.terms.costs.receiver_poll.value = 0;
  TurnoutInput input = w.input();
  input.window = 1e6;
  EXPECT_EQ(count(select_turnout(input), ChannelKind::rc_rdma), 1u);
  EXPECT_EQ(count(select_turnout(input), ChannelKind::dc_rdma), 9u);
  input.window = 13e6;
  EXPECT_EQ(count(select_turnout(input), ChannelKind::rc_rdma), 3u);
  input.terms.under_way = 2;
  EXPECT_EQ(count(select_turnout(input), ChannelKind::rc_rdma), 1u);
  input.terms.under_way = 7;
  EXPECT_EQ(count(select_turnout(input), ChannelKind::rc_rdma), 0u);
}

// If each took all its memory for queue pairs that it asks for, nobody could accept one.
TEST(SelectTurnout, HalfOfTheMemoryIsLeftForWhatOthersAskFor) {
  TurnoutWorld w;
  w.add(10, 1'000'000);
  w.terms.costs.receiver_poll = {5, 0.25};
  w.limits.dc_rdma_available = false;
  const std::uint64_t each = w.limits.bytes_per_ring + w.limits.bytes_per_rc;
  w.limits.bytes_available = 6 * each;
  EXPECT_EQ(count(select_turnout(w.input()), ChannelKind::rc_rdma), 3u);
  w.terms.under_way = 2;  // of eight, four
  EXPECT_EQ(count(select_turnout(w.input()), ChannelKind::rc_rdma), 2u);
  w.terms.under_way = 6;
  EXPECT_EQ(count(select_turnout(w.input()), ChannelKind::rc_rdma), 0u);
  // The last place is taken.
  w.terms.under_way = 0;
  w.limits.bytes_available = each;
  EXPECT_EQ(count(select_turnout(w.input()), ChannelKind::rc_rdma), 1u);
  // Those that exist take nothing.
  for (SourceView& s : w.sources) s.rc_exists = true;
  w.limits.bytes_available = 10 * w.limits.bytes_per_ring;
  EXPECT_EQ(count(select_turnout(w.input()), ChannelKind::rc_rdma), 10u);
}

TEST(SelectTurnout, ASourceWithoutRoomIsNotAskedForAQueuePair) {
  TurnoutWorld w;
  w.add(2, 1'000'000);
  w.limits.dc_rdma_available = false;
  w.sources[0].feedback.full = true;
  Plan plan = select_turnout(w.input());
  ASSERT_EQ(plan.lines.size(), 2u);
  for (const PlanLine& line : plan.lines) {
    EXPECT_EQ(line.to, line.peer == 0 ? ChannelKind::dc_sendrecv : ChannelKind::rc_rdma);
    EXPECT_EQ(line.reason, line.peer == 0 ? Reason::budget_of_source : Reason::gain);
  }
  w.limits.dc_rdma_available = true;  // its ring is our memory
  EXPECT_EQ(count(select_turnout(w.input()), ChannelKind::dc_rdma), 1u);
  w.sources[0].rc_exists = true;
  EXPECT_EQ(count(select_turnout(w.input()), ChannelKind::rc_rdma), 2u);
}

// Where queue pairs for all who pay do not fit, senders that reach several of our processes get one
// for all of these.
TEST(SelectTurnout, ConnectionsToOurNodeAreMadeWhereQueuePairsDoNotFit) {
  const auto nodes = [](const Plan& plan) {
    return std::count_if(plan.lines.begin(), plan.lines.end(),
                         [](const PlanLine& line) { return line.over_node; });
  };
  TurnoutWorld w;
  w.add(8, 100'000, {0, 1, 0, 16});
  w.terms.costs.receiver_poll = {5, 0.25};
  w.limits.bytes_per_target = 4096;
  Plan plan = select_turnout(w.input());
  ASSERT_EQ(count(plan, ChannelKind::rc_rdma), 8u);
  EXPECT_EQ(nodes(plan), 0) << "there is room";
  const std::uint64_t rings = 8 * w.limits.bytes_per_ring;
  w.limits.bytes_available = rings + 2 * w.limits.bytes_per_rc;
  plan = select_turnout(w.input());
  EXPECT_EQ(count(plan, ChannelKind::rc_rdma), 8u);
  EXPECT_EQ(nodes(plan), 8);
  // What is there stays, whatever it is.
  w.sources[0].current = ChannelKind::rc_rdma;
  w.sources[1].current = ChannelKind::rc_rdma;
  w.sources[1].over_node = true;
  plan = select_turnout(w.input());
  EXPECT_EQ(count(plan, ChannelKind::rc_rdma), 8u);
  for (const PlanLine& line : plan.lines) EXPECT_EQ(line.over_node, line.peer != 0) << line.peer;
  // A sender that reaches only us saves nothing.
  for (SourceView& s : w.sources) s = {s.peer, ChannelKind::dc_sendrecv, s.messages};
  plan = select_turnout(w.input());
  EXPECT_EQ(count(plan, ChannelKind::rc_rdma), 2u);
  EXPECT_EQ(nodes(plan), 0);
  // The number of queue pairs is such a limit, too.
  for (SourceView& s : w.sources) s.feedback = {0, 1, 0, 2};
  w.limits.bytes_available = ~std::uint64_t{0} >> 1;
  w.limits.max_active_rc = 3;
  plan = select_turnout(w.input());
  EXPECT_EQ(nodes(plan), 8);
  w.limits.bytes_per_target = 0;
  plan = select_turnout(w.input());
  EXPECT_EQ(count(plan, ChannelKind::rc_rdma), 3u);
}

TEST(SelectTurnout, ShareOfTimeAndInitiators) {
  DeviceCosts costs;
  EXPECT_EQ(busy_share(costs, 0, 0, 0, 1e6), 0);
  EXPECT_NEAR(busy_share(costs, 1000, 1000, 0, 1e6), 0.139, 1e-9);
  EXPECT_EQ(busy_share(costs, 1'000'000, 0, 0, 1e6), 1);
  EXPECT_EQ(busy_share(costs, 1, 0, 0, 0), 0);
  EXPECT_EQ(wanted_dcis(costs, 0), 64u);
  for (const auto& [processes, initiators] :
       {std::pair{1u, 4u}, {2u, 4u}, {10u, 10u}, {63u, 63u}, {64u, 64u}, {100'000u, 64u}}) {
    EXPECT_EQ(wanted_dcis(costs, processes), initiators) << processes;
  }
  costs.sender_dci_switch.value = 0;
  EXPECT_EQ(wanted_dcis(costs, 0), 1u);
  EXPECT_EQ(wanted_dcis(costs, 10), 1u);
  costs.sender_dci_switch.value = 1e9;
  EXPECT_EQ(wanted_dcis(costs, 0), 64u);
}

TEST(SelectTurnout, InitiatorsForCreditsFollowThoseForData) {
  for (const auto& [data, credits] :
       {std::pair{1u, 2u}, {4u, 4u}, {8u, 8u}, {32u, 8u}, {64u, 16u}, {128u, 16u}}) {
    EXPECT_EQ(credit_dcis(data, 0), credits) << data;
    EXPECT_EQ(credit_dcis(data, data + 1), credits) << data;
  }
  // Each process has one of its own.
  EXPECT_EQ(credit_dcis(4, 2), 4u);
  EXPECT_EQ(credit_dcis(12, 12), 12u);
  EXPECT_EQ(credit_dcis(16, 16), 16u);
  EXPECT_EQ(credit_dcis(32, 32), 16u);
}

// Processes that share an adapter have a part of its context cache each.
TEST(SelectTurnout, ManyOnANodeUseFewerQueuePairsEach) {
  DeviceCosts costs;
  costs.context_first_entries.value = 64;
  costs.context_second_entries.value = 1024;
  EXPECT_EQ(wanted_dcis(shared_by(costs, 0), 0), 64u);
  EXPECT_EQ(wanted_dcis(shared_by(costs, 1), 0), 64u);
  EXPECT_EQ(wanted_dcis(shared_by(costs, 16), 0), 32u);
  EXPECT_EQ(wanted_dcis(shared_by(costs, 24), 0), 16u);
  EXPECT_EQ(wanted_dcis(shared_by(costs, 100'000), 0), 4u);
  EXPECT_EQ(shared_by(costs, 16).context_first_entries.value, 4);
}

TEST(SelectTurnout, EveryReasonHasWords) {
  for (int r = 0; r <= static_cast<int>(Reason::predicted); ++r) {
    EXPECT_NE(explain(static_cast<Reason>(r)), "?");
  }
}

}  // namespace
}  // namespace turnout::selection
