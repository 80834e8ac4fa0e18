// SPDX-License-Identifier: BSD-3-Clause
#include "core/operations/eager_limit.h"

#include <gtest/gtest.h>

namespace turnout {
namespace {

// A machine on which both kinds take as long as it says, and a program that sends one after
// another.
struct Machine {
  Nanoseconds eager = 0, rendezvous = 0;
  // Of so many messages, those that used rendezvous.
  std::uint32_t send(EagerLimit* limit, std::size_t bytes, std::uint32_t n) const {
    std::uint32_t used = 0;
    for (std::uint32_t i = 0; i < n; ++i) {
      if (limit->takes_rendezvous(bytes, true)) {
        limit->rendezvous_took(bytes, rendezvous);
        ++used;
      } else {
        limit->eager_took(bytes, 4, eager, true);
      }
    }
    return used;
  }
};
constexpr std::size_t kSize = 64 << 10;
constexpr std::uint32_t kBoth = 2 * EagerLimit::kFirst;

TEST(EagerLimit, KnowsNothingAtFirst) {
  const EagerLimit limit;
  EXPECT_EQ(limit.limit(), 0U);
}

TEST(EagerLimit, TakesTurnsAtFirst) {
  EagerLimit limit;
  EXPECT_EQ((Machine{8000, 7000}.send(&limit, kSize, kBoth)), EagerLimit::kFirst);
}

// 8,000 in four parts take 10,000.
TEST(EagerLimit, ChoosesTheFasterAndTriesTheOtherNowAndThen) {
  EagerLimit limit;
  const Machine reads_fast{8000, 9500}, reads_slowly{8000, 10500};
  (void)reads_fast.send(&limit, kSize, kBoth);
  EXPECT_EQ(reads_fast.send(&limit, kSize, 10 * EagerLimit::kOften), 10 * EagerLimit::kOften - 10);
  EagerLimit other;
  (void)reads_slowly.send(&other, kSize, kBoth);
  EXPECT_EQ(reads_slowly.send(&other, kSize, 10 * EagerLimit::kOften), 10U);
}

TEST(EagerLimit, SeldomTriesWhatTakesTwiceAsLong) {
  EagerLimit limit;
  const Machine machine{8000, 21000};
  (void)machine.send(&limit, kSize, kBoth);
  EXPECT_EQ(machine.send(&limit, kSize, 2 * EagerLimit::kSeldom), 2U);
}

TEST(EagerLimit, FollowsTheMachine) {
  EagerLimit limit;
  (void)Machine{8000, 9000}.send(&limit, kSize, kBoth);
  const Machine busy{8000, 50000};  // the receiver comes late
  const std::uint32_t used = busy.send(&limit, kSize, 10000);
  EXPECT_LT(used, 100U);
  EXPECT_GT((Machine{8000, 9000}.send(&limit, kSize, 30 * EagerLimit::kSeldom)),
            15 * EagerLimit::kSeldom);
}

TEST(EagerLimit, OneInterruptionChangesNothing) {
  EagerLimit limit;
  const Machine machine{8000, 4000};
  (void)machine.send(&limit, kSize, kBoth);
  limit.rendezvous_took(kSize, 50'000'000);
  EXPECT_EQ(machine.send(&limit, kSize, 100), 100U);
}

TEST(EagerLimit, TheFirstRegistersMemory) {
  EagerLimit limit;
  const Machine first{8000, 1'000'000}, machine{8000, 4000};
  (void)first.send(&limit, kSize, 2);
  (void)machine.send(&limit, kSize, kBoth - 2);
  EXPECT_EQ(machine.send(&limit, kSize, 100), 100U);
}

// Of so many messages in a stream, those that used rendezvous.
std::uint32_t stream(EagerLimit* limit, const Machine& adds, std::uint32_t n) {
  std::uint32_t used = 0;
  for (std::uint32_t i = 0; i < n; ++i) {
    if (limit->takes_rendezvous(kSize, false)) {
      limit->rendezvous_added(kSize, adds.rendezvous);
      ++used;
    } else {
      limit->eager_took(kSize, 4, adds.eager, false);
    }
  }
  return used;
}

TEST(EagerLimit, TriesBothInAStream) {
  EagerLimit limit;
  EXPECT_EQ(stream(&limit, {8000, 7000}, EagerLimit::kRun), 0U);
  EXPECT_EQ(stream(&limit, {8000, 7000}, EagerLimit::kRun), EagerLimit::kRun);
}

// What it adds to a stream does not tell how long it takes alone.
TEST(EagerLimit, ChoosesForStreamsApart) {
  EagerLimit limit;
  const Machine alone{8000, 10500}, adds{8000, 7000};
  (void)alone.send(&limit, kSize, kBoth);
  (void)stream(&limit, adds, 2 * EagerLimit::kRun);
  EXPECT_EQ(stream(&limit, adds, 100), 100U);
  EXPECT_EQ(alone.send(&limit, kSize, 100), 0U);
  EXPECT_EQ(limit.limit(), std::size_t{64} << 10);
}

TEST(EagerLimit, TriesTheOtherKindInARunOfAStream) {
  EagerLimit limit;
  const Machine adds{8000, 9000};
  (void)stream(&limit, adds, 2 * EagerLimit::kRun);
  const std::uint32_t between = EagerLimit::kOften * EagerLimit::kRun;
  EXPECT_EQ(stream(&limit, adds, between - 1), 0U);
  EXPECT_EQ(stream(&limit, adds, EagerLimit::kRun), EagerLimit::kRun);
  EXPECT_EQ(stream(&limit, adds, between - 1), 0U);
}

// A rendezvous whose time nobody noted tells nothing.
TEST(EagerLimit, StaysEagerWhereRendezvousIsNotMeasured) {
  EagerLimit limit;
  for (std::uint32_t i = 0; i < 2 * EagerLimit::kRun; ++i) {
    if (!limit.takes_rendezvous(kSize, false)) limit.eager_took(kSize, 4, 8000, false);
  }
  for (std::uint32_t i = 0; i < 100; ++i) EXPECT_FALSE(limit.takes_rendezvous(kSize, false));
}

TEST(EagerLimit, JudgesEachSizeAlone) {
  EagerLimit limit;
  const Machine copies_fast{1000, 2000}, reads_fast{8000, 5000};
  (void)copies_fast.send(&limit, EagerLimit::kLeast + 1, 100);
  (void)copies_fast.send(&limit, 16 << 10, 100);
  EXPECT_EQ(limit.limit(), std::size_t{16} << 10);
  (void)reads_fast.send(&limit, (16 << 10) + 1, 100);
  (void)reads_fast.send(&limit, std::size_t{1} << 40, 100);  // longer than any
  EXPECT_EQ(limit.limit(), std::size_t{16} << 10);
  (void)reads_fast.send(&limit, 16 << 10, 200 * EagerLimit::kSeldom);
  EXPECT_EQ(limit.limit(), EagerLimit::kLeast);
}

}  // namespace
}  // namespace turnout
