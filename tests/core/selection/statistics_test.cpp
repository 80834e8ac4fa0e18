// SPDX-License-Identifier: BSD-3-Clause
// Statistics against exact counts of every interval: error bounds, borders, bytes.
#include "core/selection/statistics.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>

#include "core/selection/time_slots.h"

namespace turnout::selection {
namespace {

constexpr Time kSecond = 1'000'000'000;

std::unique_ptr<Statistics> made(std::size_t max_bytes = 60 << 10) {
  auto result = make_statistics(max_bytes);
  if (!result.ok()) throw std::runtime_error(result.status().text());
  return std::move(result).value();
}

struct Interval {
  TimeWindow window;
  std::map<std::uint32_t, std::uint64_t> counts;
};

// Every interval as it was.
class Exact {
 public:
  void add(const Interval& interval) { intervals_.push_back(interval); }
  void forget(std::uint32_t peer) {
    for (Interval& interval : intervals_) interval.counts.erase(peer);
  }
  [[nodiscard]] std::map<std::uint32_t, std::uint64_t> counts(TimeWindow window) const {
    std::map<std::uint32_t, std::uint64_t> sum;
    for (const Interval& interval : intervals_) {
      if (interval.window.begin < window.begin || interval.window.end > window.end) continue;
      for (const auto& [peer, n] : interval.counts) sum[peer] += n;
    }
    return sum;
  }
  [[nodiscard]] bool is_border(Time t) const {
    return std::any_of(intervals_.begin(), intervals_.end(),
                       [t](const Interval& i) { return i.window.begin == t; });
  }
  std::vector<Interval> intervals_;
};

void hand_over(Statistics* statistics, const Interval& interval, std::uint32_t ring_below = 0) {
  ASSERT_TRUE(statistics->begin_interval(interval.window).ok());
  for (const auto& [peer, n] : interval.counts) statistics->count(peer, n, peer < ring_below);
  statistics->end_interval(0);
}

std::uint64_t total(const std::map<std::uint32_t, std::uint64_t>& counts) {
  std::uint64_t sum = 0;
  for (const auto& [peer, n] : counts) sum += n;
  return sum;
}

// The promise of statistics.h about counts. `forgotten`: totals lack only what was listed.
void expect_bounds(const WindowCounts& found, const Exact& exact, bool forgotten) {
  const auto truth = exact.counts(found.window);
  ASSERT_TRUE(exact.is_border(found.window.begin)) << found.window.begin;
  if (!forgotten) {
    ASSERT_EQ(found.messages, total(truth));
  }
  ASSERT_TRUE(std::is_sorted(found.sources.begin(), found.sources.end(),
                             [](const auto& a, const auto& b) { return a.peer < b.peer; }));
  for (const SourceCount& s : found.sources) {
    ASSERT_GT(s.messages, 0u);
    const auto at = truth.find(s.peer);
    ASSERT_NE(at, truth.end()) << "never heard: " << s.peer;
    ASSERT_LE(s.messages, at->second);
  }
  for (const auto& [peer, n] : truth) ASSERT_LE(n, found.of(peer) + found.missing) << peer;
}

TEST(Statistics, NothingYet) {
  const auto statistics = made(1 << 20);
  const WindowCounts counts = statistics->counts({0, kSecond});
  EXPECT_EQ(counts.window, TimeWindow{});
  EXPECT_TRUE(counts.sources.empty());
  EXPECT_TRUE(statistics->slots().empty());
  EXPECT_FALSE(statistics->newest().has_value());
  statistics->forget(3);
  statistics->keep_border(5);
}

TEST(Statistics, RefusesWhatMakesNoSense) {
  EXPECT_EQ(make_statistics(100).status().code(), Code::invalid);
  const auto statistics = made();
  EXPECT_FALSE(statistics->begin_interval({5, 5}).ok());
  ASSERT_TRUE(statistics->begin_interval({0, 10}).ok());
  statistics->end_interval(0);
  EXPECT_EQ(statistics->begin_interval({9, 20}).code(), Code::invalid);
  EXPECT_TRUE(statistics->begin_interval({15, 20}).ok()) << "a gap is allowed";
}

TEST(Statistics, WindowsAreTheNearestBorders) {
  const auto statistics = made(1 << 20);
  for (Time t = 0; t < 4; ++t) {
    hand_over(statistics.get(), {{t * 10, (t + 1) * 10}, {{7, 1u << t}}});
  }
  EXPECT_EQ(statistics->counts({0, 40}).of(7), 15u);
  EXPECT_EQ(statistics->counts({14, 40}).window, (TimeWindow{10, 40}));
  EXPECT_EQ(statistics->counts({14, 40}).of(7), 14u);
  EXPECT_EQ(statistics->counts({15, 40}).window, (TimeWindow{20, 40})) << "the shorter of two";
  EXPECT_EQ(statistics->counts({9, 21}).window, (TimeWindow{10, 20}));
  EXPECT_EQ(statistics->counts({39, 40}).window, (TimeWindow{30, 40})) << "at least one";
  EXPECT_EQ(statistics->newest(), (TimeWindow{30, 40}));
  EXPECT_EQ(statistics->slots().size(), 4u);
  // An interval that has not ended is in no answer.
  ASSERT_TRUE(statistics->begin_interval({40, 50}).ok());
  statistics->count(7, 1000, false);
  EXPECT_EQ(statistics->counts({0, 50}).of(7), 15u);
  EXPECT_EQ(statistics->slots().size(), 4u);
}

// Counts of a job whose sources, rates and phases are random.
class Job {
 public:
  Job(std::uint64_t seed, std::uint32_t sources) : random_(seed), sources_(sources) {}
  Interval next(bool gaps) {
    if (random_() % 40 == 0) phase_ = random_() % 1000;
    if (gaps && random_() % 10 == 0) now_ += static_cast<Time>(random_() % (20 * kSecond));
    const Time length = gaps ? 1 + static_cast<Time>(random_() % (2 * kSecond)) : kSecond;
    Interval interval{{now_, now_ + length}, {}};
    now_ += length;
    const std::uint64_t heard = random_() % 8 == 0 ? 0 : random_() % sources_ + 1;
    for (std::uint64_t i = 0; i < heard; ++i) {
      const auto peer = static_cast<std::uint32_t>((phase_ + random_() % sources_) % sources_);
      const std::uint64_t n = 1 + random_() % (1 + 1'000'000 / (1 + (peer * 7 + phase_) % 997));
      interval.counts[peer] = n;
    }
    return interval;
  }

 private:
  std::mt19937_64 random_;
  std::uint32_t sources_;
  std::uint64_t phase_ = 0;
  Time now_ = 0;
};

TEST(Statistics, SlotsKeepTheirBoundsOnRandomJobs) {
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    const std::uint32_t sources = seed % 3 == 0 ? 2000 : seed % 3 == 1 ? 300 : 40;
    const std::size_t max_bytes = seed % 2 == 0 ? 60 << 10 : 4096 + seed * 1000;
    const auto statistics = made(max_bytes);
    std::mt19937_64 random(seed);
    Job job(seed, sources);
    Exact exact;
    bool forgotten = false;
    for (int step = 0; step < 200; ++step) {
      const Interval interval = job.next(seed % 4 == 0);
      exact.add(interval);
      ASSERT_LE(statistics->bytes_during_next(interval.counts.size()), max_bytes);
      ASSERT_TRUE(statistics->begin_interval(interval.window).ok());
      std::size_t most = 0;
      const std::size_t allowed = statistics->bytes_during_next(interval.counts.size());
      for (const auto& [peer, n] : interval.counts) {
        statistics->count(peer, n, peer % 5 == 0);
        most = std::max(most, statistics->bytes());
      }
      statistics->end_interval(0);
      ASSERT_LE(std::max(most, statistics->bytes()), allowed);
      const Time now = interval.window.end;
      if (random() % 30 == 0) {
        const auto peer = static_cast<std::uint32_t>(random() % sources);
        statistics->forget(peer);
        exact.forget(peer);
        forgotten = true;
        ASSERT_EQ(statistics->counts({0, now}).of(peer), 0u);
      }
      if (random() % 50 == 0) {
        const Time border = statistics->counts({now / 2, now}).window.begin;
        statistics->keep_border(border);
      }
      if (step % 4 != 0) continue;  // the oracle is slow
      for (const TimeWindow asked :
           {TimeWindow{0, now}, TimeWindow{now / 2, now},
            TimeWindow{static_cast<Time>(random() % static_cast<std::uint64_t>(now)),
                       static_cast<Time>(random() % static_cast<std::uint64_t>(now))}}) {
        expect_bounds(statistics->counts(asked), exact, forgotten);
      }
      ASSERT_FALSE(HasFatalFailure()) << "seed " << seed << ", step " << step;
    }
    const WindowCounts all = statistics->counts({0, 1'000 * kSecond});
    if (sources == 40) {
      EXPECT_EQ(all.missing, 0u) << "few sources are exact";
    }
    // Slots follow each other without a loss.
    std::uint64_t sum = 0;
    Time end = 0;
    for (const WindowCounts& slot : statistics->slots()) {
      EXPECT_GE(slot.window.begin, end);
      end = slot.window.end;
      sum += slot.messages;
    }
    EXPECT_EQ(sum, all.messages);
  }
}

// One cut adds at most 2/(k+2), without rings 1/(k+1), of the slot's messages to `missing`.
TEST(Statistics, OneCutMissesLittle) {
  TimeSlots statistics(60 << 10);
  const auto k = static_cast<double>(statistics.most_sources());
  EXPECT_GE(statistics.most_sources(), 256u) << "the paper's tau";
  std::mt19937_64 random(3);
  for (Time t = 0; t < 20; ++t) {
    Interval interval{{t, t + 1}, {}};
    for (std::uint32_t peer = 0; peer < 5000; ++peer) interval.counts[peer] = 1 + random() % 1000;
    const std::uint32_t rings = t % 2 == 0 ? 0 : 250;
    hand_over(&statistics, interval, rings);
    const WindowCounts counts = statistics.counts({t, t + 1});
    EXPECT_EQ(counts.sources.size(), statistics.most_sources());
    const double bound =
        static_cast<double>(counts.messages) * (rings > 0 ? 2 / (k + 2) : 1 / (k + 1));
    EXPECT_LE(static_cast<double>(counts.missing), bound);
    EXPECT_GT(counts.missing, 0u);
  }
}

// Among many equals the sources with rings stay listed.
TEST(Statistics, NoiseDoesNotHideTheSourcesWithRings) {
  TimeSlots statistics(60 << 10);
  std::mt19937_64 random(5);
  for (Time t = 0; t < 100; ++t) {
    Interval interval{{t, t + 1}, {}};
    for (std::uint32_t peer = 0; peer < 5000; ++peer) interval.counts[peer] = 900 + random() % 200;
    hand_over(&statistics, interval, 200);
  }
  const WindowCounts counts = statistics.counts({0, 100});
  for (std::uint32_t peer = 0; peer < 200; ++peer) EXPECT_GE(counts.of(peer), 90'000u);
}

// The begin of a window that ends now moves by at most a quarter of its length in 3,600 intervals,
// three eighths in 36,000, or one interval.
TEST(Statistics, BeginsMoveLittle) {
  const auto statistics = made();
  for (Time t = 1; t <= 36'000; ++t) {
    hand_over(statistics.get(), {{(t - 1) * kSecond, t * kSecond}, {{1, 1}}});
    const double most = t <= 3600 ? 0.25 : 0.375;
    if (t > 3600 && t % 97 != 0) continue;
    std::vector<Time> asked = {t / 2 * kSecond, t * kSecond / 2, t * kSecond * 2 / 3};
    // Between any two borders the middle is the worst.
    if (t % 31 == 0) {
      for (const WindowCounts& s : statistics->slots()) {
        asked.push_back((s.window.begin + s.window.end) / 2);
      }
    }
    for (const Time begin : asked) {
      const WindowCounts counts = statistics->counts({begin, t * kSecond});
      ASSERT_EQ(counts.window.end, t * kSecond);
      const double moved = std::abs(static_cast<double>(counts.window.begin - begin));
      const double length = static_cast<double>(t * kSecond - begin);
      ASSERT_LE(moved, std::max(most * length, static_cast<double>(kSecond))) << t << " " << begin;
    }
  }
}

TEST(Statistics, TheKeptBorderStays) {
  const auto statistics = made();
  Exact exact;
  for (Time t = 0; t < 5000; ++t) {
    const Interval interval{{t * kSecond, (t + 1) * kSecond}, {{1, static_cast<std::uint64_t>(t)}}};
    hand_over(statistics.get(), interval);
    if (t == 100) statistics->keep_border(77 * kSecond);
    if (t > 100) {
      const Time begin = statistics->counts({77 * kSecond, (t + 1) * kSecond}).window.begin;
      ASSERT_LE(std::abs(static_cast<double>(begin - 77 * kSecond)), 3.0 * kSecond);
      if (t == 101) statistics->keep_border(begin);
    }
  }
  EXPECT_GT(statistics->slots().front().window.length(), 50 * kSecond) << "the past is coarser";
}

TEST(Statistics, HugeCountsAreBoundedByMissing) {
  const auto statistics = made();
  constexpr std::uint64_t kHuge = std::uint64_t{1} << 41;
  for (Time t = 0; t < 60; ++t) {
    hand_over(statistics.get(), {{t, t + 1}, {{1, kHuge}, {Statistics::kMaxPeer, 5}}});
  }
  ASSERT_TRUE(statistics->begin_interval({60, 61}).ok());
  statistics->count(Statistics::kMaxPeer + 1, 1000, false);
  statistics->end_interval(0);
  const WindowCounts counts = statistics->counts({0, 61});
  EXPECT_EQ(counts.messages, 60 * (kHuge + 5) + 1000);
  EXPECT_GE(counts.of(1) + counts.missing, 60 * kHuge);
  EXPECT_EQ(counts.of(Statistics::kMaxPeer), 300u);
}

// Issue 4: statistics take less than 64 KB a process, with 65,536 sources that all speak.
TEST(Statistics, StayBelow64KilobytesWith65536Sources) {
  const auto statistics = made();
  std::mt19937_64 random(9);
  std::size_t most = 0;
  for (Time t = 0; t < 100; ++t) {
    most = std::max(most, statistics->bytes_during_next(65'536));
    ASSERT_TRUE(statistics->begin_interval({t, t + 1}).ok());
    for (std::uint32_t peer = 0; peer < 65'536; ++peer) {
      statistics->count(peer, 1 + random() % 10'000, peer % 7 == 0);
      if (peer % 64 == 0) most = std::max(most, statistics->bytes());
    }
    statistics->end_interval(0);
    most = std::max(most, statistics->bytes());
  }
  EXPECT_LT(most, 64'000u);
  EXPECT_GT(most, 50'000u) << "the memory is used";
}

TEST(Statistics, FewSourcesTakeLittle) {
  const auto statistics = made();
  EXPECT_LT(statistics->bytes(), 2048u);
  for (Time t = 0; t < 100; ++t) hand_over(statistics.get(), {{t, t + 1}, {{1, 1}, {2, 2}}});
  EXPECT_LT(statistics->bytes(), 2560u);
}

// As a part of each slot's messages, to 16 bits, also when slots are merged.
TEST(Statistics, KeepsHowManyMessagesWereWaitedFor) {
  const auto statistics = made(4096);
  EXPECT_EQ(statistics->counts({0, 1}).busy(), 0);
  for (Time t = 0; t < 100; ++t) {
    ASSERT_TRUE(statistics->begin_interval({t, t + 1}).ok());
    statistics->count(1, 1000, false);
    statistics->end_interval(t % 2 == 0 ? 1000 : 0);
  }
  const WindowCounts all = statistics->counts({0, 100});
  EXPECT_EQ(all.messages, 100'000u);
  EXPECT_NEAR(static_cast<double>(all.waits), 50'000, 5);
  EXPECT_NEAR(all.busy(), 0.5, 1e-4);
  EXPECT_NEAR(statistics->counts({99, 100}).busy(), 1, 1e-4);
  // A message that no source was counted for is no wait.
  ASSERT_TRUE(statistics->begin_interval({100, 101}).ok());
  statistics->end_interval(5);
  EXPECT_EQ(statistics->counts({100, 101}).waits, 0u);
}

}  // namespace
}  // namespace turnout::selection
