// SPDX-License-Identifier: BSD-3-Clause
#include "core/selection/prediction.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <map>
#include <set>

namespace turnout::selection {
namespace {

using Asked = Prediction::Asked;
constexpr std::int64_t kSecond = 1'000'000'000;

Limits roomy() {
  Limits limits;
  limits.dc_rdma_available = true;
  limits.bytes_available = std::uint64_t{1} << 40;
  limits.bytes_per_ring = 1 << 16;
  limits.bytes_per_rc = 1 << 20;
  limits.max_channels = limits.max_active_rc = 256;
  return limits;
}

LastRun::Source source(std::uint32_t rank, std::uint64_t messages, std::int64_t first = 0,
                       std::int64_t last = kSecond) {
  return {.rank = rank,
          .messages = messages,
          .first = first,
          .last = last,
          .active = last - first,
          .beside = messages};
}

LastRun run_of(std::size_t sources, std::uint64_t messages) {
  LastRun run;
  for (std::uint32_t i = 0; i < sources; ++i) run.sources.push_back(source(i, messages));
  return run;
}

Prediction prediction_of(const LastRun& run, const Limits& limits = roomy()) {
  return {run, 0, DeviceCosts{}, 16, limits};
}

// What is asked for now, where every set-up succeeds at once.
std::vector<std::pair<std::uint32_t, ChannelKind>> asked(Prediction& prediction,
                                                         std::int64_t age = 0) {
  std::vector<std::pair<std::uint32_t, ChannelKind>> all;
  for (bool more = true; more;) {  // with nothing under way
    more = false;
    prediction.ask(0, age, 0, [&](const Prediction::Source& s, ChannelKind to) {
      all.emplace_back(s.rank, to);
      more = true;
      return Asked::yes;
    });
  }
  return all;
}

TEST(Prediction, OfNothingAsksForNothing) {
  Prediction none;
  EXPECT_TRUE(none.empty());
  EXPECT_FALSE(none.hear(0, 0));
  EXPECT_FALSE(none.expect(0, 0));
  EXPECT_TRUE(asked(none).empty());
}

TEST(Prediction, ASourceIsAskedForOnceItIsHeard) {
  Prediction prediction = prediction_of(run_of(2, 100'000));
  EXPECT_TRUE(asked(prediction).empty());
  EXPECT_TRUE(prediction.hear(1, 7));
  EXPECT_FALSE(prediction.hear(1, 7));
  EXPECT_FALSE(prediction.hear(5, 8)) << "nothing is predicted of it";
  const auto channels = asked(prediction);
  ASSERT_EQ(channels.size(), 2u);  // the ring serves until the queue pair does
  EXPECT_EQ(channels[0], std::pair(1u, ChannelKind::dc_rdma));
  EXPECT_EQ(channels[1], std::pair(1u, ChannelKind::rc_rdma));
  EXPECT_EQ(prediction.on_trust(), 1u);
  EXPECT_TRUE(asked(prediction).empty());
}

// Its source must not wait on the slow channel until a queue pair is ready.
TEST(Prediction, AQueuePairHasARingBeforeIt) {
  const auto prediction = prediction_of(run_of(4, 1'000'000));
  EXPECT_FALSE(prediction.sources().empty());
  for (const auto& s : prediction.sources()) {
    EXPECT_TRUE(s.wants_rc);
    EXPECT_TRUE(s.wants_ring);
  }
}

TEST(Prediction, FewMessagesPayForNothing) {
  EXPECT_TRUE(prediction_of(run_of(4, 10)).empty());
  const std::uint64_t least = least_predicted(DeviceCosts{});
  EXPECT_GT(least, 1u);
  EXPECT_TRUE(prediction_of(run_of(1, least)).empty());
}

TEST(Prediction, AMessageBurstOverBeforeItsQueuePairIsReadyGetsARing) {
  LastRun run;
  run.sources = {source(0, 1000, 0, 2'000'000), source(1, 1000, 100'000'000, 102'000'000)};
  Prediction prediction = prediction_of(run);
  ASSERT_EQ(prediction.sources().size(), 2u);
  EXPECT_TRUE(prediction.sources()[0].wants_ring);
  EXPECT_FALSE(prediction.sources()[0].wants_rc);
  EXPECT_TRUE(prediction.sources()[1].wants_rc) << "there is time for it";
}

TEST(Prediction, TimeBeforeTheFirstMessageIsTimeForSetUps) {
  LastRun run;
  run.sources = {source(0, 1000, 0, 2'000'000)};
  EXPECT_FALSE(prediction_of(run).sources().at(0).wants_rc);
  run.start = kSecond;
  Prediction prediction = prediction_of(run);
  EXPECT_TRUE(prediction.sources().at(0).wants_rc);
  EXPECT_EQ(prediction.since_start(kSecond / 4, false), -3 * kSecond / 4);
  EXPECT_EQ(prediction.since_start(2 * kSecond, false), 0) << "it is late";
  EXPECT_EQ(prediction.since_start(3 * kSecond, true), 0);
  EXPECT_EQ(prediction.since_start(4 * kSecond, true), kSecond);
}

TEST(Prediction, QueuePairsLeaveRoomForThoseOfOthers) {
  const auto planned = [](std::uint64_t places) {
    Limits limits = roomy();
    limits.bytes_available = places * (limits.bytes_per_rc + limits.bytes_per_ring);
    std::size_t rc = 0;
    const auto prediction = prediction_of(run_of(10, 1'000'000), limits);
    for (const auto& s : prediction.sources()) rc += s.wants_rc;
    return rc;
  };
  EXPECT_EQ(planned(100), 10u);
  EXPECT_EQ(planned(20), 10u);
  EXPECT_EQ(planned(16), 2u);  // too few for all: an eighth
  EXPECT_EQ(planned(0), 0u);
}

TEST(Prediction, LimitsHold) {
  Limits limits = roomy();
  limits.max_channels = 3;
  limits.max_active_rc = 2;
  const Prediction prediction = prediction_of(run_of(10, 1'000'000), limits);
  EXPECT_EQ(prediction.sources().size(), 3u);
  EXPECT_EQ(std::ranges::count(prediction.sources(), true, &Prediction::Source::wants_rc), 2);
  EXPECT_EQ(prediction.bytes(), 3 * sizeof(Prediction::Source));
}

TEST(Prediction, WithoutRingsOverDc) {
  Limits limits = roomy();
  limits.dc_rdma_available = false;
  Prediction prediction = prediction_of(run_of(1, 1'000'000), limits);
  ASSERT_TRUE(prediction.hear(0, 0));
  const auto channels = asked(prediction);
  ASSERT_EQ(channels.size(), 1u);
  EXPECT_EQ(channels[0].second, ChannelKind::rc_rdma);
}

TEST(Prediction, FewQueuePairsAreUnderWayAtATime) {
  Prediction prediction = prediction_of(run_of(8, 1'000'000));
  for (std::uint32_t rank = 0; rank < 8; ++rank) EXPECT_TRUE(prediction.hear(rank, rank));
  std::size_t rc = 0;
  const auto count = [&](const Prediction::Source&, ChannelKind to) {
    rc += to == ChannelKind::rc_rdma ? 1 : 0;
    return Asked::yes;
  };
  prediction.ask(0, 0, 0, count);
  EXPECT_EQ(rc, Prediction::kMostUnderWay);
  prediction.ask(0, 0, Prediction::kMostUnderWay, count);
  EXPECT_EQ(rc, Prediction::kMostUnderWay);
}

TEST(Prediction, TheOrderWaitsForWhoWillAnswer) {
  LastRun run;
  run.sources = {source(0, 1'000'000), source(1, 1'000'000)};
  Prediction prediction = prediction_of(run);
  EXPECT_TRUE(prediction.expect(0, 0));
  EXPECT_TRUE(prediction.expect(1, 0));
  EXPECT_TRUE(prediction.hear(1, 1));
  std::vector<std::uint32_t> over_rc;
  const auto ask = [&](std::int64_t now) {
    prediction.ask(now, 0, 0, [&](const Prediction::Source& s, ChannelKind to) {
      if (to == ChannelKind::rc_rdma) over_rc.push_back(s.rank);
      return Asked::yes;
    });
  };
  ask(1);
  EXPECT_TRUE(over_rc.empty());
  ask(kSecond);  // it did not answer
  EXPECT_EQ(over_rc, std::vector<std::uint32_t>{1});
}

TEST(Prediction, NobodyIsSoughtBeyondTheTrust) {
  Prediction prediction = prediction_of(run_of(2 * Prediction::kMostOnTrust, 1'000'000));
  std::size_t sought = 0;
  for (std::uint32_t rank = 0; rank < 2 * Prediction::kMostOnTrust; ++rank)
    sought += prediction.expect(rank, 0) ? 1 : 0;
  EXPECT_EQ(sought, Prediction::kMostOnTrust);
}

TEST(Prediction, ARunThatIsOverIsNotPredictedAnyMore) {
  Prediction prediction = prediction_of(run_of(1, 1'000'000));
  ASSERT_TRUE(prediction.hear(0, 0));
  EXPECT_TRUE(asked(prediction, kSecond).empty());
}

TEST(Prediction, SilentSourcesUseUpTheTrust) {
  Prediction prediction = prediction_of(run_of(100, 1'000'000));
  for (std::uint32_t rank = 0; rank < 100; ++rank) EXPECT_TRUE(prediction.hear(rank, rank));
  std::set<std::uint32_t> sources;
  for (const auto& [rank, to] : asked(prediction)) sources.insert(rank);
  EXPECT_EQ(sources.size(), Prediction::kMostOnTrust);
  prediction.repay([](const Prediction::Source&) { return 0.0; });
  EXPECT_TRUE(asked(prediction).empty());
  // Those that repay make room for others.
  prediction.repay([](const Prediction::Source& s) { return s.rank == 0 ? 1e9 : 0.0; });
  EXPECT_EQ(prediction.on_trust(), Prediction::kMostOnTrust - 1);
  EXPECT_FALSE(asked(prediction).empty());
}

TEST(Prediction, ARefusedRequestIsRepeatedAFewTimes) {
  Prediction prediction = prediction_of(run_of(1, 1'000'000));
  ASSERT_TRUE(prediction.hear(0, 0));
  int requests = 0;
  for (int i = 0; i < 100; ++i) {
    prediction.ask(0, 0, 0, [&](const Prediction::Source&, ChannelKind) {
      ++requests;
      return Asked::refused;
    });
  }
  EXPECT_LE(requests, 2 * Prediction::kMostTries);
  EXPECT_EQ(prediction.on_trust(), 0u);
}

// docs/decisions/047-prediction.md: whatever sources do, and whatever becomes of requests, what the
// set-ups cost exceeds what the messages over them saved by no more than kMostOnTrust set-ups.
TEST(Prediction, AWrongOneCostsABoundedNumberOfSetUps) {
  EXPECT_TRUE(rc::check("never worse than the bound", [] {
    const DeviceCosts costs;
    const double dc = costs.setup_dc_processor.value, rc = rc_price(costs);
    LastRun run;
    const auto sources = *rc::gen::inRange<std::uint32_t>(0, 80);
    for (std::uint32_t rank = 0; rank < sources; ++rank) {
      const auto first = *rc::gen::inRange<std::int64_t>(0, kSecond);
      run.sources.push_back(source(rank, *rc::gen::inRange<std::uint64_t>(1, 1'000'000), first,
                                   first + *rc::gen::inRange<std::int64_t>(0, kSecond)));
    }
    Limits limits = roomy();
    limits.bytes_available = *rc::gen::inRange<std::uint64_t>(0, std::uint64_t{1} << 28);
    limits.dc_rdma_available = *rc::gen::arbitrary<bool>();
    Prediction prediction = prediction_of(run, limits);
    double spent = 0, saved = 0;
    std::set<std::pair<std::uint32_t, ChannelKind>> made;
    std::int64_t now = 0;
    const auto steps = *rc::gen::inRange(1, 200);
    for (int step = 0; step < steps; ++step) {
      now += *rc::gen::inRange<std::int64_t>(0, kSecond / 50);
      (void)prediction.hear(*rc::gen::inRange<std::uint32_t>(0, 80), 0);
      std::size_t begun = 0;
      const auto under_way = *rc::gen::inRange<std::size_t>(0, 3);
      prediction.ask(now, now, under_way, [&](const Prediction::Source& s, ChannelKind to) {
        const auto what = *rc::gen::element(Asked::yes, Asked::later, Asked::refused, Asked::never);
        if (what != Asked::yes) return what;
        RC_ASSERT(made.emplace(s.rank, to).second);  // once each
        begun += to == ChannelKind::rc_rdma ? 1 : 0;
        spent += to == ChannelKind::rc_rdma ? rc : dc;
        return what;
      });
      RC_ASSERT(under_way + begun <= std::max(under_way, Prediction::kMostUnderWay));
      // Most send less than was predicted.
      prediction.repay([&](const Prediction::Source& s) {
        const double more = *rc::gen::element(0.0, 0.0, 0.0, 100.0, s.owed, 3 * s.owed);
        saved += std::min(more, s.owed);
        return more;
      });
      RC_ASSERT(prediction.on_trust() <= Prediction::kMostOnTrust);
      RC_ASSERT(spent - saved <=
                static_cast<double>(Prediction::kMostOnTrust) * (dc + rc) * (1 + 1e-9));
      double owed = 0;
      for (const auto& s : prediction.sources()) owed += s.owed;
      RC_ASSERT(std::abs(owed - (spent - saved)) < 1);
    }
  }));
}

}  // namespace
}  // namespace turnout::selection
