// SPDX-License-Identifier: BSD-3-Clause
#include "sim/runtime/rank_environment.h"

#include <gtest/gtest.h>

#include "sim/runtime/rank_operations.h"
#include "tests/provider/loopback_endpoint.h"
#include "tests/sim/runtime/fake_world.h"

namespace turnout::sim {
namespace {

Options nodes_of_four() {
  Options options;
  options.ranks = 64;
  options.ranks_per_node = 4;
  return options;
}

TEST(RankEnvironment, SettingsAreThoseOfTheOptions) {
  Options options = nodes_of_four();
  options.settings = {{"policy", "rc-rdma-od"}};
  const auto settings = rank_settings(options);
  ASSERT_TRUE(settings) << settings.status().text();
  EXPECT_EQ(settings.value().ranks.policy, "rc-rdma-od");
  EXPECT_EQ(settings.value().ranks.node_processes, 4u);
  options.settings = {{"policy", "none of them"}};
  EXPECT_EQ(rank_settings(options).status().code(), Code::invalid);
}

TEST(RankEnvironment, DataServersHaveRoomForEveryone) {
  Options options = nodes_of_four();
  options.data_servers = true;
  options.settings = {{"max_conn", "8"}};
  const auto settings = rank_settings(options);
  ASSERT_TRUE(settings) << settings.status().text();
  EXPECT_EQ(settings.value().ranks.max_conn, 8u);
  EXPECT_EQ(settings.value().servers.max_conn, 0u);
  EXPECT_EQ(settings.value().servers.max_active_rc, 64u);
}

TEST(RankEnvironment, OnlyDataServersGetConnections) {
  Options options = nodes_of_four();
  EXPECT_FALSE(policy_of(options).first_channel);
  options.data_servers = true;
  const PolicyOverride policy = policy_of(options);
  EXPECT_TRUE(policy.waits_for_connections);
  EXPECT_EQ(policy.first_channel(5, 4, ChannelKind::rc_rdma), ChannelKind::rc_rdma);
  EXPECT_EQ(policy.first_channel(8, 5, ChannelKind::rc_rdma), ChannelKind::rc_rdma);
  EXPECT_EQ(policy.first_channel(5, 6, ChannelKind::rc_rdma), ChannelKind::dc_sendrecv);
}

TEST(RankEnvironment, AChannelOfTheOptionsIsChosenByRank) {
  Options options = nodes_of_four();
  options.first_channel = [](std::uint32_t source, std::uint32_t destination) {
    return source < destination ? ChannelKind::rc_rdma : ChannelKind::dc_rdma;
  };
  const std::uint64_t high = std::uint64_t{0xabcd} << 40;  // of an id that is not the rank
  const auto choose = policy_of(options).first_channel;
  EXPECT_EQ(choose(high | 1, 2, ChannelKind::dc_sendrecv), ChannelKind::rc_rdma);
  EXPECT_EQ(choose(2, high | 1, ChannelKind::dc_sendrecv), ChannelKind::dc_rdma);
}

TEST(RankEnvironment, EndpointsAreToldHowManyPeersTheyHave) {
  const Options options = nodes_of_four();
  FakeWorld world;
  RankScheduler scheduler(
      world, 3, [](void*) {}, nullptr);
  RankEnvironment environment(options, world, rank_settings(options).value());
  const auto endpoint = environment.open(3, scheduler);
  ASSERT_TRUE(endpoint);
  EXPECT_EQ(static_cast<testing::LoopbackEndpoint&>(*endpoint.value()).expected_peers, 64u);
  testing::faults().create = {Code::no_device, "none"};
  EXPECT_EQ(environment.open(3, scheduler).status().code(), Code::no_device);
  testing::faults().reset();
}

}  // namespace
}  // namespace turnout::sim
