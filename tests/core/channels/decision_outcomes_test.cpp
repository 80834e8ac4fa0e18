// SPDX-License-Identifier: BSD-3-Clause
#include "core/channels/decision_outcomes.h"

#include <gtest/gtest.h>

#include "tests/support/channel_world.h"

namespace turnout {
namespace {

Peer& peer_with_decision(ChannelWorld& world) {
  Peer& peer = world.add_peer();
  DecisionReport decision;
  decision.outcome = "in progress";
  peer.change.make().decision = world.context.decisions.add(decision);
  peer.change.make().requested_at = world.clock.time;
  return peer;
}

TEST(DecisionOutcomes, RecordsWhatBecameOfADecision) {
  ChannelWorld world;
  Peer& peer = peer_with_decision(world);
  world.clock.time += 5000;
  world.outcomes.done(peer);
  EXPECT_EQ(world.context.decisions.kept().back().outcome, "done in 5 us");
  EXPECT_EQ(world.above.count("continue_disconnect"), 1u);
  // The decision has ended: what comes later is not its outcome.
  world.outcomes.decided(peer, "refused by peer");
  EXPECT_EQ(world.context.decisions.kept().back().outcome, "done in 5 us");
}

TEST(DecisionOutcomes, AsksOnceForTheChannelThatTheRingLeadsTo) {
  ChannelWorld world;
  Peer& peer = peer_with_decision(world);
  peer.rx.kind = ChannelKind::dc_rdma;
  peer.change.make().final_channel = ChannelKind::rc_rdma;
  world.outcomes.done(peer);
  EXPECT_EQ(world.above.count("change_channel"), 1u);
  world.outcomes.done(peer);
  EXPECT_EQ(world.above.count("change_channel"), 1u);
}

TEST(DecisionOutcomes, ChargesASetUpOnlyUnderThePolicyThatLearnsFromThem) {
  for (const bool learns : {false, true}) {
    ChannelWorld world;
    Peer& peer = peer_with_decision(world);
    world.context.traits.uses_feedback = learns;
    peer.rx.kind = ChannelKind::rc_rdma;
    world.outcomes.done(peer);
    EXPECT_EQ(peer.change->to_repay, learns ? world.context.costs.setup_rc_processor.value : 0);
  }
}

TEST(DecisionOutcomes, TheLatestSetUpHasAQuarterOfTheWeight) {
  ChannelWorld world;
  EXPECT_EQ(world.outcomes.repaid(), 1);
  world.outcomes.note_set_up(false);
  EXPECT_DOUBLE_EQ(world.outcomes.repaid(), 0.75);
  world.outcomes.note_set_up(false);
  EXPECT_DOUBLE_EQ(world.outcomes.repaid(), 0.5625);
  world.outcomes.note_set_up(true);
  EXPECT_DOUBLE_EQ(world.outcomes.repaid(), 0.671875);
}

TEST(DecisionOutcomes, APeerRepaysItsSetUpByItsMessages) {
  ChannelWorld world;
  Peer& peer = world.add_peer();
  const double saved = selection::cost_model(world.context.costs, 16).saving_dc_rdma;  // a message
  ASSERT_GT(saved, 0);
  peer.rx.kind = ChannelKind::dc_rdma;
  peer.change.make().to_repay = 10 * saved;
  world.outcomes.count_repaid(peer, 4, false);
  EXPECT_NEAR(peer.change->to_repay, 6 * saved, 1e-6);
  while (world.outcomes.repaid() > 1e-300) world.outcomes.note_set_up(false);
  world.outcomes.count_repaid(peer, 7, false);
  EXPECT_EQ(peer.change->to_repay, 0);
  EXPECT_DOUBLE_EQ(world.outcomes.repaid(), 0.25);
}

TEST(DecisionOutcomes, NobodyIsSilentSoSoonAsAtAMessage) {
  ChannelWorld world;
  Peer& peer = world.add_peer();
  peer.rx.kind = ChannelKind::dc_rdma;
  peer.change.make().to_repay = 1000;
  world.outcomes.count_repaid(peer, 0, true);
  EXPECT_EQ(peer.change->to_repay, 1000);
  EXPECT_EQ(world.outcomes.repaid(), 1);
  peer.rx.kind = ChannelKind::dc_sendrecv;
  world.outcomes.count_repaid(peer, 0, true);
  EXPECT_EQ(peer.change->to_repay, 0);
  EXPECT_EQ(world.outcomes.repaid(), 0.75);
}

TEST(DecisionOutcomes, APeerThatFallsSilentDoesNotRepay) {
  ChannelWorld world;
  Peer& peer = world.add_peer();
  peer.rx.kind = ChannelKind::dc_rdma;
  peer.change.make().to_repay = 1000;
  world.outcomes.count_repaid(peer, 0, false);
  EXPECT_EQ(peer.change->to_repay, 0);
  EXPECT_DOUBLE_EQ(world.outcomes.repaid(), 0.75);
}

}  // namespace
}  // namespace turnout
