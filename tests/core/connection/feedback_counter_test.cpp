// SPDX-License-Identifier: BSD-3-Clause
#include "core/connection/feedback_counter.h"

#include <gtest/gtest.h>

namespace turnout {
namespace {

TEST(FeedbackCounter, AMessageToAnotherTargetSwitches) {
  FeedbackCounter counter;
  counter.configure(2, true);
  SentCount a, b, c;
  counter.count(a, 1, 0);  // the initiator's first
  counter.count(a, 1, 0);
  counter.count(b, 2, 0);
  counter.count(a, 1, 0);
  counter.count(c, 3, 1);  // over another DCI
  counter.count(a, 1, 0);
  EXPECT_EQ(a.sent, 4u);
  EXPECT_EQ(a.switched, 1u);
  EXPECT_EQ(FeedbackCounter::take_switched(a), 250u);
  EXPECT_EQ(FeedbackCounter::take_switched(b), 1000u);
  EXPECT_EQ(FeedbackCounter::take_switched(b), 0u) << "of no message";
  EXPECT_EQ(a.sent, 0u);
  counter.count(a, 1, 0);
  EXPECT_EQ(FeedbackCounter::take_switched(a), 0u);
}

TEST(FeedbackCounter, OverDatagramsNothingSwitches) {
  FeedbackCounter counter;
  counter.configure(1, false);
  SentCount a, b;
  counter.count(a, 1, 0);
  counter.count(b, 2, 0);
  EXPECT_EQ(a.switched + b.switched, 0u);
}

TEST(FeedbackCounter, ABusyIntervalIsFullOfMessages) {
  const selection::DeviceCosts costs;
  FeedbackCounter counter;
  counter.configure(1, true);
  SentCount a;
  for (int i = 0; i < 1000; ++i) counter.count(a, 1, 0);
  counter.end_interval(costs, 1000, 1e6);
  EXPECT_NEAR(counter.busy(), 2000 * costs.sender_post_dc.value / 1e6, 0.001);
  EXPECT_EQ(counter.busy_thousandths(), static_cast<unsigned>(counter.busy() * 1000 + 0.5));
  counter.end_interval(costs, 0, 1e6);
  EXPECT_EQ(counter.busy(), 0) << "counts begin anew";
}

TEST(FeedbackCounter, OnlyWhatChangedByAFifthIsReported) {
  Feedback reported, now;
  const auto changes = [&] {
    if (!FeedbackCounter::changes(reported, now)) return false;
    reported = now;
    return true;
  };
  EXPECT_FALSE(changes()) << "nothing is what a peer expects";
  now.busy = 20;
  EXPECT_FALSE(changes()) << "noise";
  now.busy = 500;
  EXPECT_TRUE(changes());
  EXPECT_FALSE(changes());
  now.busy = 600;
  EXPECT_FALSE(changes());
  now.busy = 650;
  EXPECT_TRUE(changes());
  now.active_rc = 1;
  EXPECT_TRUE(changes());
  now.here = 2;
  EXPECT_TRUE(changes());
  now.full = true;
  EXPECT_TRUE(changes());
  now.full = false;
  EXPECT_TRUE(changes());
  EXPECT_EQ(reported.busy, 650u);
}

}  // namespace
}  // namespace turnout
