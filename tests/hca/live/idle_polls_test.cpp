// SPDX-License-Identifier: BSD-3-Clause
#include "hca/live/idle_polls.h"

#include <gtest/gtest.h>

namespace turnout::hca {
namespace {

TEST(IdlePolls, TheFirstPostsAfterAVainPollAreTold) {
  IdlePolls polls;
  EXPECT_FALSE(polls.posts_first());
  polls.found_nothing();
  polls.found_work();  // a completion, of which the program's answer is still to come
  EXPECT_TRUE(polls.posts_first());
  EXPECT_TRUE(polls.posts_first());
  EXPECT_FALSE(polls.posts_first());
  polls.found_nothing();
  EXPECT_TRUE(polls.posts_first());
}

}  // namespace
}  // namespace turnout::hca
