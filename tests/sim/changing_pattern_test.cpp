// SPDX-License-Identifier: BSD-3-Clause
// How soon new partners have their channels after a program of 8 ranks changed its pattern, in
// set-up times as the reports of the same run tell them. In virtual time.
#include <gtest/gtest.h>

#include <algorithm>
#include <charconv>
#include <string_view>
#include <vector>

#include "core/report/report.h"
#include "sim/formats/profile_file.h"
#include "sim/runtime/simulation.h"

namespace turnout::sim {
namespace {

constexpr std::uint32_t kRanks = 8, kBefore = 1, kAfter = 3;  // distances

struct Change {
  std::uint32_t messages = 0;                                         // of a rank, before and after
  std::vector<Picoseconds> at = std::vector<Picoseconds>(kRanks, 0);  // by rank
};

Task change(Rank rank, Change* c) {
  for (const std::uint32_t distance : {kBefore, kAfter}) {
    c->at[rank.id()] = rank.now();
    const std::uint32_t n = rank.size();
    for (std::uint32_t i = 0; i < c->messages; ++i) {
      const Request request = co_await rank.irecv((rank.id() + n - distance) % n, 64, distance);
      co_await rank.send((rank.id() + distance) % n, 64, distance);
      co_await rank.wait(request);
    }
  }
}

// Nanoseconds of "done in 120 us"; 0: it was not done.
std::int64_t took(const DecisionReport& decision) {
  constexpr std::string_view kWords = "done in ";
  const std::string& text = decision.outcome;
  std::int64_t microseconds = 0;
  if (text.starts_with(kWords))
    std::from_chars(text.data() + kWords.size(), text.data() + text.size(), microseconds);
  return microseconds * 1000;
}

std::int64_t median(std::vector<std::int64_t> of) {
  std::ranges::sort(of);
  return of.empty() ? 0 : of[of.size() / 2];
}

struct Reached {
  std::int64_t set_up = 0;    // ns, median of the run's queue pairs
  std::int64_t latest = -1;   // ns after the change, of the last new partner; -1: one never was
  std::uint32_t returns = 0;  // of new partners to the default transport
};

Reached reached() {
  Change changed{.messages = 200'000};
  Options options;
  const auto profile = find_profile("connect-ib");
  EXPECT_TRUE(profile.ok()) << profile.status().text();
  if (!profile.ok()) return {};
  options.profile = profile.value().profile;
  options.ranks = kRanks;
  auto result = run(options, [&](Rank rank) { return change(rank, &changed); });
  EXPECT_TRUE(result.ok()) << result.status().text();
  if (!result.ok()) return {};
  Reached out;
  std::vector<std::int64_t> set_ups;
  const std::vector<EndpointReport>& reports = result.value().reports;
  for (std::uint32_t i = 0; i < kRanks; ++i) {
    for (const DecisionReport& decision : reports[i].decisions) {
      if (over_rc(decision.to) && took(decision) > 0) set_ups.push_back(took(decision));
    }
    for (const PeerReport& peer : reports[i].peers) {
      if (peer.endpoint != reports[(i + kRanks - kAfter) % kRanks].endpoint) continue;
      std::int64_t after = -1;
      for (const ChannelSpan& span : peer.receive.spans) {
        const std::int64_t since = span.since - changed.at[i] / hca::kNanosecond;
        if (over_ring(span.channel) && since > 0 && after < 0) after = since;
        if (!over_ring(span.channel) && since > 0) ++out.returns;
      }
      EXPECT_GE(after, 0) << "rank " << i << " gave its new partner no channel";
      out.latest = std::max(out.latest, after);
    }
  }
  out.set_up = median(set_ups);
  return out;
}

// With default settings: the account of a new partner is full long before the interval ends.
TEST(ChangingPattern, NewPartnersReachTheirChannelsWithinTenSetUpTimes) {
  const Reached found = reached();
  ASSERT_GT(found.set_up, 0);
  ASSERT_GT(found.latest, 0) << "before it could be";
  EXPECT_LE(found.latest, 10 * found.set_up);
  EXPECT_EQ(found.returns, 0u) << "what came before the change took a channel away";
}

}  // namespace
}  // namespace turnout::sim
