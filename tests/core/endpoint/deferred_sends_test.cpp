// SPDX-License-Identifier: BSD-3-Clause
// Deferred sends: large messages that wait for an RTR, and what ends the wait.
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "tests/core/endpoint/known_pair.h"

namespace turnout {
namespace {

// A sender whose peer has sent an RTR before and will not send another by itself; it waits for one
// as long as a test takes, unless told otherwise.
class DeferredSends : public testing::Test {
 protected:
  explicit DeferredSends(Overrides more = {{"rtr_wait", "1000s"}}) : pair_("put", std::move(more)) {
    pair_.meet(out_, in_, 1);
    EXPECT_EQ(pair_.sender().operations.puts, 1u);
  }
  // A second message is deferred behind the first; with another tag, its RTR is sent first.
  void expect_written(std::uint64_t other_tag) {
    std::vector<std::byte> other = pattern(9000, 2), other_in(9000);
    pair_.send(out_, 1);
    pair_.send(other, other_tag);
    if (other_tag != 1) pair_.recv(other_in, other_tag);
    pair_.recv(in_, 1);
    if (other_tag == 1) pair_.recv(other_in, other_tag);
    pair_.expect_arrival();
    pair_.expect_arrival();
    EXPECT_EQ(in_, out_);
    EXPECT_EQ(other_in, other);
    EXPECT_EQ(pair_.sender().operations.puts, 3u);
  }
  // The receiver reads the message: it was not written to an RTR.
  void expect_fetched() {
    ASSERT_TRUE(pair_.received());
    EXPECT_EQ(in_, out_);
    EXPECT_EQ(pair_.sender().operations.puts, 1u);
  }
  KnownPair pair_;
  std::vector<std::byte> out_ = pattern(9000, 1), in_ = std::vector<std::byte>(9000);
};

class BrieflyDeferredSends : public DeferredSends {
 protected:
  BrieflyDeferredSends() : DeferredSends({{"rtr_wait", "1ms"}}) {}
};

TEST_F(DeferredSends, AreWrittenToMatchingRtrs) {
  expect_written(2);
}

TEST_F(DeferredSends, OfOneTagKeepTheirOrder) {
  expect_written(1);
}

TEST_F(DeferredSends, WaitForNothingElse) {
  std::vector<std::byte> little = pattern(10, 1), little_in(10);
  pair_.send(out_, 1);
  pair_.send(little, 2);
  pair_.recv(little_in, 2);
  ASSERT_TRUE(pair_.received());
  EXPECT_EQ(take(pair_.world().queue(1)).tag, 2u);
  pair_.recv(in_, 1);
  expect_fetched();
}

// The small message is sent before the RTR arrives.
TEST_F(DeferredSends, FallBackToRtsWhenAnRtrCannotBeUsed) {
  std::vector<std::byte> little = pattern(10, 1);
  pair_.recv(in_, 1);
  EXPECT_EQ(pair_.receiver().operations.rtrs, 2u);
  pair_.send(little, 2);
  pair_.send(out_, 1);
  expect_fetched();
}

// A late receiver looks for its message first.
TEST_F(DeferredSends, ThatWereAnnouncedAreFetched) {
  std::vector<std::byte> little = pattern(10, 1);
  pair_.send(out_, 1);
  pair_.send(little, 2);
  pair_.recv(in_, 1);
  expect_fetched();
  EXPECT_EQ(pair_.receiver().operations.rtrs, 1u);
}

TEST_F(DeferredSends, LongerThanTheReceiveAreTruncated) {
  std::vector<std::byte> longer = pattern(12'000, 3), next = pattern(9000, 4), next_in(9000);
  pair_.send(longer, 1);
  pair_.send(next, 1);
  pair_.recv(in_, 1);
  ASSERT_TRUE(pair_.received());
  ASSERT_TRUE(pair_.error(1));
  EXPECT_EQ(pair_.world().queue(1).pop_error().status.code(), Code::truncated);
  pair_.recv(next_in, 1);
  ASSERT_TRUE(pair_.received());
  EXPECT_EQ(next_in, next);
}

TEST_F(DeferredSends, CanBeCancelled) {
  int context;
  pair_.send(out_, 1, reinterpret_cast<std::uint64_t>(&context));
  EXPECT_TRUE(pair_.world()[0].cancel(&context));
  ASSERT_TRUE(pair_.error(0));
  EXPECT_EQ(pair_.world().queue(0).pop_error().status.code(), Code::canceled);
  std::vector<std::byte> second = pattern(9000, 2);
  pair_.recv(in_, 1);
  pair_.send(second, 1);
  pair_.expect_arrival();
  EXPECT_EQ(in_, second);
}

TEST_F(DeferredSends, EndWithTheirPeer) {
  pair_.send(out_, 1);
  pair_.world().close(1);
  ASSERT_TRUE(pair_.world().until([&] {
    pair_.world().clock().advance(100'000'000);
    return pair_.error(0);
  }));
  EXPECT_EQ(pair_.world().queue(0).pop_error().status.code(), Code::peer_lost);
}

TEST_F(BrieflyDeferredSends, WaitNoLonger) {
  for (int i = 0; i < 50; ++i) {
    pair_.send(out_, 1);
    pair_.settle();
    pair_.recv(in_, 1);
    pair_.expect_arrival();
    EXPECT_EQ(in_, out_);
  }
  EXPECT_EQ(pair_.sender().operations.puts, 1u);
}

}  // namespace
}  // namespace turnout
