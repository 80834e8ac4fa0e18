// What an endpoint accounts for its queue pairs when nobody injects their size: mlx5's rules.
#include <gtest/gtest.h>

#include "core/memory/account.h"
#include "tests/core/test_world.h"

namespace turnout {
namespace {

TEST(EndpointMemory, WithoutAProcessorObjectsAreAsLargeAsTheDriverMakesThem) {
  TestWorld world(1, {{"policy", "aqps"}});
  std::uint64_t queue_pairs = 0, queues = 0;
  for (const MemoryLine& line : world[0].report().memory) {
    if (line.kind == name(MemoryKind::queue_pairs)) queue_pairs = line.now;
    if (line.kind == name(MemoryKind::queues)) queues = line.now;
  }
  EXPECT_EQ(queue_pairs, 8 * (queue_pair_bytes(QpService::dci, 128, 2, 0) +
                              queue_pair_bytes(QpService::dct, 0, 0, 0)));
  // 512 receives; 128 requests each of 8 initiators, 128 pooled and 26 active queue pairs.
  EXPECT_EQ(queues, 512u * (64 + 32) + 64u * 128 * (8 + 128 + 26));
}

}  // namespace
}  // namespace turnout
