// SPDX-License-Identifier: BSD-3-Clause
#include "hca/virtual/context_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/split_mix.h"

namespace turnout::hca::test {
namespace {

using Found = ContextCache::Found;

// The two levels as lists, the latest first: slow, and nothing to get wrong.
class TwoLists {
 public:
  TwoLists(std::size_t first, std::size_t second) : first_(first), second_(second) {}
  Found use(std::uint64_t context) {
    const Found where = take(&levels_[0], context)   ? Found::first
                        : take(&levels_[1], context) ? Found::second
                                                     : Found::memory;
    levels_[0].insert(levels_[0].begin(), context);
    if (levels_[0].size() > first_) {
      levels_[1].insert(levels_[1].begin(), levels_[0].back());
      levels_[0].pop_back();
    }
    if (second_ != 0 && levels_[1].size() > second_) levels_[1].pop_back();
    return where;
  }
  void forget(std::uint64_t context) {
    for (auto& level : levels_) take(&level, context);
  }

 private:
  static bool take(std::vector<std::uint64_t>* level, std::uint64_t context) {
    return std::erase(*level, context) > 0;
  }
  std::size_t first_, second_;
  std::vector<std::uint64_t> levels_[2];
};

TEST(ContextCache, TheLeastRecentlyUsedSinks) {
  ContextCache cache;
  cache.limit(2, 1);
  EXPECT_EQ(cache.use(1), Found::memory);
  EXPECT_EQ(cache.use(2), Found::memory);
  EXPECT_EQ(cache.use(1), Found::first);
  EXPECT_EQ(cache.use(3), Found::memory);  // 2 sinks to the second level
  EXPECT_EQ(cache.use(2), Found::second);  // 1 sinks
  EXPECT_EQ(cache.use(4), Found::memory);  // 3 sinks, 1 is out
  EXPECT_EQ(cache.use(1), Found::memory);
}

TEST(ContextCache, WithoutALimitAllAreInTheFirstLevel) {
  ContextCache cache;
  EXPECT_EQ(cache.use(7), Found::first);
}

TEST(ContextCache, AsTwoLists) {
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    for (const auto& [first, second] :
         {std::pair{1, 1}, std::pair{2, 0}, std::pair{3, 8}, std::pair{16, 4}}) {
      SCOPED_TRACE(::testing::Message() << "seed " << seed << ", " << first << " and " << second);
      SplitMix64 random(seed);
      ContextCache cache;
      cache.limit(first, second);
      TwoLists expected(static_cast<std::size_t>(first), static_cast<std::size_t>(second));
      for (int step = 0; step < 2000; ++step) {
        // Queue pairs, and DC initiators, whose contexts differ in a high bit.
        const std::uint64_t context = random.next() % 24 | (random.next() % 2) << 32;
        if (random.next() % 8 == 0) {
          cache.forget(context);
          expected.forget(context);
        } else {
          ASSERT_EQ(cache.use(context), expected.use(context)) << "step " << step;
        }
      }
    }
  }
}

}  // namespace
}  // namespace turnout::hca::test
