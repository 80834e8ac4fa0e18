// SPDX-License-Identifier: BSD-3-Clause
#include "core/channels/channel_negotiator.h"

#include <gtest/gtest.h>

#include "tests/support/channel_world.h"

namespace turnout {
namespace {

// A peer that was asked for a connection without a ring, which an idle queue pair serves.
Peer& asked_peer(ChannelWorld& world) {
  world.add_pooled_rc();
  Peer& peer = world.add_peer();
  EXPECT_TRUE(
      world.negotiator.request_channel(peer, ChannelKind::rc_srq, world.context.default_channel)
          .ok());
  return peer;
}
wire::ControlMessage request_of(ChannelKind kind) {
  auto message = ChannelWorld::message(wire::Control::request, 3, kind);
  message.qp_id = 8;
  message.ring_entries = 16;
  message.entry_units = 512 / Address::kSizeUnit;
  return message;
}
wire::ControlMessage refusal_of(const Peer& peer, wire::Refusal why) {
  auto message = ChannelWorld::message(wire::Control::refuse, peer.change->request);
  message.refusal = why;
  return message;
}
// Why the peer's only refused request was refused.
wire::Refusal answer_to(ChannelWorld& world, Peer& peer, const wire::ControlMessage& request) {
  world.control.pending_control().clear();
  world.negotiator.on_request(peer, request);
  const auto answers = world.sent(peer, wire::Control::refuse);
  if (answers.size() != 1) return wire::Refusal::none;
  EXPECT_EQ(answers[0].request, request.request);
  return answers[0].refusal;
}

TEST(ChannelNegotiator, AsksWithItsQueuePair) {
  ChannelWorld world;
  const Peer& peer = asked_peer(world);
  EXPECT_EQ(peer.rx.state, ReceiveState::requested);
  const auto requests = world.sent(peer, wire::Control::request);
  ASSERT_EQ(requests.size(), 1u);
  EXPECT_EQ(requests[0].kind, static_cast<std::uint8_t>(ChannelKind::rc_srq));
  EXPECT_EQ(requests[0].request, 1u);
  EXPECT_EQ(requests[0].qp_id, peer.connection->rc->qp_id());
}

TEST(ChannelNegotiator, AsksNobodyBeforeTheWireUp) {
  ChannelWorld world;
  Peer& peer = world.add_peer();
  peer.remote_index = wire::kUnknownIndex;
  EXPECT_EQ(
      world.negotiator.request_channel(peer, ChannelKind::rc_srq, world.context.default_channel)
          .code(),
      Code::again);
  EXPECT_EQ(peer.rx.state, ReceiveState::steady);
}

TEST(ChannelNegotiator, ARefusedRequestWaitsForSomeDecisions) {
  ChannelWorld world;
  Peer& peer = asked_peer(world);
  peer.change.make().decision = world.context.decisions.add({});
  world.negotiator.on_refuse(peer, refusal_of(peer, wire::Refusal::budget));
  EXPECT_EQ(peer.rx.state, ReceiveState::steady);
  EXPECT_EQ(peer.change->refused_until,
            world.clock.time + kDecisionsRefused * world.context.settings.interval);
  EXPECT_EQ(world.context.decisions.kept().back().outcome,
            "refused by peer: no room in its memory budget");
  EXPECT_FALSE(peer.connection->has_rc());  // the queue pair goes back
}

TEST(ChannelNegotiator, ARefusedRequestWaitsForASlotOnlyWhereConnectionsAreEvicted) {
  ChannelWorld world;
  world.limit_connections(4);
  Peer& peer = asked_peer(world);
  world.negotiator.on_refuse(peer, refusal_of(peer, wire::Refusal::limit));
  EXPECT_EQ(peer.change->refused_until, world.clock.time + world.eviction.slot_timeout());
}

TEST(ChannelNegotiator, IgnoresAnswersToEarlierRequests) {
  ChannelWorld world;
  Peer& peer = asked_peer(world);
  auto refusal = refusal_of(peer, wire::Refusal::budget);
  --refusal.request;
  world.negotiator.on_refuse(peer, refusal);
  auto accept = ChannelWorld::message(wire::Control::accept, peer.change->request - 1);
  accept.qp_id = 8;
  world.negotiator.on_accept(peer, accept);
  EXPECT_EQ(peer.rx.state, ReceiveState::requested);
  ++accept.request;
  world.negotiator.on_accept(peer, accept);
  EXPECT_EQ(peer.rx.state, ReceiveState::connecting);
  ASSERT_EQ(world.jobs->held.size(), 1u);
  EXPECT_EQ(static_cast<RcJob&>(world.jobs->first()).remote_qp_id, 8u);
}

TEST(ChannelNegotiator, AConnectionThatFailsIsClosed) {
  ChannelWorld world;
  Peer& peer = asked_peer(world);
  auto accept = ChannelWorld::message(wire::Control::accept, peer.change->request);
  accept.qp_id = 8;
  world.negotiator.on_accept(peer, accept);
  world.jobs->end_first({Code::system, "no path"});
  EXPECT_TRUE(world.negotiator.pump_jobs());
  EXPECT_EQ(world.sent(peer, wire::Control::closed).size(), 1u);
  EXPECT_EQ(peer.rx.state, ReceiveState::steady);
  EXPECT_FALSE(peer.connection->has_rc());
}

// Both ends connect at the same time.
struct OverlappingWorld : ChannelWorld {
  OverlappingWorld() { context.traits.uses_feedback = context.traits.prepares = true; }
  // A pooled queue pair that is being connected, for the request of a peer that is told of it.
  Peer& accepted_peer() {
    add_pooled_rc();
    Peer& peer = add_peer();
    auto request = message(wire::Control::request, 3, ChannelKind::rc_srq);
    request.qp_id = 8;
    negotiator.on_request(peer, request);
    return peer;
  }
};

TEST(ChannelNegotiator, AcceptsBeforeItConnectsAndDoesNotSwitchBefore) {
  OverlappingWorld world;
  Peer& peer = world.accepted_peer();
  EXPECT_EQ(world.sent(peer, wire::Control::accept).size(), 1u);
  ASSERT_EQ(world.jobs->held.size(), 1u);
  EXPECT_EQ(static_cast<RcJob&>(world.jobs->first()).remote_qp_id, 8u);
  world.negotiator.on_ready(peer, ChannelWorld::message(wire::Control::ready, 3));
  EXPECT_EQ(peer.tx.state, SendState::accepted);
  EXPECT_TRUE(peer.change->answer.ready);
  EXPECT_TRUE(world.sent(peer, wire::Control::switched).empty());
}

TEST(ChannelNegotiator, AnAcceptSaysWhereCreditsMayBeWritten) {
  OverlappingWorld world;
  world.add_pooled_rc();
  alignas(64) std::uint64_t word = 0;
  world.resources.rc_pool.back()->credit_word = {reinterpret_cast<std::byte*>(&word), 44};
  Peer& asks = world.add_peer();
  auto request = ChannelWorld::message(wire::Control::request, 3, ChannelKind::rc_srq);
  request.qp_id = 8;
  world.negotiator.on_request(asks, request);
  const auto accepts = world.sent(asks, wire::Control::accept);
  ASSERT_EQ(accepts.size(), 1u);
  EXPECT_EQ(accepts[0].ring_address, reinterpret_cast<std::uint64_t>(&word));
  EXPECT_EQ(accepts[0].ring_rkey, 44u);
  // Its receiver keeps it, unless its policy sends messages.
  for (const bool writes : {false, true}) {
    world.context.traits.writes_credits = false;  // no adapter makes the word
    world.add_pooled_rc();
    world.context.traits.writes_credits = writes;
    Peer& peer = world.add_peer();
    ASSERT_TRUE(
        world.negotiator.request_channel(peer, ChannelKind::rc_srq, world.context.default_channel)
            .ok());
    auto accept = ChannelWorld::message(wire::Control::accept, peer.change->request);
    accept.qp_id = 8;
    accept.ring_address = 0x7000;
    accept.ring_rkey = 45;
    world.negotiator.on_accept(peer, accept);
    EXPECT_EQ(peer.connection->credits_rkey, writes ? 45u : 0u);
    EXPECT_EQ(peer.connection->credits_at, 0x7000u);
  }
}

TEST(ChannelNegotiator, RefusesAfterItAcceptedWhatItCannotConnect) {
  OverlappingWorld world;
  Peer& peer = world.accepted_peer();
  world.negotiator.on_ready(peer, ChannelWorld::message(wire::Control::ready, 3));
  world.jobs->end_first({Code::system, "no path"});
  EXPECT_TRUE(world.negotiator.pump_jobs());
  const auto refusals = world.sent(peer, wire::Control::refuse);
  ASSERT_EQ(refusals.size(), 1u);
  EXPECT_EQ(refusals[0].request, 3u);
  EXPECT_EQ(peer.tx.state, SendState::steady);
  EXPECT_FALSE(peer.tx.uses_rc);
}

TEST(ChannelNegotiator, ARefusalAfterTheAcceptEndsTheRequest) {
  OverlappingWorld world;
  Peer& peer = asked_peer(world);
  auto accept = ChannelWorld::message(wire::Control::accept, peer.change->request);
  accept.qp_id = 8;
  world.negotiator.on_accept(peer, accept);
  world.negotiator.on_refuse(peer, refusal_of(peer, wire::Refusal::device));
  EXPECT_EQ(peer.rx.state, ReceiveState::steady);
  world.jobs->end_first({Code::system, "no path"});
  EXPECT_TRUE(world.negotiator.pump_jobs());
  EXPECT_EQ(peer.connection->rc, nullptr);  // nobody uses it
  // After a set-up's time first, then after twice as long.
  EXPECT_EQ(peer.change->refused_until, world.clock.time + 1000);
}

TEST(ChannelNegotiator, RefusesARequestOutOfTurnWithItsReason) {
  ChannelWorld world;
  Peer& peer = world.add_peer();
  for (const SendState state : {SendState::flushing, SendState::preparing, SendState::accepted}) {
    peer.tx.state = state;
    EXPECT_EQ(answer_to(world, peer, request_of(ChannelKind::rc_rdma)), wire::Refusal::busy);
  }
  peer.tx.state = SendState::steady;
  peer.connect().eviction.disconnecting = true;
  EXPECT_EQ(answer_to(world, peer, request_of(ChannelKind::rc_rdma)), wire::Refusal::disconnecting);
  peer.connect().eviction.disconnecting = false;
  world.make_rc(peer);
  EXPECT_EQ(answer_to(world, peer, request_of(ChannelKind::xrc_rdma)), wire::Refusal::other);
  world.context.closing = true;
  EXPECT_EQ(answer_to(world, peer, request_of(ChannelKind::rc_rdma)), wire::Refusal::busy);
  EXPECT_EQ(world.negotiator.refusals(), 6u);
}

TEST(ChannelNegotiator, RefusesARequestThatNamesNoUsableRingOrQueuePair) {
  ChannelWorld world;
  Peer& peer = world.add_peer();
  auto request = request_of(ChannelKind::dc_rdma);
  request.ring_entries = 0;
  EXPECT_EQ(answer_to(world, peer, request), wire::Refusal::device);
  request.ring_entries = kMaxRingEntries + 1;
  EXPECT_EQ(answer_to(world, peer, request), wire::Refusal::device);
  request = request_of(ChannelKind::rc_rdma);
  request.qp_id = 0;
  EXPECT_EQ(answer_to(world, peer, request), wire::Refusal::device);
  EXPECT_EQ(answer_to(world, peer, request_of(static_cast<ChannelKind>(99))),
            wire::Refusal::device);
  EXPECT_EQ(peer.tx.kind, ChannelKind::dc_sendrecv);
}

TEST(ChannelNegotiator, WritesToARingOverDcAtOnce) {
  ChannelWorld world;
  Peer& peer = world.add_peer();
  peer.tx.sequence = 12;
  world.negotiator.on_request(peer, request_of(ChannelKind::dc_rdma));
  EXPECT_EQ(peer.tx.kind, ChannelKind::dc_rdma);
  EXPECT_EQ(peer.state->tx.ring.credits, 16u);
  const auto switched = world.sent(peer, wire::Control::switched);
  ASSERT_EQ(switched.size(), 1u);
  EXPECT_EQ(switched[0].last_sequence, 11u);
}

TEST(ChannelNegotiator, OffersTheRingOverDcWhereTheLimitRefusesRc) {
  ChannelWorld world;
  world.context.settings.max_active_rc = 0;
  Peer& peer = world.add_peer();
  auto request = request_of(ChannelKind::rc_rdma);
  EXPECT_EQ(answer_to(world, peer, request), wire::Refusal::limit);
  request.fallback = static_cast<std::uint8_t>(ChannelKind::dc_rdma);
  world.negotiator.on_request(peer, request);
  const auto switched = world.sent(peer, wire::Control::switched);
  ASSERT_EQ(switched.size(), 1u);
  EXPECT_EQ(switched[0].kind, static_cast<std::uint8_t>(ChannelKind::dc_rdma));
  EXPECT_EQ(switched[0].refusal, wire::Refusal::limit);
}

TEST(ChannelNegotiator, KeepsTheOldChannelUntilEverythingOnItHasArrived) {
  ChannelWorld world;
  Peer& peer = world.add_peer();
  world.connect(peer);
  peer.rx.sequence = 5;
  world.negotiator.request_switch_back(peer, ChannelKind::dc_sendrecv);
  auto switched = ChannelWorld::message(wire::Control::switched, peer.change->request);
  switched.last_sequence = 5;
  world.negotiator.on_switched(peer, switched);
  EXPECT_EQ(peer.rx.state, ReceiveState::draining);
  EXPECT_EQ(peer.rx.kind, ChannelKind::rc_srq);
  EXPECT_TRUE(world.sent(peer, wire::Control::closed).empty());
  peer.rx.sequence = 6;
  peer.state.make().rx.reads_over_rc = 1;  // a read of ours
  world.negotiator.finish_drain(peer);
  EXPECT_EQ(peer.rx.state, ReceiveState::draining);
  peer.state.make().rx.reads_over_rc = 0;
  world.negotiator.finish_drain(peer);
  EXPECT_EQ(peer.rx.state, ReceiveState::steady);
  EXPECT_EQ(peer.rx.kind, ChannelKind::dc_sendrecv);
  EXPECT_EQ(world.sent(peer, wire::Control::closed).size(), 1u);
  EXPECT_FALSE(peer.connection->has_rc());
}

TEST(ChannelNegotiator, APairUsesEitherAQueuePairOrXrc) {
  ChannelWorld world;
  Peer& peer = world.add_peer();
  EXPECT_FALSE(ChannelNegotiator::excludes(peer, ChannelKind::rc_rdma));
  EXPECT_FALSE(ChannelNegotiator::excludes(peer, ChannelKind::xrc_rdma));
  peer.rx.state = ReceiveState::requested;
  peer.change.make().wanted = ChannelKind::xrc_rdma;
  EXPECT_TRUE(ChannelNegotiator::excludes(peer, ChannelKind::rc_rdma));
  EXPECT_FALSE(ChannelNegotiator::excludes(peer, ChannelKind::dc_rdma));
  world.make_rc(peer);
  EXPECT_TRUE(ChannelNegotiator::excludes(peer, ChannelKind::xrc_rdma));
}

}  // namespace
}  // namespace turnout
