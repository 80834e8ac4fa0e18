// SPDX-License-Identifier: BSD-3-Clause
// SrqFlowControl alone: no endpoint, no adapter. A sender here is a number of credits.
#include "core/flow/srq_flow_control.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <numeric>
#include <vector>

namespace turnout {
namespace {

class HandClock final : public Clock {
 public:
  [[nodiscard]] Nanoseconds now() noexcept override { return time; }
  Nanoseconds time = 0;
};

struct Sender {
  CreditGrant grant;
  std::uint32_t credits = 0;   // as the sender knows
  std::uint32_t arrived = 0;   // messages in receives
  std::uint32_t retained = 0;  // of the program's, in their receives
};

struct Flow {
  Flow(std::size_t senders, SrqFlowControl::Limits limits, std::uint32_t receives)
      : control(clock), senders(senders) {
    control.configure(limits);
    control.set_queue({receives, false, true});
    for (std::size_t i = 0; i < senders; ++i) {
      this->senders[i].grant.peer = static_cast<std::uint32_t>(i);
      this->senders[i].credits = limits.first;
    }
  }
  void report(CreditGrant& grant) {
    senders[grant.peer].credits += std::exchange(grant.unreported, 0);
    ++reports;
  }
  void serve(bool few = false) {
    while (CreditGrant* const grant = control.serve(few)) {
      served.push_back(grant->peer);
      report(*grant);
    }
  }
  void send(Sender& sender) {
    --sender.credits;
    ++sender.arrived;
  }
  void receive(Sender& sender) {
    --sender.arrived;
    if (control.returned(sender.grant)) report(sender.grant);
    serve();
  }
  void keep(Sender& sender) {
    --sender.arrived;
    ++sender.retained;
    SrqFlowControl::retain(sender.grant);
    if (control.retained(sender.grant)) report(sender.grant);
  }
  void release(Sender& sender) {
    --sender.retained;
    SrqFlowControl::release(sender.grant);
    if (control.returned(sender.grant)) report(sender.grant);
    serve();
  }
  void sweep() {
    clock.time = std::max(clock.time, control.next_sweep());
    control.sweep(senders.size(), [&](std::size_t i) -> CreditGrant& { return senders[i].grant; });
    serve(true);
    control.end_sweep(clock.time);
  }
  [[nodiscard]] std::uint32_t granted() const {
    return std::accumulate(senders.begin(), senders.end(), 0u,
                           [](std::uint32_t sum, const auto& s) { return sum + s.grant.granted; });
  }

  HandClock clock;
  SrqFlowControl control;
  std::vector<Sender> senders;
  std::vector<std::uint32_t> served;
  std::uint32_t reports = 0;
};

constexpr SrqFlowControl::Limits kLimits{4, 64, 256, true, SrqFlowControl::Rule::by_demand};
constexpr SrqFlowControl::Limits kSafe{4, 64, 256, true, SrqFlowControl::Rule::safe};

TEST(SrqFlowControl, CreditsDoubleWhileASenderUsesThem) {
  Flow flow(1, kLimits, 256);
  Sender& sender = flow.senders[0];
  EXPECT_FALSE(sender.grant.counted);
  std::uint32_t largest = 0;
  for (int i = 0; i < 1000; ++i) {
    ASSERT_GT(sender.credits, 0u) << i;
    flow.send(sender);
    flow.receive(sender);
    largest = std::max(largest, sender.grant.granted);
  }
  EXPECT_EQ(largest, 64u);
  EXPECT_EQ(sender.grant.target, 64u);
  // Half of 64 at a time.
  const std::uint32_t before = flow.reports;
  for (int i = 0; i < 320; ++i) {
    flow.send(sender);
    flow.receive(sender);
  }
  EXPECT_EQ(flow.reports - before, 10u);
}

TEST(SrqFlowControl, ASenderThatSaysSoGetsMore) {
  Flow flow(1, kLimits, 256);
  Sender& sender = flow.senders[0];
  flow.control.used_last_credit(sender.grant);
  EXPECT_EQ(sender.grant.target, 0u) << "no message of it has arrived";
  flow.send(sender);
  flow.receive(sender);
  const std::uint32_t target = sender.grant.target;
  flow.control.used_last_credit(sender.grant);
  EXPECT_EQ(sender.grant.target, 2 * target);
}

TEST(SrqFlowControl, TheLimitAppliesAfterManyMessagesWithALowQueue) {
  Flow flow(1, kLimits, 16);
  EXPECT_FALSE(flow.control.is_overcommitted());
  Sender& sender = flow.senders[0];
  for (int i = 0; i < 100; ++i) {
    flow.send(sender);
    flow.receive(sender);
  }
  EXPECT_TRUE(flow.control.is_overcommitted()) << "64 credits, 16 receives";
  // One event is not enough, nor are few messages.
  flow.control.set_queue({16, false, false});
  flow.control.low_and_full();
  for (int i = 0; i < 100; ++i) {
    flow.send(sender);
    flow.receive(sender);
  }
  EXPECT_EQ(flow.control.waits(), 0u);
  for (int i = 0; i < 200; ++i) {
    if (sender.credits > 0) flow.send(sender);
    if (sender.arrived > 0) flow.receive(sender);
  }
  flow.control.low_and_full();
  for (int i = 0; i < 200 && flow.control.is_overcommitted(); ++i) {
    if (sender.credits > 0) flow.send(sender);
    if (sender.arrived > 0) flow.receive(sender);
  }
  EXPECT_FALSE(flow.control.is_overcommitted()) << "credits are not granted again beyond it";
}

TEST(SrqFlowControl, OverDatagramsTheLimitAppliesAtOnce) {
  SrqFlowControl::Limits limits = kLimits;
  limits.retries = false;
  Flow flow(1, limits, 16);
  Sender& sender = flow.senders[0];
  flow.control.set_queue({16, false, false});
  flow.send(sender);
  flow.receive(sender);
  flow.control.low_and_full();
  for (int i = 0; i < 500; ++i) {
    if (sender.credits > 0) flow.send(sender);
    if (sender.arrived > 0) flow.receive(sender);
    ASSERT_LE(sender.grant.granted, 12u);  // of 16, four are left for what one poll returns
  }
}

TEST(SrqFlowControl, WhoIsOutOfCreditsIsServedInOrder) {
  Flow flow(8, kSafe, 8);  // 6 are safe
  for (Sender& sender : flow.senders) {
    while (sender.credits > 0) flow.send(sender);
    while (sender.arrived > 0) flow.keep(sender);
  }
  EXPECT_EQ(flow.senders[0].credits, 2u) << "beside the four retained";
  EXPECT_EQ(flow.control.waits(), 7u);
  EXPECT_NE(flow.control.next_sweep(), INT64_MAX);
  EXPECT_EQ(flow.served, std::vector<std::uint32_t>{});
  for (Sender& sender : flow.senders) {
    while (sender.retained > 0) flow.release(sender);
  }
  ASSERT_FALSE(flow.served.empty());
  for (std::uint32_t i = 0; i < flow.served.size(); ++i) EXPECT_EQ(flow.served[i], i + 1);
  EXPECT_LE(flow.granted(), 6u);
}

TEST(SrqFlowControl, CreditsOfSilentPeersAreReclaimed) {
  Flow flow(3, kSafe, 16);  // 12 are safe: three times the first
  for (Sender& sender : flow.senders) {
    flow.send(sender);
    flow.receive(sender);
  }
  Sender& busy = flow.senders[0];
  while (busy.credits > 0) flow.send(busy);
  while (busy.arrived > 1) flow.receive(busy);
  while (busy.credits > 0) flow.send(busy);
  while (busy.arrived > 0) flow.receive(busy);
  for (int i = 0; i < 10 && flow.control.has_waiting(); ++i) flow.sweep();
  EXPECT_GT(busy.credits, 0u);
  EXPECT_EQ(flow.control.next_sweep(), INT64_MAX) << "nobody waits";
  // A message of a silent peer is counted again.
  Sender& silent = flow.senders[1];
  const bool was_reclaimed = silent.grant.uncounted > 0;
  flow.send(silent);
  flow.receive(silent);
  EXPECT_EQ(silent.grant.uncounted, 0u);
  EXPECT_TRUE(was_reclaimed || busy.grant.granted <= 4u);
}

// Each of many has used what it had, and will not use what it gets: credits pass from one to the
// other at the pace of the limit, however many there are.
TEST(SrqFlowControl, SilentPeersThatWereServedDoNotHoldUpManyOthers) {
  constexpr std::size_t kSenders = 2000, kAtATime = 48 / 4;  // 48 of 64 receives are safe
  Flow flow(kSenders, kSafe, 64);
  for (Sender& sender : flow.senders) {
    while (sender.credits > 0) flow.send(sender);
    while (sender.arrived > 0) flow.receive(sender);
  }
  ASSERT_GT(flow.control.waits(), kSenders - kAtATime - 1);
  std::size_t sweeps = 0;
  for (; flow.control.has_waiting() && sweeps < 10 * kSenders; ++sweeps) flow.sweep();
  EXPECT_LE(sweeps, kSenders / kAtATime + 2);
}

TEST(SrqFlowControl, TheCreditsOfALostPeerReachTheOthers) {
  Flow flow(2, kSafe, 8);  // 6 are safe, and the first has them all
  for (Sender& sender : flow.senders) {
    while (sender.credits > 0) flow.send(sender);
    while (sender.arrived > 0) flow.keep(sender);
  }
  ASSERT_EQ(flow.control.waits(), 1u);
  Sender& lost = flow.senders[0];
  SrqFlowControl::close(lost.grant);
  flow.control.forget(lost.grant);
  flow.serve();
  EXPECT_EQ(flow.served, std::vector<std::uint32_t>{1}) << "the lost one is not served";
  EXPECT_FALSE(flow.control.returned(lost.grant));
  EXPECT_EQ(lost.grant.granted, 0u);
}

// Whatever senders and the receiver do: each credit is in one place, what is granted stays within
// the limit, and a sender that has something to send gets to send it.
RC_GTEST_PROP(SrqFlowControlProperty, KeepsItsCounts, ()) {
  const auto senders = *rc::gen::inRange<std::size_t>(1, 12);
  const auto receives = *rc::gen::inRange<std::uint32_t>(1, 80);
  Flow flow(senders, kSafe, receives);
  const std::uint32_t safe = receives - std::min(receives / 4, 16u);
  // The first credits of senders that are not known yet cannot be limited.
  const std::uint32_t most = safe + static_cast<std::uint32_t>(senders) * kSafe.first;
  const auto check = [&] {
    for (const Sender& s : flow.senders) {
      if (!s.grant.counted) continue;
      RC_ASSERT(s.grant.granted == s.credits + s.arrived + s.retained + s.grant.unreported);
      RC_ASSERT(s.grant.granted <= kSafe.most);
    }
    RC_ASSERT(flow.granted() <= most);
  };
  flow.control.set_queue({receives, false, false});  // so the limit does not rise
  const auto steps = *rc::gen::container<std::vector<std::pair<std::uint8_t, std::uint8_t>>>(
      rc::gen::pair(rc::gen::arbitrary<std::uint8_t>(), rc::gen::inRange<std::uint8_t>(0, 4)));
  for (const auto& [who, what] : steps) {
    Sender& sender = flow.senders[who % senders];
    if (what == 0 && sender.credits > 0) flow.send(sender);
    if (what == 1 && sender.arrived > 0) flow.receive(sender);
    if (what == 2 && sender.arrived > 0) flow.keep(sender);
    if (what == 3 && sender.retained > 0) flow.release(sender);
    check();
  }
  for (Sender& sender : flow.senders) {
    for (int sent = 0; sent < 20;) {
      for (Sender& s : flow.senders) {
        while (s.retained > 0) flow.release(s);
        while (s.arrived > 0) flow.receive(s);
      }
      for (int i = 0; i < 8 && sender.credits == 0; ++i) flow.sweep();
      RC_ASSERT(sender.credits > 0u);
      flow.send(sender);
      ++sent;
    }
  }
}

}  // namespace
}  // namespace turnout
