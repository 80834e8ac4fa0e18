// SPDX-License-Identifier: BSD-3-Clause
#include "core/connection/decision_log.h"

#include <gtest/gtest.h>

namespace turnout {
namespace {

DecisionReport decision(std::uint32_t peer) {
  DecisionReport one;
  one.peer = peer;
  one.outcome = "in progress";
  return one;
}

TEST(DecisionLog, OutcomesReachTheirDecisions) {
  MemoryAccount account(1 << 20, true);
  DecisionLog log(account);
  const auto first = log.add(decision(1)), second = log.add(decision(2));
  EXPECT_NE(first, 0u);
  EXPECT_NE(first, second);
  log.set_outcome(second, "done");
  EXPECT_EQ(log.kept()[0].outcome, "in progress");
  EXPECT_EQ(log.kept()[1].outcome, "done");
  log.set_outcome(0, "nothing has this number");
  EXPECT_EQ(log.kept()[0].outcome, "in progress");
}

TEST(DecisionLog, TheLatestAreKept) {
  MemoryAccount account(3 * DecisionLog::kBytes, true);
  DecisionLog log(account);
  const auto first = log.add(decision(0));
  for (std::uint32_t peer = 1; peer < 5; ++peer) (void)log.add(decision(peer));
  ASSERT_EQ(log.kept().size(), 3u);
  EXPECT_EQ(log.dropped(), 2u);
  EXPECT_EQ(log.kept().front().peer, 2u);
  log.set_outcome(first, "too late");
  for (const DecisionReport& one : log.kept()) EXPECT_EQ(one.outcome, "in progress");
  const auto sixth = log.add(decision(5));
  log.set_outcome(sixth, "done");
  EXPECT_EQ(log.kept().back().outcome, "done");
}

TEST(DecisionLog, WithoutRoomForOneNoneIsKept) {
  MemoryAccount account(DecisionLog::kBytes - 1, true);
  DecisionLog log(account);
  EXPECT_EQ(log.add(decision(1)), 0u);
  EXPECT_TRUE(log.kept().empty());
  EXPECT_EQ(log.dropped(), 1u);
}

TEST(DecisionLog, TheNumberIsBounded) {
  MemoryAccount account(std::uint64_t{1} << 40, true);
  DecisionLog log(account);
  for (std::uint32_t peer = 0; peer < DecisionLog::kMost + 10; ++peer)
    (void)log.add(decision(peer));
  EXPECT_EQ(log.kept().size(), DecisionLog::kMost);
  EXPECT_EQ(log.kept().front().peer, 10u);
}

}  // namespace
}  // namespace turnout
