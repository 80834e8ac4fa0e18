// SPDX-License-Identifier: BSD-3-Clause
// Many sources and one receiver in virtual time: credits that know the receive queue is shared slow
// the sources down before they find no receive.
#include <gtest/gtest.h>

#include "sim/formats/profile_file.h"
#include "sim/runtime/simulation.h"
#include "sim/study/study.h"

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

}  // namespace
}  // namespace turnout::sim
