// SPDX-License-Identifier: BSD-3-Clause
#include "hca/virtual/number_table.h"

#include <gtest/gtest.h>

namespace turnout::hca::test {
namespace {

TEST(NumberTable, ANumberComesBackLate) {
  NumberTable<int*> table(4, 2);
  EXPECT_EQ(table.reserve(), 4U);
  EXPECT_EQ(table.reserve(), 5U);
  table.release(4);
  table.release(5);
  EXPECT_EQ(table.reserve(), 6U);  // two are free, and rest
  table.release(6);
  EXPECT_EQ(table.reserve(), 4U);  // the oldest of three
}

TEST(NumberTable, FindsWhatWasPutThereAndNothingElse) {
  NumberTable<int*> table(1, 2);
  int item = 0;
  const std::uint32_t number = table.reserve();
  EXPECT_EQ(table.find(number), nullptr);
  table[number] = &item;
  EXPECT_EQ(table.find(number), &item);
  EXPECT_EQ(table.find(0), nullptr);
  EXPECT_EQ(table.find(number + 1), nullptr);
  EXPECT_EQ(table.find(~0U), nullptr);
  EXPECT_EQ(table.entry(number + 1), nullptr);
}

TEST(NumberTable, HasTwentyFourBits) {
  NumberTable<char> table(1, 2);
  std::uint32_t last = 0;
  while (const std::uint32_t number = table.reserve()) last = number;
  EXPECT_EQ(last, 0xff'ffffU);
}

}  // namespace
}  // namespace turnout::hca::test
