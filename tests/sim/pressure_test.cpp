// SPDX-License-Identifier: BSD-3-Clause
// The workloads that strain one side, on the real core and the modelled adapter: what hides behind
// computation under each way of large messages, and that a flood keeps to the budget.
#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "base/settings.h"
#include "sim/formats/profile_file.h"
#include "sim/runtime/simulation.h"
#include "sim/workloads/workload.h"

namespace turnout::sim {
namespace {

struct Played {
  std::vector<Phase> phases;
  std::vector<EndpointReport> reports;
};

Played play(std::string_view name, const NamedValues& values, std::uint32_t ranks,
            std::vector<std::pair<std::string, std::string>> settings) {
  const Workload& workload = *find_workload(name).value();
  Result<Instance> instance =
      make_instance(workload, parse_values(workload, values).value(), {ranks, 1, 1});
  EXPECT_TRUE(instance.ok());
  Options options;
  options.ranks = ranks;
  options.profile = std::move(find_profile("connect-ib")).value().profile;
  // What hides is asked for; memory is registered by the call that starts a transfer.
  options.profile.setup_register = options.profile.setup_deregister = 0;
  options.profile.setup_register_rate = 0;
  options.settings = std::move(settings);
  auto result = run(options, instance.value().program);
  EXPECT_TRUE(result.ok()) << result.status().text();
  if (!result.ok()) return {};
  return {instance.value().phases->list(), result.value().reports};
}

struct Hidden {
  double sender = 0, receiver = 0;
};

// Of transfers of 4 MiB behind 4 ms.
Hidden hidden(const std::string& protocol, const char* slices) {
  const Played played =
      play("overlap", {{"bytes", "4MiB"}, {"compute", "4ms"}, {"rounds", "5"}, {"slices", slices}},
           2, {{"rendezvous", protocol}});
  if (played.phases.size() != 4) return {};
  const auto each = [&](std::size_t phase) {
    return static_cast<double>(played.phases[phase].end - played.phases[phase].begin) / 5;
  };
  const double compute = 4e9;  // ps
  EXPECT_LT(each(1), 0.8 * compute) << "there is time enough";
  return {1 - (each(2) - compute) / each(1), 1 - (each(3) - compute) / each(1)};
}

// The reader's processor has to see the RTS, the writer's the CTS; an RTR is there already.
TEST(Overlap, WhoNeedsNoProcessorHidesTheTransfer) {
  for (const char* protocol : {"getcqe", "get"}) {
    const Hidden h = hidden(protocol, "1");
    EXPECT_GT(h.sender, 0.9) << protocol;
    EXPECT_LT(h.receiver, 0.1) << protocol;
  }
  const Hidden rput = hidden("rput", "1");
  EXPECT_LT(rput.sender, 0.1);
  EXPECT_LT(rput.receiver, 0.1);
  for (const char* protocol : {"putnr", "put", "auto"}) {
    const Hidden h = hidden(protocol, "1");
    EXPECT_GT(h.sender, 0.9) << protocol;
    EXPECT_GT(h.receiver, 0.9) << protocol;
  }
}

TEST(Overlap, LookingNowAndThenHidesItForEverybody) {
  for (const std::string_view protocol : kRendezvousNames) {
    const Hidden h = hidden(std::string(protocol), "400");  // 10 us
    EXPECT_GT(h.sender, 0.9) << protocol;
    EXPECT_GT(h.receiver, 0.9) << protocol;
  }
}

TEST(Flood, WaitsAtTheSendersWhenTheBudgetIsFull) {
  const Played played =
      play("flood", {{"messages", "20000"}, {"compute", "100ms"}, {"looks", "10000"}}, 4,
           {{"memory_budget", "8MiB"}, {"policy", "static:dc-sendrecv"}});
  ASSERT_EQ(played.reports.size(), 4u);
  const EndpointReport& first = played.reports[0];
  EXPECT_LE(first.peak, 8u << 20);
  EXPECT_GT(first.peak, 7u << 20);
  EXPECT_GT(first.profile->counts.unexpected.total().messages, 10'000u);
  EXPECT_EQ(first.profile->counts.unexpected.total().bytes,
            8 * first.profile->counts.unexpected.total().messages);
}

// 16 credits each of 31 sources for 256 receives.
TEST(Incast, RetriesForWantOfAReceiveAreCountedBySource) {
  const Played played = play("incast", {{"messages", "200"}}, 32,
                             {{"policy", "static:dc-sendrecv"},
                              {"receive_first", "256"},
                              {"credits_first", "16"},
                              {"break_rule", "lend-freely"}});
  ASSERT_EQ(played.reports.size(), 32u);
  std::uint64_t retries = 0;
  for (const EndpointReport& report : played.reports) {
    retries += report.profile->rnr_retries.value_or(0);
  }
  EXPECT_GT(retries, 0u);
  EXPECT_EQ(played.reports[0].profile->rnr_retries, 0u) << "it sends nothing that needs a receive";
}

// One-sided operations over UD go on as messages where connections are few: a limit of them costs
// no time, whether a task lasts shorter than a connection takes to be made or longer.
TEST(ConnectionLimit, NoOneSidedOperationWaitsForAPlace) {
  for (const char* const work : {"2ms", "20ms"}) {
    const auto time = [&](std::vector<std::pair<std::string, std::string>> settings) {
      settings.emplace_back("policy", "rc-rdma-od");
      settings.emplace_back("default_transport", "ud");
      const Played played =
          play("nwchem", {{"tasks", "64"}, {"iterations", "4"}, {"work", work}}, 16, settings);
      EXPECT_EQ(played.phases.size(), 1u);
      return played.phases.empty()
                 ? 0.0
                 : static_cast<double>(played.phases[0].end - played.phases[0].begin);
    };
    const double unlimited = time({});
    EXPECT_LE(time({{"max_conn", "8"}}), 1.05 * unlimited) << work;
    EXPECT_LE(time({{"max_conn", "2"}}), 1.05 * unlimited) << work;
    EXPECT_LE(time({{"max_conn", "1"}, {"eviction", "none"}}), 1.05 * unlimited) << work;
  }
}

}  // namespace
}  // namespace turnout::sim
