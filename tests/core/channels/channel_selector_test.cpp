// SPDX-License-Identifier: BSD-3-Clause
#include "core/channels/channel_selector.h"

#include <gtest/gtest.h>

#include "tests/support/channel_world.h"

namespace turnout {
namespace {

// A policy that asks for a connection at a peer's first message.
struct ConnectingWorld : ChannelWorld {
  ConnectingWorld() { context.traits.first_message = ChannelKind::rc_srq; }
  Peer& peer = add_peer();
};

TEST(ChannelSelector, AsksForAConnectionAtTheFirstMessage) {
  ConnectingWorld world;
  world.selector.on_message_counted(world.peer);
  EXPECT_EQ(world.peer.rx.state, ReceiveState::preparing);
  ASSERT_EQ(world.context.decisions.kept().size(), 1u);
  EXPECT_EQ(world.context.decisions.kept()[0].to, ChannelKind::rc_srq);
  EXPECT_EQ(world.context.decisions.kept()[0].outcome, "in progress");
  world.selector.on_message_counted(world.peer);
  EXPECT_EQ(world.context.decisions.kept().size(), 1u);
  EXPECT_EQ(world.jobs->held.size(), 1u);
}

TEST(ChannelSelector, ARefusedPeerIsNotAskedBeforeItsTime) {
  ConnectingWorld world;
  world.peer.change.make().refused_until = 100;
  world.clock.time = 99;
  world.selector.on_message_counted(world.peer);
  EXPECT_EQ(world.peer.rx.state, ReceiveState::steady);
  world.clock.time = 100;
  world.selector.on_message_counted(world.peer);
  EXPECT_EQ(world.peer.rx.state, ReceiveState::preparing);
}

TEST(ChannelSelector, QueuesForASlotWhereConnectionsAreEvicted) {
  ConnectingWorld world;
  world.limit_connections(1);
  world.connect(world.add_peer());
  world.selector.on_message_counted(world.peer);
  EXPECT_TRUE(world.peer.connection->eviction.waits_for_slot);
  EXPECT_TRUE(world.context.decisions.kept().empty());
}

TEST(ChannelSelector, AddsARingAfterManyMessages) {
  ConnectingWorld world;
  ASSERT_TRUE(world.rc.want_rc(world.peer).ok());
  world.peer.rx.kind = ChannelKind::rc_srq;
  world.peer.state.make().rx.ring = std::make_unique<RingReceiver>();  // no adapter makes one
  world.context.traits.ring_threshold = 3;
  for (int n = 0; n < 2; ++n) world.peer.rx.carried.count(1);
  world.selector.on_message_counted(world.peer);
  EXPECT_TRUE(world.context.decisions.kept().empty());
  world.peer.rx.carried.count(1);
  world.selector.on_message_counted(world.peer);
  ASSERT_EQ(world.context.decisions.kept().size(), 1u);
  EXPECT_EQ(world.peer.change->wanted, ChannelKind::rc_rdma);
  EXPECT_EQ(world.peer.change->fallback, ChannelKind::rc_srq);
}

TEST(ChannelSelector, WaitsAnIntervalAfterItCouldNotConnect) {
  ConnectingWorld world;
  world.context.settings.max_active_rc = world.context.settings.rc_pool = 0;
  world.selector.on_message_counted(world.peer);
  EXPECT_EQ(world.peer.rx.state, ReceiveState::steady);
  EXPECT_EQ(world.peer.change->refused_until, world.clock.time + world.context.settings.interval);
  EXPECT_EQ(world.context.decisions.kept().back().outcome.rfind("not done: ", 0), 0u);
}

TEST(ChannelSelector, DoesNotChangeAPeerThatRecoversOrIsLost) {
  ConnectingWorld world;
  world.peer.lost = true;
  world.selector.change_channel(world.peer, ChannelKind::rc_srq, ChannelKind::dc_sendrecv, "", 0);
  world.peer.lost = false;
  world.peer.connect().recovery = std::make_unique<Recovery>();
  world.selector.change_channel(world.peer, ChannelKind::rc_srq, ChannelKind::dc_sendrecv, "", 0);
  world.peer.connect().recovery.reset();
  // A ring over DC has no queue pair that messages could use.
  world.peer.rx.kind = ChannelKind::dc_rdma;
  world.selector.change_channel(world.peer, ChannelKind::rc_srq, ChannelKind::dc_sendrecv, "", 0);
  EXPECT_TRUE(world.context.decisions.kept().empty());
}

TEST(ChannelSelector, ReportsFeedbackToPeersThatItSentTo) {
  ChannelWorld world;
  world.selector.begin(world.clock.time);
  world.context.traits.uses_feedback = true;
  world.context.settings.xrc = "off";
  Peer& receiver = world.add_peer();
  const Peer& silent = world.add_peer();
  receiver.tx.sent.sent = 10;
  receiver.tx.sent.switched = 5;
  world.clock.time = world.selector.next_decision();
  world.selector.run(world.clock.time);
  const auto feedback = world.sent(receiver, wire::Control::feedback);
  ASSERT_EQ(feedback.size(), 1u);
  EXPECT_EQ(feedback[0].ring_credits, 500u);
  EXPECT_TRUE(world.sent(silent, wire::Control::feedback).empty());
  // The same again is no news.
  receiver.tx.sent.sent = 10;
  receiver.tx.sent.switched = 5;
  world.clock.time = world.selector.next_decision();
  world.selector.run(world.clock.time);
  EXPECT_EQ(world.sent(receiver, wire::Control::feedback).size(), 1u);
}

struct AccountsWorld : ChannelWorld {
  AccountsWorld() {
    context.traits.uses_feedback = context.traits.prepares = true;
    context.settings.policy = "turnout";
    context.settings.xrc = "off";
    selector.begin(clock.time);
  }
};

// Of a source on a slow channel, whose messages pay for a better one.
TEST(ChannelSelector, AFullAccountIsLookedAtBeforeTheIntervalEnds) {
  AccountsWorld world;
  Peer& peer = world.add_peer();
  const auto count = [&](std::uint32_t messages) {
    for (std::uint32_t i = 0; i < messages && !world.selector.is_due(world.clock.time); ++i) {
      ++peer.rx.window;
      world.selector.on_message_counted(peer);
    }
    return peer.rx.window;
  };
  const std::uint32_t account = count(1'000'000);
  ASSERT_TRUE(world.selector.is_due(world.clock.time));
  EXPECT_LT(account, 1000u);
  ++world.clock.time;
  world.selector.run(world.clock.time);
  EXPECT_EQ(peer.rx.window, 0u);
  EXPECT_FALSE(world.selector.is_due(world.clock.time));
  // It stayed where it is, so its account is larger the next time.
  ASSERT_EQ(peer.rx.state, ReceiveState::steady);
  EXPECT_GT(count(1'000'000), account);
}

// The share of set-ups that repay grows again by what a declined one would have saved.
TEST(ChannelSelector, ADeclinedSourceThatWouldHaveRepaidCounts) {
  AccountsWorld world;
  Peer& peer = world.add_peer();
  for (int n = 0; n < 10; ++n) world.outcomes.note_set_up(false);
  const double before = world.outcomes.repaid();
  const auto decide = [&](std::uint32_t messages, selection::Reason verdict) {
    peer.rx.verdict = verdict;
    peer.rx.window = messages;
    world.clock.time = world.selector.next_decision();
    world.selector.run(world.clock.time);
    return world.outcomes.repaid();
  };
  EXPECT_EQ(decide(1'000'000, selection::Reason::too_few_messages), before);
  const double after = decide(1'000'000, selection::Reason::not_certain);
  EXPECT_GT(after, before);
  EXPECT_EQ(decide(1, selection::Reason::not_certain), after);
  EXPECT_LT(decide(0, selection::Reason::not_certain), after);
}

TEST(ChannelSelector, OtherPoliciesHaveNoAccounts) {
  ChannelWorld world;
  world.selector.begin(world.clock.time);
  Peer& peer = world.add_peer();
  peer.rx.window = UINT32_MAX - 1;
  world.selector.on_message_counted(peer);
  EXPECT_FALSE(world.selector.is_due(world.clock.time));
}

TEST(ChannelSelector, TakesFeedbackAsShares) {
  ChannelWorld world;
  Peer& peer = world.add_peer();
  auto message = ChannelWorld::message(wire::Control::feedback);
  message.credits = 250;
  message.ring_credits = 1000;
  message.ring_entries = 7;
  message.qp_id = 70'000;
  message.refusal = wire::Refusal::budget;
  world.selector.on_feedback(peer, message);
  const selection::SenderFeedback feedback = peer.rx.feedback.of_sender();
  EXPECT_FLOAT_EQ(feedback.busy, 0.25F);
  EXPECT_FLOAT_EQ(feedback.switched, 1);
  EXPECT_EQ(feedback.active_rc, 7u);
  EXPECT_EQ(feedback.here, UINT16_MAX);
  EXPECT_TRUE(feedback.full);
}

TEST(ChannelSelector, EveryIntervalBeginsWithoutMessages) {
  ChannelWorld world;
  world.context.settings.policy = "static:dc-sendrecv";
  Peer& peer = world.add_peer();
  peer.rx.window = 5;
  peer.change.make().to_repay = 1;
  world.clock.time = world.selector.next_decision();
  world.selector.run(world.clock.time);
  EXPECT_EQ(peer.rx.window, 0u);
  EXPECT_EQ(peer.change->to_repay, 0);  // counted once an interval
}

}  // namespace
}  // namespace turnout
