#include "core/channel/ring.h"

#include <gtest/gtest.h>

namespace turnout {
namespace {

TEST(Ring, LapNeverZeroAndChangesEachRound) {
  for (std::uint32_t entries : {2u, 16u, 128u}) {
    for (std::uint64_t position = 0; position < entries * 600u; ++position) {
      const std::uint8_t lap = lap_of(position, entries);
      ASSERT_NE(lap, 0);
      ASSERT_NE(lap, lap_of(position + entries, entries));
    }
  }
}

TEST(RingSender, EntriesFollowEachOther) {
  RingSender ring{1000, 1, 4, 512, 4, 0};
  EXPECT_EQ(ring.entry_end(), 1000u + 512u);
  ring.position = 3;
  EXPECT_EQ(ring.entry_end(), 1000u + 4 * 512u);
  ring.position = 4;
  EXPECT_EQ(ring.entry_end(), 1000u + 512u);
}

}  // namespace
}  // namespace turnout
