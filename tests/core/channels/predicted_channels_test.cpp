// SPDX-License-Identifier: BSD-3-Clause
// What the channel selector does with a prediction.
#include <gtest/gtest.h>

#include "core/channels/channel_selector.h"
#include "tests/support/channel_world.h"

namespace turnout {
namespace {

constexpr Nanoseconds kRun = 10'000'000'000;  // ns, of the last one

LastRun run_of(std::initializer_list<std::uint32_t> ranks) {
  LastRun run;
  for (const std::uint32_t rank : ranks) {
    run.sources.push_back(
        {.rank = rank, .messages = 1'000'000, .last = kRun, .active = kRun, .beside = 1'000'000});
  }
  return run;
}

struct PredictingWorld : ChannelWorld {
  explicit PredictingWorld(LastRun last = run_of({3, 5})) {
    context.traits.uses_feedback = context.traits.prepares = true;
    context.settings.policy = "turnout";
    context.settings.xrc = "off";
    const Status status = selector.predict(std::move(last));
    EXPECT_TRUE(status.ok()) << status.text();
    selector.begin(clock.time);
  }
  Peer& peer_of_rank(std::uint32_t rank) {
    Peer& peer = add_peer();
    peer.address.id = std::uint64_t{1} << 63 | rank;
    return peer;
  }
  [[nodiscard]] std::size_t decisions() const { return context.decisions.kept().size(); }
};

TEST(PredictedChannels, AreAskedForWhenTheirSourceIsHeard) {
  PredictingWorld world;
  Peer& peer = world.peer_of_rank(5);
  world.selector.on_wired_up(peer);
  EXPECT_EQ(peer.rx.state, ReceiveState::preparing);
  EXPECT_EQ(peer.change->wanted, ChannelKind::dc_rdma);
  ASSERT_EQ(world.decisions(), 1u);
  EXPECT_NE(world.context.decisions.kept()[0].reason.find("TURNOUT_PREDICTION"), std::string::npos);
  EXPECT_NE(world.context.decisions.kept()[0].reason.find("1000000 messages"), std::string::npos);
  world.selector.on_wired_up(peer);  // its wire-up request may come again
  EXPECT_EQ(world.decisions(), 1u);
}

TEST(PredictedChannels, OfOthersAreNot) {
  PredictingWorld world;
  Peer& other = world.peer_of_rank(4);
  world.selector.on_wired_up(other);
  Peer& lost = world.peer_of_rank(3);
  lost.lost = true;
  world.selector.on_wired_up(lost);
  EXPECT_EQ(world.decisions(), 0u);
  EXPECT_EQ(other.rx.state, ReceiveState::steady);
}

TEST(PredictedChannels, WithoutAPredictionNothingIsAsked) {
  ChannelWorld world;
  world.context.traits.uses_feedback = true;
  world.selector.begin(world.clock.time);
  Peer& peer = world.add_peer();
  world.selector.on_wired_up(peer);
  EXPECT_FALSE(world.selector.predicts());
  EXPECT_EQ(peer.rx.state, ReceiveState::steady);
}

TEST(PredictedChannels, TheirSourcesAreAccountedFor) {
  const auto statistics = [](const ChannelWorld& world) {
    return world.context.account.line(MemoryKind::statistics).now;
  };
  PredictingWorld world;
  EXPECT_GE(statistics(world), 2 * sizeof(LastRun::Source));
  world.selector.on_wired_up(world.peer_of_rank(5));
  EXPECT_EQ(statistics(world), 2 * sizeof(selection::Prediction::Source));
  PredictingWorld worthless([] {
    LastRun run = run_of({3});
    run.sources[0].messages = run.sources[0].beside = 1;
    return run;
  }());
  worthless.selector.on_wired_up(worthless.peer_of_rank(3));
  EXPECT_EQ(statistics(worthless), 0u);
  EXPECT_FALSE(worthless.selector.predicts());
}

TEST(PredictedChannels, ABudgetThatHasNoRoomForThemSaysSo) {
  Settings settings = Settings::defaults();
  settings.memory_budget = 64;
  ChannelWorld world(settings);
  EXPECT_EQ(world.selector.predict(run_of({1, 2, 3})).code(), Code::over_budget);
  EXPECT_FALSE(world.selector.predicts());
}

// A ring that waits for its source is no business of the ordinary decisions, until it has repaid.
TEST(PredictedChannels, AreJudgedByTheirMessagesOnceTheyHaveRepaid) {
  PredictingWorld world;
  Peer& peer = world.peer_of_rank(5);
  world.selector.on_wired_up(peer);
  ASSERT_TRUE(peer.change->predicted);
  peer.rx.state = ReceiveState::steady;
  peer.rx.kind = ChannelKind::dc_rdma;
  const auto decide = [&](std::uint32_t messages) {
    peer.rx.window = messages;
    world.context.delivered += messages;
    world.clock.time = world.selector.next_decision();
    world.selector.run(world.clock.time);
  };
  decide(1);
  EXPECT_TRUE(peer.change->predicted);
  EXPECT_EQ(peer.rx.verdict, selection::Reason::kept);
  peer.rx.state = ReceiveState::steady;
  decide(1'000'000);
  EXPECT_FALSE(world.outcomes.repaid() < 1);
}

}  // namespace
}  // namespace turnout
