// SPDX-License-Identifier: BSD-3-Clause
// Programs that poll in vain give the processor away now and then, and only they. sched_yield is
// ours here: it counts.
#include "provider/idle_backoff.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <functional>

#include "tests/provider/node.h"

namespace {
std::atomic<unsigned> yields{0};
}
extern "C" int sched_yield() noexcept {
  ++yields;
  return static_cast<int>(syscall(SYS_sched_yield));
}

namespace turnout::testing {
namespace {

using IdleBackoff = provider::IdleBackoff<>;

unsigned yields_of(const std::function<void()>& what) {
  const unsigned before = yields.load();
  what();
  return yields.load() - before;
}

void read_in_vain(fid_cq* cq, unsigned times) {
  fi_cq_tagged_entry entry;
  for (unsigned i = 0; i < times; ++i) ASSERT_EQ(fi_cq_read(cq, &entry, 1), -FI_EAGAIN);
}

TEST(IdleBackoff, QueuesThatAreReadInVainLetOthersRun) {
  const PairOfNodes pair;
  EXPECT_EQ(yields_of([&] { read_in_vain(pair.b.cq, IdleBackoff::kReads - 1); }), 0u);
  EXPECT_EQ(yields_of([&] { read_in_vain(pair.b.cq, 1); }), 1u);
  EXPECT_EQ(yields_of([&] { read_in_vain(pair.b.cq, 10 * IdleBackoff::kLater); }), 10u);
}

TEST(IdleBackoff, WhatIsFoundRestoresIt) {
  PairOfNodes pair;
  char in[4] = {};
  int context = 0;
  const unsigned count = yields_of([&] {
    for (int i = 0; i < 10; ++i) {
      read_in_vain(pair.b.cq, IdleBackoff::kReads - 1);
      ASSERT_EQ(fi_trecv(pair.b.ep, in, 4, nullptr, FI_ADDR_UNSPEC, 7, 0, &context), 0);
      ASSERT_EQ(fi_tinject(pair.a.ep, "abc", 3, pair.to_b, 7), 0);
      fi_cq_tagged_entry entry;
      ASSERT_EQ(fi_cq_read(pair.b.cq, &entry, 1), 1);
    }
  });
  EXPECT_EQ(count, 0u);
}

TEST(IdleBackoff, CountersThatDoNotChangeToo) {
  Node node;
  fi_cntr_attr attr{};
  fid_cntr* counter = nullptr;
  ASSERT_EQ(fi_cntr_open(node.domain, &attr, &counter, nullptr), 0);
  const unsigned count = yields_of([&] {
    for (unsigned i = 0; i < IdleBackoff::kReads + 1; ++i) {
      if (i % 200 == 0) fi_cntr_add(counter, 1);
      EXPECT_GT(fi_cntr_read(counter), 0u);
    }
  });
  EXPECT_EQ(count, 0u);
  EXPECT_EQ(yields_of([&] {
              for (unsigned i = 0; i < IdleBackoff::kReads; ++i) fi_cntr_read(counter);
            }),
            1u);
  EXPECT_EQ(fi_close(&counter->fid), 0);
}

// The time that the tests below set; a look takes 10 ticks.
struct FakeTicks {
  static inline std::uint64_t now = 0;
  std::uint64_t operator()() const noexcept { return now; }
};

class LookingAgain : public ::testing::Test {
 protected:
  // The looks of one read that finds nothing, after the program was away for so long.
  int looks_after(std::uint64_t away, bool wanted = false) {
    FakeTicks::now += away;
    int looks = 0;
    static_cast<void>(backoff_.read(
        [&] {
          FakeTicks::now += 10;
          ++looks;
          return false;
        },
        [&] { return wanted; }));
    return looks;
  }
  void find() {
    EXPECT_FALSE(backoff_.read([] { return true; }, [] { return false; }));
  }

  provider::IdleBackoff<FakeTicks> backoff_;
};

TEST_F(LookingAgain, ForTwiceAsLongAsTheProgramWasAway) {
  EXPECT_EQ(looks_after(1000), 1);  // there was nothing before
  EXPECT_EQ(looks_after(90), 1 + 20);
  EXPECT_EQ(looks_after(190), 1 + 40);
  EXPECT_EQ(looks_after(0), 1 + 2);
}

TEST_F(LookingAgain, NotAfterASuccess) {
  EXPECT_EQ(looks_after(90), 1);
  EXPECT_EQ(looks_after(90), 1 + 20);
  find();
  EXPECT_EQ(looks_after(90), 1);
  EXPECT_EQ(looks_after(90), 1 + 20);
}

TEST_F(LookingAgain, NotForWhoWasAwayForLong) {
  EXPECT_EQ(looks_after(90), 1);
  EXPECT_EQ(looks_after(IdleBackoff::kYield), 1);
  EXPECT_EQ(looks_after(IdleBackoff::kYield - 10),
            1 + 2 * static_cast<int>(IdleBackoff::kYield) / 10);
}

TEST_F(LookingAgain, EndsWhenAnotherThreadWantsTheLock) {
  EXPECT_EQ(looks_after(90), 1);
  EXPECT_EQ(looks_after(90, true), 1);
}

}  // namespace
}  // namespace turnout::testing
