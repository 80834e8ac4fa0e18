// SPDX-License-Identifier: BSD-3-Clause
#include "sim/workloads/replay.h"

#include <gtest/gtest.h>

#include <sstream>

#include "tests/sim/mock_rank.h"

namespace turnout::sim {
namespace {

Trace parse(const std::string& text) {
  std::istringstream in(text);
  const Result<Trace> trace = read_trace(in, "test");
  EXPECT_TRUE(trace.ok()) << trace.status().text();
  return trace.ok() ? trace.value() : Trace{};
}

// Tags beyond 2^48, a message to itself, requests that are never waited for, any source.
const char* const kText = R"(turnout-trace 1
ranks 3
rank 0
s 1 1 8 18446744073709551614 3
s 2 0 4 1 0
r 3 0 4 1 0
w 2
w 3
c 1500
r 4 2 64 5 0 any-source
w 4
rank 1
r 1 0 8 18446744073709551614 3
s 2 2 100 9 0
rank 2
r 1 1 100 9 0
w 1
s 9 0 64 5 0
w 9
end
)";

TEST(Replay, PlaysWhatTheTraceSays) {
  const Trace trace = parse(kText);
  for (const bool synchronous : {false, true}) {
    for (const std::uint32_t copies : {1U, 3U}) {
      const auto ready = prepare_replay(trace, 3 * copies);
      ASSERT_TRUE(ready.ok()) << ready.status().text();
      const Instance instance = make_replay(ready.value());
      const mock::Outcome outcome = mock::play({3 * copies, 1, synchronous}, instance.program);
      EXPECT_EQ(outcome.failure, "");
      EXPECT_EQ(outcome.messages, 3U * copies);
      for (const auto& [pair, count] : message_counts(*ready.value())) {
        if (pair.first == pair.second) continue;
        const auto found = outcome.pairs.find(pair);
        ASSERT_NE(found, outcome.pairs.end());
        EXPECT_EQ(found->second, count);
      }
      EXPECT_GE(outcome.time, 1500 * hca::kNanosecond);
      EXPECT_EQ(instance.phases->list().at(0).messages, 3U * copies);
    }
  }
}

TEST(Replay, MovesWhatWasOneSided) {
  const Trace trace = parse(R"(turnout-trace 2
ranks 2
rank 0
u 1 1 4096 at 10
g 2 1 64 at 10
u 3 0 8
w 1 at 20
w 2
rank 1
c 5 at 7
end
)");
  const auto ready = prepare_replay(trace, 4);
  ASSERT_TRUE(ready.ok()) << ready.status().text();
  const mock::Outcome outcome = mock::play({4, 1, false}, make_replay(ready.value()).program);
  EXPECT_EQ(outcome.failure, "");
  EXPECT_EQ(outcome.messages, 0U);
  EXPECT_EQ(outcome.one_sided, 4U);  // not what a rank does to itself
  EXPECT_EQ(outcome.bytes, 2 * (4096U + 64U));
}

TEST(Replay, WantsAMultipleOfTheRanks) {
  const Trace trace = parse(kText);
  EXPECT_FALSE(prepare_replay(trace, 4).ok());
  EXPECT_FALSE(prepare_replay(trace, 0).ok());
  EXPECT_NE(prepare_replay(trace, 4).status().text().find("3 ranks"), std::string::npos);
}

}  // namespace
}  // namespace turnout::sim
