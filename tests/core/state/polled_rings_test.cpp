// SPDX-License-Identifier: BSD-3-Clause
// PolledRings by examples: which rings a round looks at.
#include "core/state/polled_rings.h"

#include <gtest/gtest.h>

#include <array>

namespace turnout {
namespace {

constexpr std::uint32_t kMost = selection::kSilentRounds;

class PolledRingsTest : public testing::Test {
 protected:
  PolledRingsTest() {
    for (Peer& peer : peers_) rings_.add(peer);
  }
  // Busy rounds; in each the first of the peers speaks.
  void busy(std::uint32_t rounds) {
    for (; rounds > 0; --rounds) {
      rings_.spoke(peers_[0]);
      (void)rings_.silent_due(true);
    }
  }
  // Busy rounds until the silent ones are looked at, that one too.
  std::uint32_t until_due() {
    std::uint32_t rounds = 1;
    while (!rings_.silent_due(true) && rounds < 1000) ++rounds;
    return rounds;
  }
  std::array<Peer, 4> peers_;
  PolledRings rings_;
};

TEST_F(PolledRingsTest, ThoseThatDoNotSpeakWhileOthersDoAreSilent) {
  busy(PolledRings::kLookBack);
  EXPECT_EQ(rings_.speaking().size(), 4u) << "they are new";
  busy(PolledRings::kLookBack);
  EXPECT_EQ(rings_.speaking(), std::vector<Peer*>{&peers_[0]});
  EXPECT_EQ(rings_.silent().size(), 3u);
}

// However long nothing happens, nobody is silent.
TEST_F(PolledRingsTest, RoundsThatFoundNothingDoNotCount) {
  for (std::uint32_t n = 0; n < 4 * PolledRings::kLookBack; ++n) (void)rings_.silent_due(false);
  EXPECT_EQ(rings_.speaking().size(), 4u);
}

// Who waits looks at all.
TEST_F(PolledRingsTest, TheSecondRoundInARowThatFoundNothingLooksAtTheSilentOnes) {
  busy(2 * PolledRings::kLookBack);
  for (std::uint32_t n = 0; n < 100; ++n) {
    busy(1 + n % 3);
    (void)rings_.silent_due(false);
    for (int idle = 0; idle < 3; ++idle) EXPECT_TRUE(rings_.silent_due(false));
  }
}

TEST_F(PolledRingsTest, BusyRoundsLookAtThemLessAndLessOften) {
  busy(2 * PolledRings::kLookBack);
  rings_.spoke(peers_[1]);  // it is back, and the rounds are counted anew
  EXPECT_EQ(rings_.speaking().size(), 2u);
  EXPECT_EQ(rings_.silent().size(), 2u);
  EXPECT_EQ(until_due(), 1u);
  for (std::uint32_t rounds = 2; rounds < kMost; rounds *= 2) EXPECT_EQ(until_due(), rounds);
  for (int n = 0; n < 3; ++n) EXPECT_EQ(until_due(), kMost);
  rings_.spoke(peers_[2]);
  EXPECT_EQ(until_due(), 1u);
}

TEST_F(PolledRingsTest, ListsEachOnceWhateverHappens) {
  rings_.add(peers_[0]);
  EXPECT_EQ(rings_.speaking().size(), 4u);
  busy(2 * PolledRings::kLookBack);
  rings_.add(peers_[3]);
  rings_.remove(peers_[2]);
  rings_.remove(peers_[2]);
  rings_.spoke(peers_[2]);
  EXPECT_EQ(rings_.speaking().size(), 2u);
  EXPECT_EQ(rings_.silent(), std::vector<Peer*>{&peers_[1]});
  rings_.remove(peers_[1]);
  EXPECT_TRUE(rings_.silent().empty());
}

}  // namespace
}  // namespace turnout
