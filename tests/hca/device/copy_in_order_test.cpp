// SPDX-License-Identifier: BSD-3-Clause
#include "hca/device/copy_in_order.h"

#include <gtest/gtest.h>

#include <cstring>

namespace turnout::hca::test {
namespace {

TEST(CopyInOrder, CopiesAllLengthsAndNothingElse) {
  std::uint8_t from[70], to[72];
  for (std::uint8_t i = 0; i < sizeof from; ++i) from[i] = static_cast<std::uint8_t>(i + 1);
  for (std::uint64_t length = 0; length <= sizeof from; ++length) {
    std::memset(to, 0, sizeof to);
    copy_in_order(to + 1, from, length);
    EXPECT_EQ(to[0], 0);
    EXPECT_EQ(std::memcmp(to + 1, from, length), 0);
    EXPECT_EQ(to[length + 1], 0);
  }
}

TEST(CopyInOrder, RangesMayOverlap) {
  std::uint8_t bytes[] = {1, 2, 3, 4, 5, 6};
  copy_in_order(bytes + 1, bytes, 5);
  EXPECT_EQ(std::memcmp(bytes, "\1\1\2\3\4\5", 6), 0);
  copy_in_order(bytes, bytes + 1, 5);
  EXPECT_EQ(std::memcmp(bytes, "\1\2\3\4\5\5", 6), 0);
}

}  // namespace
}  // namespace turnout::hca::test
