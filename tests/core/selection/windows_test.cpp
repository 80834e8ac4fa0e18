// SPDX-License-Identifier: BSD-3-Clause
// T1-T4: which window is chosen, with which map, and what the state becomes.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "core/selection/windows.h"
#include "tests/core/selection/oracle.h"

namespace turnout::selection {
namespace {

constexpr Time kSecond = 1'000'000'000;
using Counts = std::map<std::uint32_t, std::uint64_t>;

// One process that acts on its plans.
struct Process {
  std::unique_ptr<Statistics> statistics;
  std::map<std::uint32_t, SourceView> peers;
  WindowState state;
  WindowInput input;
  Time now = 0;

  Process() {
    auto made = make_statistics();
    statistics = std::move(made).value();
    input.limits.bytes_per_ring = 64 << 10;
    input.limits.bytes_per_rc = 44 << 10;
    input.limits.bytes_available = 1u << 30;
  }
  std::vector<SourceView> views() const {
    std::vector<SourceView> list;
    for (const auto& [peer, view] : peers) list.push_back(view);
    return list;
  }
  WindowSelection step(const Counts& counts) {
    EXPECT_TRUE(statistics->begin_interval({now, now + kSecond}).ok());
    now += kSecond;
    std::uint64_t all = 0;
    for (const auto& [peer, n] : counts) {
      peers[peer].peer = peer;
      statistics->count(peer, n, oracle::ring(peers[peer].current));
      all += n;
    }
    statistics->end_interval(all);
    const auto sources = views();
    input.sources = sources;
    WindowSelection selection = select_in_windows(*statistics, state, input);
    state = selection.next;
    if (state.current) statistics->keep_border(state.current->begin);
    for (const PlanLine& line : selection.plan.lines) {
      EXPECT_TRUE(line.to == line.from || selection.plan.changes);
      SourceView& view = peers[line.peer];
      view.current = line.to;
      if (line.to == ChannelKind::rc_rdma) view.rc_exists = true;
    }
    input.sources = {};
    return selection;
  }
  ChannelKind channel(std::uint32_t peer) { return peers[peer].current; }
};

TEST(Windows, NothingHeard) {
  Process process;
  const WindowSelection before = select_in_windows(*process.statistics, {}, process.input);
  EXPECT_EQ(before.chosen, WindowChoice::none);
  EXPECT_FALSE(before.next.current.has_value());
  const WindowSelection idle = process.step({});
  EXPECT_EQ(idle.chosen, WindowChoice::none);
  EXPECT_FALSE(idle.next.current.has_value());
  EXPECT_FALSE(idle.plan.changes);
}

// T1, and the state's way through T2-T4.
TEST(Windows, FirstWindowThenGrowing) {
  Process process;
  process.step({});
  const WindowSelection first = process.step({{1, 100'000}, {2, 10}});
  EXPECT_EQ(first.chosen, WindowChoice::first);
  EXPECT_EQ(first.next.current, (TimeWindow{kSecond, 2 * kSecond}));
  EXPECT_TRUE(first.plan.changes);
  EXPECT_EQ(process.channel(1), ChannelKind::rc_rdma);
  EXPECT_EQ(process.channel(2), ChannelKind::dc_sendrecv);
  for (Time t = 3; t < 40; ++t) {
    const WindowSelection next = process.step({{1, 100'000}, {2, 10}});
    EXPECT_EQ(next.chosen, WindowChoice::none);
    EXPECT_EQ(next.extended.window, (TimeWindow{kSecond, t * kSecond}));
    EXPECT_EQ(next.next.current, (TimeWindow{kSecond, t * kSecond})) << "beta stays";
    EXPECT_EQ(next.extended.messages, static_cast<std::uint64_t>(t - 1) * 100'010);
    EXPECT_EQ(next.shrunk.window.end, t * kSecond);
    EXPECT_NEAR(static_cast<double>(next.shrunk.window.length()),
                static_cast<double>((t - 1) * kSecond) / 2,
                0.2 * static_cast<double>(t * kSecond) + 1e9);
  }
}

// The paper's example: a job that changes is seen in the shrunk window first, which then becomes
// the current one.
TEST(Windows, ChangeIsSeenInTheShrunkWindow) {
  Process process;
  process.input.limits.max_active_rc = 1;
  for (int t = 0; t < 20; ++t) process.step({{1, 100'000}});
  int steps = 0;
  WindowSelection selection;
  do {
    selection = process.step({{2, 100'000}});
    ++steps;
    ASSERT_LT(steps, 15);
  } while (!selection.plan.changes);
  EXPECT_EQ(selection.chosen, WindowChoice::shrunk);
  EXPECT_EQ(selection.next.current, selection.shrunk.window);
  EXPECT_EQ(selection.window, selection.shrunk.window);
  EXPECT_GT(selection.shrunk.per_message, selection.extended.per_message);
  EXPECT_EQ(process.channel(1), ChannelKind::dc_sendrecv);
  EXPECT_EQ(process.channel(2), ChannelKind::rc_rdma);
  // s of the last (20 + s) / 2 seconds: 126 ns * (2 s - (20 + s) / 2) > 25 ns * (20 + s) / 2.
  EXPECT_EQ(steps, 9);
  const WindowSelection after = process.step({{2, 100'000}});
  EXPECT_EQ(after.extended.window.begin, selection.next.current->begin);
  EXPECT_FALSE(after.plan.changes);
}

// A rate too low for one interval to pay set-up pays in the extended window.
TEST(Windows, SlowSourcePaysInTheExtendedWindow) {
  Process process;
  process.input.gain_threshold = 1;
  int steps = 0;
  WindowSelection selection;
  do {
    selection = process.step({{1, 60}});
    ASSERT_LT(++steps, 10);
  } while (!selection.plan.changes);
  EXPECT_EQ(selection.chosen, WindowChoice::extended);
  EXPECT_EQ(steps, 2) << "120 messages pay where 60 do not";
}

TEST(Windows, LimitThatShrankIsObeyedWhateverTheGain) {
  Process process;
  process.step({{1, 1000}, {2, 1001}});
  EXPECT_EQ(process.channel(1), ChannelKind::rc_rdma);
  process.input.limits.max_active_rc = 1;
  const WindowSelection selection = process.step({{1, 1000}, {2, 1001}});
  EXPECT_TRUE(selection.plan.forced);
  EXPECT_NE(selection.chosen, WindowChoice::none);
  EXPECT_EQ(process.channel(1), ChannelKind::dc_sendrecv);
}

// At a message, what came in the latest interval pays for a channel that the longer windows, where
// another source sent a thousand times as much, do not give. That one keeps its own.
TEST(Windows, AtAMessageTheLatestIntervalCounts) {
  for (const bool at_message : {false, true}) {
    Process process;
    TurnoutTerms terms;
    process.input.turnout = &terms;
    process.input.limits.dc_rdma_available = true;
    for (int n = 0; n < 64; ++n) process.step({{1, 1'000'000}});
    ASSERT_EQ(process.channel(1), ChannelKind::rc_rdma);
    process.input.at_message = at_message;
    const WindowSelection selection = process.step({{2, 1000}});
    EXPECT_EQ(selection.plan.changes, at_message);
    EXPECT_EQ(selection.chosen, at_message ? WindowChoice::recent : WindowChoice::none);
    EXPECT_EQ(oracle::ring(process.channel(2)), at_message);
    EXPECT_EQ(process.channel(1), ChannelKind::rc_rdma);
    EXPECT_EQ(selection.messages,
              selection.window == selection.extended.window ? selection.extended.messages : 1000u);
  }
}

// The longer windows do not take away what the latest messages paid for: a young ring is worth what
// its source sends since it has it. One that its source stopped using goes.
TEST(Windows, AYoungRingIsJudgedByItsUse) {
  for (const bool known : {true, false}) {
    for (const std::uint64_t each : {1000u, 0u}) {
      Process process;
      TurnoutTerms terms;
      process.input.turnout = &terms;
      process.input.limits.dc_rdma_available = true;
      for (int n = 0; n < 64; ++n) process.step({{1, 1'000'000}});
      process.input.at_message = true;
      process.step({{2, 1000}});
      ASSERT_TRUE(oracle::ring(process.channel(2)));
      process.input.at_message = false;
      SourceView& young = process.peers[2];
      young.since = known ? process.now : 0;
      young.rate = young.rate_first = static_cast<double>(each) / kSecond;
      bool kept = true;
      for (int n = 0; n < 8; ++n) {
        process.step({{2, each}});
        kept &= oracle::ring(process.channel(2));
      }
      EXPECT_EQ(kept, known && each > 0) << "known " << known << ", each " << each;
    }
  }
}

TEST(Windows, EveryChoiceHasAName) {
  for (int c = 0; c <= static_cast<int>(WindowChoice::recent); ++c) {
    EXPECT_GT(name(static_cast<WindowChoice>(c)).size(), 3u);
  }
}

// Random jobs: the choice is what T2-T4 say, judged from exact counts. Few enough sources and
// intervals that the statistics are exact.
TEST(WindowsProperty, TheChoiceIsWhatThePaperSays) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    std::mt19937_64 random(seed);
    Process process;
    process.input.limits.max_active_rc = 1 + static_cast<std::uint32_t>(random() % 4);
    process.input.limits.dc_rdma_available = seed % 5 == 0;
    std::vector<Counts> history;
    std::uint64_t hot = 0;
    for (int step = 0; step < 22; ++step) {
      if (random() % 6 == 0) hot = random() % 6;
      Counts counts;
      for (std::uint32_t peer = 0; peer < 6; ++peer) {
        if (random() % 3 > 0) counts[peer] = 1 + random() % (peer == hot ? 50'000 : 300);
      }
      if (random() % 10 == 0) counts.clear();
      history.push_back(counts);
      const WindowState state = process.state;
      auto sources = process.views();
      for (const auto& [peer, n] : counts) {
        if (!process.peers.contains(peer)) sources.push_back({peer, ChannelKind::dc_sendrecv});
      }
      const WindowSelection selection = process.step(counts);
      if (seed % 4 == 0) process.peers.begin()->second.refused = random() % 4 == 0;
      if (!state.current) {
        ASSERT_EQ(selection.chosen, counts.empty() ? WindowChoice::none : WindowChoice::first);
        continue;
      }
      ASSERT_EQ(selection.extended.window, (TimeWindow{state.current->begin, process.now}));
      for (const WindowGain& gain : {selection.extended, selection.shrunk}) {
        std::uint64_t messages = 0;
        for (SourceView& s : sources) {
          s.messages = 0;
          for (Time t = gain.window.begin / kSecond; t < gain.window.end / kSecond; ++t) {
            const auto at = history[static_cast<std::size_t>(t)].find(s.peer);
            if (at != history[static_cast<std::size_t>(t)].end()) s.messages += at->second;
          }
          messages += s.messages;
        }
        const Plan plan = select_aqps({sources, process.input.costs, process.input.limits, 25});
        // The plan of the window is what it is when every source is looked at.
        if (gain.window == selection.window) {
          const Plan& found = selection.plan;
          ASSERT_EQ(found.lines.size(), plan.lines.size());
          for (std::size_t i = 0; i < plan.lines.size(); ++i) {
            ASSERT_EQ(found.lines[i].peer, plan.lines[i].peer);
            ASSERT_EQ(found.lines[i].to, plan.lines[i].to);
            ASSERT_EQ(found.lines[i].reason, plan.lines[i].reason);
            ASSERT_EQ(found.lines[i].messages, plan.lines[i].messages);
          }
        }
        ASSERT_EQ(gain.messages, messages);
        ASSERT_EQ(gain.gain_best, plan.gain_best);
        ASSERT_EQ(gain.gain_current, plan.gain_current);
      }
      const double most = std::max(selection.extended.per_message, selection.shrunk.per_message);
      ASSERT_EQ(selection.plan.changes, most > 25) << most;
      ASSERT_EQ(selection.chosen != WindowChoice::none, selection.plan.changes);
      if (selection.chosen == WindowChoice::none) {
        ASSERT_EQ(selection.next.current->begin, state.current->begin);
      } else {
        ASSERT_EQ(selection.next.current, selection.window);
        ASSERT_EQ(selection.chosen == WindowChoice::shrunk,
                  selection.shrunk.per_message > selection.extended.per_message);
      }
      ASSERT_FALSE(HasFailure()) << "seed " << seed << ", step " << step;
    }
  }
}

}  // namespace
}  // namespace turnout::selection
