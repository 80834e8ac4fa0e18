// Programs in virtual time: they end, their messages arrive, equal seeds give equal runs.
#include "sim/simulation.h"

#include <gtest/gtest.h>

namespace turnout::sim {
namespace {

Task ring(Rank rank, int rounds) {
  for (int i = 0; i < rounds; ++i) {
    const Request in = co_await rank.irecv((rank.id() + rank.size() - 1) % rank.size(), 100, 1);
    const Request out = co_await rank.isend((rank.id() + 1) % rank.size(), 100, 1);
    co_await rank.wait(in);
    co_await rank.wait(out);
  }
}

TEST(Simulation, ARingEnds) {
  Options options;
  options.ranks = 8;
  auto result = run(options, [](Rank rank) { return ring(rank, 10); });
  ASSERT_TRUE(result.ok()) << result.status().text();
  EXPECT_EQ(result.value().messages, 80u);
}

}  // namespace
}  // namespace turnout::sim
