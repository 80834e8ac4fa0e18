// SPDX-License-Identifier: BSD-3-Clause
// The NWChem-like program over the real core: the array's sums are right, whatever carries the
// operations and whatever the network loses.
#include <gtest/gtest.h>

#include "sim/formats/profile_file.h"
#include "sim/runtime/simulation.h"
#include "sim/workloads/nwchem.h"

namespace turnout::sim {
namespace {

NwchemShape small_shape() {
  NwchemShape shape;
  shape.tasks = 300;
  shape.iterations = 3;
  shape.tiles = 8;
  shape.reach = 2;
  shape.far = 200;
  shape.bytes = 5000;
  shape.neighbours = 1;
  shape.halo = 20'000;
  shape.reduced = 8;
  shape.work = 20'000;
  return shape;
}

// Sums, and that each task is taken once, are checked by the program.
void expect_right(const std::string& policy, bool faults, std::uint64_t seed) {
  const NwchemShape shape = small_shape();
  const auto counts = std::make_shared<NwchemCounts>();
  Options options;
  options.ranks = 10;
  options.ranks_per_node = 2;
  options.seed = seed;
  options.profile = std::move(find_profile("connect-ib")).value().profile;
  options.settings = {{"policy", policy}};
  options.keep_partners = true;
  if (faults) {
    options.profile.fault_loss = options.profile.fault_duplicate = 10'000;
    options.profile.fault_reorder = 100'000;
  }
  const Program program = make_nwchem(shape, {options.ranks, options.ranks_per_node, seed},
                                      std::make_shared<Phases>(), counts);
  const Result<Outcome> outcome = run(options, program);
  ASSERT_TRUE(outcome.ok()) << policy << ", seed " << seed << ": " << outcome.status().text();
  EXPECT_EQ(counts->tasks, 300u);
  // And the barriers': 4 rounds in each.
  EXPECT_EQ(outcome.value().messages, counts->messages + 3 * 4 * 10);
  EXPECT_EQ(outcome.value().partners.size(), 10u);
  EXPECT_EQ(outcome.value().world.qps_alive, 0u);
  EXPECT_EQ(outcome.value().world.regions_alive, 0u);
}

// ACTS's mode: processes have a limit, their data servers none; connections are to servers only.
TEST(DataServers, HaveNoLimitAndAllConnections) {
  constexpr std::uint32_t kRanks = 12, kPerNode = 3;
  Options options;
  options.ranks = kRanks;
  options.ranks_per_node = kPerNode;
  options.data_servers = true;
  options.profile = std::move(find_profile("connect-ib")).value().profile;
  options.settings = {{"policy", "rc-rdma-od"},
                      {"default_transport", "ud"},
                      {"max_conn", "2"},
                      {"eviction", "lru"},
                      {"interval", "5ms"}};
  const auto counts = std::make_shared<NwchemCounts>();
  const Program program = make_nwchem(small_shape(), {kRanks, kPerNode, options.seed},
                                      std::make_shared<Phases>(), counts);
  const Result<Outcome> outcome = run(options, program);
  ASSERT_TRUE(outcome.ok()) << outcome.status().text();
  EXPECT_EQ(counts->tasks, 300u);
  const Clients& clients = outcome.value().clients;
  EXPECT_EQ(clients.ranks, kRanks - kRanks / kPerNode);
  EXPECT_EQ(clients.rc_peak, 2u);
  EXPECT_GT(clients.made, 2 * clients.ranks);
  EXPECT_GT(clients.queue_pairs, 0u);
  EXPECT_GT(outcome.value().connections.tear_downs, 0u);
  std::uint64_t of_servers = 0;
  for (std::uint32_t id = 0; id < kRanks; ++id) {
    const EndpointReport& report = outcome.value().reports[id];
    const bool serves = id % kPerNode == 0;
    if (serves) {
      EXPECT_EQ(report.connections.tear_downs, 0u) << id;
      of_servers = std::max(of_servers, report.rc_queue_pairs_peak);
      continue;
    }
    for (const PeerReport& peer : report.peers) {
      for (const ChannelSpan& span : peer.receive.spans) {
        if (over_connection(span.channel)) {
          EXPECT_EQ((peer.endpoint & 0xffffff) % kPerNode, 0u) << id;  // the rank
        }
      }
    }
  }
  EXPECT_GT(of_servers, 2u);
}

class NwchemRun : public testing::TestWithParam<const char*> {};

TEST_P(NwchemRun, HasTheRightSums) {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    expect_right(GetParam(), false, seed);
    expect_right(GetParam(), true, seed);
  }
}

INSTANTIATE_TEST_SUITE_P(Policies, NwchemRun,
                         testing::Values("turnout", "aqps", "rc-rdma-od", "dc-rdma-od",
                                         "static:dc-sendrecv"),
                         [](const auto& info) {
                           std::string name(info.param);
                           for (char& c : name) {
                             if (c == '-' || c == ':') c = '_';
                           }
                           return name;
                         });

}  // namespace
}  // namespace turnout::sim
