// SPDX-License-Identifier: BSD-3-Clause
#include "sim/runtime/one_sided_memory.h"

#include <gtest/gtest.h>

#include <vector>

#include "sim/runtime/content_checker.h"

namespace turnout::sim {
namespace {

constexpr std::uint64_t kContent = 0x0123456789abcdef;

// A region where the memory is registered for real.
ReachedMemory::Place place(ReachedMemory& memory, std::uint64_t bytes) {
  if (const auto taken = memory.take(bytes)) return *taken;
  (void)memory.add_region(memory.least(bytes));
  return memory.take(bytes).value();
}

TEST(ReachedMemory, EveryOperationHasBytesOfItsOwn) {
  ReachedMemory memory;
  std::vector<ReachedMemory::Place> places;
  for (const std::uint64_t bytes : {1u, 70'000u, 400u, 4096u, 8193u}) {
    places.push_back(place(memory, bytes));
  }
  for (std::size_t i = 0; i < places.size(); ++i) memory.fill(places[i], kContent + i);
  for (std::size_t i = 0; i < places.size(); ++i) {
    EXPECT_FALSE(memory.first_wrong(places[i], kContent + i)) << i;
  }
}

TEST(ReachedMemory, WhatIsGivenBackIsTakenAgain) {
  ReachedMemory memory;
  const auto first = place(memory, 1000);
  const auto second = place(memory, 1000);
  memory.give_back(first);
  EXPECT_EQ(memory.data(place(memory, 500)), memory.data(first));
  EXPECT_NE(memory.data(place(memory, 1000)), memory.data(second));
}

TEST(ReachedMemory, LargerRegionsLeaveTheOnesBefore) {
  ReachedMemory memory;
  const auto first = place(memory, 10);
  memory.fill(first, kContent);
  const std::byte* const before = memory.data(first);
  const auto large = place(memory, 200'000);
  EXPECT_NE(large.region, first.region);
  EXPECT_EQ(memory.data(first), before);
  EXPECT_FALSE(memory.first_wrong(first, kContent));
}

TEST(Content, AByteThatIsAnotherIsFound) {
  for (const std::size_t bytes : {0u, 1u, 6u, 1791u, 1792u, 1793u, 5000u}) {
    for (const std::size_t from : {0u, 4u}) {
      if (from > bytes) continue;
      std::vector<std::byte> made(bytes);
      fill_content(made.data(), from, bytes, kContent);
      for (std::size_t i = from; i < bytes; ++i) ASSERT_EQ(made[i], content(kContent, i)) << i;
      EXPECT_EQ(first_other(made.data(), from, bytes, kContent), bytes);
      for (std::size_t i = from; i < bytes; i += 97) {
        made[i] ^= std::byte{0x80};
        ASSERT_EQ(first_other(made.data(), from, bytes, kContent), i) << bytes << " from " << from;
        made[i] ^= std::byte{0x80};
      }
    }
  }
}

TEST(ReachedMemory, TellsWhatIsWrong) {
  ReachedMemory memory;
  const auto written = place(memory, 100);
  memory.spoil(written, kContent);
  EXPECT_EQ(memory.first_wrong(written, kContent), 0U);  // nothing came
  memory.fill(written, kContent);
  memory.data(written)[99] ^= std::byte{1};
  EXPECT_EQ(memory.first_wrong(written, kContent), 99U);
  memory.fill(written, kContent);
  memory.data(written)[100] = content(kContent, 100);  // one too many
  EXPECT_EQ(memory.first_wrong(written, kContent), 100U);
}

}  // namespace
}  // namespace turnout::sim
