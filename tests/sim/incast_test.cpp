// SPDX-License-Identifier: BSD-3-Clause
// Many sources and one receiver in virtual time: credits that know the receive queue is shared slow
// the sources down before they find no receive.
#include <gtest/gtest.h>

#include "sim/formats/profile_file.h"
#include "sim/runtime/simulation.h"
#include "sim/study/study.h"
#include "tests/support/memory_line.h"

namespace turnout::sim {
namespace {

constexpr std::uint32_t kSources = 40;
constexpr int kMessages = 600;

Task incast(Rank rank) {
  for (int i = 0; i < kMessages; ++i) {
    if (rank.id() == 0) {
      for (std::uint32_t source = 1; source < rank.size(); ++source) {
        co_await rank.wait(co_await rank.irecv(source, 200, 1));
      }
    } else {
      co_await rank.wait(co_await rank.isend(0, 200, 1));
    }
  }
}

Outcome play_incast(std::vector<std::pair<std::string, std::string>> more) {
  Options options;
  options.ranks = kSources + 1;
  options.keep_latencies = false;
  options.keep_reports = true;
  options.profile.wire_hop = hca::kMicrosecond;
  options.profile.processor_entry = 200 * hca::kNanosecond;
  options.settings = {{"policy", "static:dc-sendrecv"},
                      {"receive_buffers", "128"},
                      {"receive_first", "128"},
                      {"unexpected_memory", "4KiB"}};
  options.settings.insert(options.settings.end(), more.begin(), more.end());
  auto result = run(options, incast);
  EXPECT_TRUE(result.ok()) << result.status().text();
  return result.ok() ? result.value() : Outcome{};
}

std::uint64_t retries(const Outcome& outcome) {
  return outcome.reports[0].shared_receives.rnr_naks;
}

// Each source may have a few, no longer 16.
TEST(Incast, SlowsDownBeforeItFindsNoReceive) {
  const Outcome shared = play_incast({{"credits_first", "2"}});
  const Outcome free = play_incast({{"credits_first", "16"}, {"break_rule", "lend-freely"}});
  ASSERT_EQ(shared.messages, std::uint64_t{kSources} * kMessages);
  // Until it is known how much is too much.
  EXPECT_LT(5 * retries(shared), retries(free));
  EXPECT_GT(retries(free), 1000u);
}

// Fewer receives than sources: they take turns. Only the first messages of strangers come unasked.
TEST(Incast, OfMoreSourcesThanReceivesTakesTurns) {
  const std::vector<std::pair<std::string, std::string>> few = {
      {"receive_buffers", "32"}, {"receive_first", "32"}, {"credits_first", "1"}};
  const Outcome shared = play_incast(few);
  auto more = few;
  more.emplace_back("break_rule", "lend-freely");
  const Outcome free = play_incast(more);
  ASSERT_EQ(shared.messages, std::uint64_t{kSources} * kMessages);
  EXPECT_GT(shared.reports[0].shared_receives.credit_waits, 0u);
  EXPECT_LT(5 * retries(shared), retries(free));
}

// The most data receives that rank 0 ever had.
std::uint64_t most_receives(const Outcome& outcome) {
  constexpr std::uint64_t kReceive = 4096, kControlReceives = 256 * 256;  // bytes
  const MemoryLine line = memory_line(outcome.reports[0], MemoryKind::receive_buffers);
  return (line.peak - kControlReceives) / kReceive;
}

std::uint64_t most_receives(const std::string& policy, const std::string& budget) {
  Options options;
  options.ranks = 400;
  options.keep_latencies = false;
  options.keep_reports = true;
  options.profile.processor_entry = hca::kMicrosecond;  // slower than messages come
  options.settings = {{"policy", policy}, {"memory_budget", budget}};
  auto result = run(options, [](Rank rank) -> Task {
    for (int message = 0; message < 16; ++message) {
      for (std::uint32_t source = 1; rank.id() == 0 && source < rank.size(); ++source)
        co_await rank.wait(co_await rank.irecv(source, 8, 1));
      if (rank.id() != 0) co_await rank.wait(co_await rank.isend(0, 8, 1));
    }
  });
  EXPECT_TRUE(result.ok()) << result.status().text();
  return result.ok() ? most_receives(result.value()) : 0;
}

TEST(Incast, OfAWholeJobGetsAReceiveForEachWithinASixteenthOfTheBudget) {
  EXPECT_EQ(most_receives("turnout", "256MiB"), 400u);
  EXPECT_EQ(most_receives("turnout", "20MiB"), 320u);
  EXPECT_EQ(most_receives("turnout", "12MiB"), 256u);
  EXPECT_EQ(most_receives("aqps", "256MiB"), 256u);
}

std::uint64_t receives_at_start(std::uint32_t ranks, const NamedValues& settings) {
  Options options;
  options.ranks = ranks;
  options.keep_latencies = false;
  options.keep_reports = true;
  options.settings = settings;
  auto result = run(options, [](Rank) -> Task { co_return; });
  EXPECT_TRUE(result.ok()) << result.status().text();
  return result.ok() ? most_receives(result.value()) : 0;
}

TEST(Incast, OfAWholeJobFindsReceivesFromTheStart) {
  EXPECT_EQ(receives_at_start(64, {}), 64u);
  EXPECT_EQ(receives_at_start(200, {}), 200u);
  EXPECT_EQ(receives_at_start(400, {}), 256u);
  EXPECT_EQ(receives_at_start(400, {{"memory_budget", "12MiB"}}), 192u);
  EXPECT_EQ(receives_at_start(400, {{"receive_first", "96"}}), 96u);
  EXPECT_EQ(receives_at_start(400, {{"receive_buffers", "100"}}), 100u);
  EXPECT_EQ(receives_at_start(400, {{"receive_growth", "0"}}), 64u);
  EXPECT_EQ(receives_at_start(400, {{"policy", "aqps"}}), 64u);
}

}  // namespace
}  // namespace turnout::sim
