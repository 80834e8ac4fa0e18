// SPDX-License-Identifier: BSD-3-Clause
#include "hca/virtual/kernel.h"

#include <gtest/gtest.h>

namespace turnout::hca::test {
namespace {

TEST(Kernel, EqualTimesKeepTheOrderOfInsertion) {
  Kernel kernel(1);
  int objects[4] = {};
  kernel.schedule(20, EventKind::ready, &objects[2]);
  kernel.schedule(10, EventKind::ready, &objects[0]);
  kernel.schedule(20, EventKind::land, &objects[3]);
  kernel.schedule(10, EventKind::ready, &objects[1]);
  for (int i = 0; i < 4; ++i) {
    Event event;
    ASSERT_TRUE(kernel.next(event));
    EXPECT_EQ(event.object, &objects[i]);
    EXPECT_EQ(kernel.now(), i < 2 ? 10 : 20);
  }
  Event event;
  EXPECT_FALSE(kernel.next(event));
  EXPECT_EQ(kernel.statistics().events, 4U);
}

TEST(Kernel, ATimeThatHasPassedIsNow) {
  Kernel kernel(1);
  kernel.schedule(10, EventKind::ready, nullptr);
  Event event;
  ASSERT_TRUE(kernel.next(event));
  kernel.schedule(5, EventKind::ready, nullptr);
  ASSERT_TRUE(kernel.next(event));
  EXPECT_EQ(event.time, 10);
  EXPECT_EQ(kernel.now(), 10);
}

TEST(Kernel, TheHashIsOfTimesAndKinds) {
  const auto hash = [](EventKind kind, Picoseconds time) {
    Kernel kernel(1);
    kernel.schedule(time, kind, nullptr);
    Event event;
    EXPECT_TRUE(kernel.next(event));
    return kernel.statistics().hash;
  };
  EXPECT_EQ(hash(EventKind::ready, 10), hash(EventKind::ready, 10));
  EXPECT_NE(hash(EventKind::ready, 10), hash(EventKind::land, 10));
  EXPECT_NE(hash(EventKind::ready, 10), hash(EventKind::ready, 11));
}

TEST(Kernel, ChancesAreCountedAndDrawNothingWhereThereIsNone) {
  Kernel one(7), other(7);
  EXPECT_FALSE(one.chance(0));
  EXPECT_EQ(one.random(), other.random());
  EXPECT_TRUE(one.chance(1'000'000));
  EXPECT_EQ(one.statistics().faults, 1U);
}

}  // namespace
}  // namespace turnout::hca::test
