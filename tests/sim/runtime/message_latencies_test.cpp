// SPDX-License-Identifier: BSD-3-Clause
#include "sim/runtime/job.h"

#include <gtest/gtest.h>

namespace turnout::sim {
namespace {

TEST(MessageLatencies, MessagesOfAStreamEndInTheOrderOfTheirBeginning) {
  MessageLatencies latencies;
  latencies.begin(1, 2, 7, 100);
  latencies.begin(1, 2, 7, 150);
  latencies.end(1, 2, 7, 400);
  latencies.end(1, 2, 7, 410);
  EXPECT_EQ(latencies.take_sorted(), (std::vector<Picoseconds>{260, 300}));
  EXPECT_TRUE(latencies.take_sorted().empty());
}

TEST(MessageLatencies, StreamsDifferBySourceDestinationAndTag) {
  MessageLatencies latencies;
  latencies.begin(1, 2, 7, 100);
  latencies.end(2, 1, 7, 400);
  latencies.end(1, 3, 7, 400);
  latencies.end(1, 2, 8, 400);
  EXPECT_TRUE(latencies.take_sorted().empty());
  latencies.end(1, 2, 7, 400);
  EXPECT_EQ(latencies.take_sorted(), std::vector<Picoseconds>{300});
}

}  // namespace
}  // namespace turnout::sim
