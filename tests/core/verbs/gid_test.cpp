// SPDX-License-Identifier: BSD-3-Clause
// Which of a RoCE port's GIDs is taken: those of a port as Linux lists them.
#include "core/verbs/gid.h"

#include <gtest/gtest.h>

namespace turnout::verbs {
namespace {

constexpr Gid kLinkLocal = {0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0x50, 0x54, 0, 0xff, 0xfe, 0x77, 0, 1};
constexpr Gid kGlobal = {0xfd, 0x00, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
constexpr Gid kMapped = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 77, 0, 1};

TEST(Gid, OneThatNobodyFilledHasNoMerit) {
  EXPECT_EQ(gid_merit(Gid{}, true), 0u);
  EXPECT_GT(gid_merit(kLinkLocal, false), 0u);
}

TEST(Gid, TheAddressThatReachesFarthestIsBest) {
  for (const bool v2 : {false, true}) {
    EXPECT_GT(gid_merit(kMapped, v2), gid_merit(kGlobal, v2));
    EXPECT_GT(gid_merit(kGlobal, v2), gid_merit(kLinkLocal, v2));
  }
}

TEST(Gid, AnyOfVersionTwoIsBetterThanAnyOfVersionOne) {
  EXPECT_GT(gid_merit(kLinkLocal, true), gid_merit(kMapped, false));
}

}  // namespace
}  // namespace turnout::verbs
