// SPDX-License-Identifier: BSD-3-Clause
#include "hca/virtual/event_queue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/split_mix.h"

namespace turnout::hca::test {
namespace {

// What a queue must hand out: by time, then by the order in which it came.
class ListOfEvents {
 public:
  void push(Picoseconds time, std::uint64_t number) { events_.emplace_back(time, number); }
  std::pair<Picoseconds, std::uint64_t> pop() {
    const auto first = std::min_element(events_.begin(), events_.end());
    const auto event = *first;
    events_.erase(first);
    return event;
  }
  [[nodiscard]] bool empty() const { return events_.empty(); }

 private:
  std::vector<std::pair<Picoseconds, std::uint64_t>> events_;
};

// Times are that far from now, with as many equal ones as come of it.
void compare(std::uint64_t seed, Picoseconds farthest) {
  SCOPED_TRACE(::testing::Message() << "seed " << seed << ", farthest " << farthest);
  SplitMix64 random(seed);
  EventQueue queue;
  ListOfEvents expected;
  Picoseconds now = 0;
  std::uint64_t number = 0;
  for (int step = 0; step < 4000; ++step) {
    if (expected.empty() || random.next() % 16 < (step < 3000 ? 9 : 4)) {
      const unsigned bits = static_cast<unsigned>(random.next() % 63);
      const auto range =
          std::min<std::uint64_t>(std::uint64_t{1} << bits, static_cast<std::uint64_t>(farthest));
      const auto time = now + static_cast<Picoseconds>(random.next() % range);
      queue.push({.time = time, .argument = number});
      expected.push(time, number++);
      continue;
    }
    ASSERT_FALSE(queue.empty());
    const auto [time, which] = expected.pop();
    const Event event = queue.pop();
    ASSERT_EQ(event.time, time) << "step " << step;
    ASSERT_EQ(event.argument, which) << "step " << step;
    now = time;
  }
}

TEST(EventQueue, HandsOutByTimeThenInOrder) {
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    for (const Picoseconds farthest : {1, 3, 17, 4096, 1'000'000, 1'000'000'000}) {
      compare(seed, farthest);
    }
    compare(seed, Picoseconds{1} << 50);  // some 2,000 of these in a row are no overflow
  }
}

TEST(EventQueue, TakesTheLatestTimeThereIs) {
  constexpr Picoseconds kLast = INT64_MAX;
  EventQueue queue;
  queue.push({.time = kLast, .argument = 2});
  queue.push({.time = 5, .argument = 1});
  EXPECT_EQ(queue.pop().argument, 1U);
  queue.push({.time = kLast, .argument = 3});
  EXPECT_EQ(queue.pop().argument, 2U);
  EXPECT_EQ(queue.pop().argument, 3U);
  EXPECT_TRUE(queue.empty());
}

TEST(EventQueue, LooksAheadToOneThatIsNotFar) {
  EventQueue queue;
  const auto next = [&] {
    std::uint64_t seen = 0;
    queue.look_ahead([&](const Event& event) { seen = event.argument; });
    return seen;
  };
  EXPECT_EQ(next(), 0U) << "there is none";
  queue.push({.time = 1000, .argument = 1});
  queue.push({.time = 7, .argument = 2});
  EXPECT_EQ(next(), 2U);
  queue.push({.time = 7, .argument = 3});
  EXPECT_EQ(queue.pop().argument, 2U);
  EXPECT_EQ(next(), 3U) << "of the same time";
  EXPECT_EQ(queue.pop().argument, 3U);
  EXPECT_EQ(next(), 1U);
}

}  // namespace
}  // namespace turnout::hca::test
