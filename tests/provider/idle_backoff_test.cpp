// SPDX-License-Identifier: BSD-3-Clause
// Programs that poll in vain give the processor away now and then, and only they. sched_yield is
// ours here: it counts.
#include "provider/idle_backoff.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
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

using provider::IdleBackoff;

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
  EXPECT_EQ(yields_of([&] { read_in_vain(pair.b.cq, IdleBackoff::kLooks - 1); }), 0u);
  EXPECT_EQ(yields_of([&] { read_in_vain(pair.b.cq, 1); }), 1u);
  EXPECT_EQ(yields_of([&] { read_in_vain(pair.b.cq, 10 * IdleBackoff::kLater); }), 10u);
}

TEST(IdleBackoff, WhatIsFoundRestoresIt) {
  PairOfNodes pair;
  char in[4] = {};
  int context = 0;
  const unsigned count = yields_of([&] {
    for (int i = 0; i < 10; ++i) {
      read_in_vain(pair.b.cq, IdleBackoff::kLooks - 1);
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
    for (unsigned i = 0; i < IdleBackoff::kLooks + 1; ++i) {
      if (i % 200 == 0) fi_cntr_add(counter, 1);
      EXPECT_GT(fi_cntr_read(counter), 0u);
    }
  });
  EXPECT_EQ(count, 0u);
  EXPECT_EQ(yields_of([&] {
              for (unsigned i = 0; i < IdleBackoff::kLooks; ++i) fi_cntr_read(counter);
            }),
            1u);
  EXPECT_EQ(fi_close(&counter->fid), 0);
}

}  // namespace
}  // namespace turnout::testing
