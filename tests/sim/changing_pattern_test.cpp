// SPDX-License-Identifier: BSD-3-Clause
// How soon new partners have their channels after a program of 8 ranks changed its pattern, in
// set-up times as the reports of the same run tell them. In virtual time.
#include <gtest/gtest.h>

#include <algorithm>
#include <charconv>
#include <string_view>
#include <vector>

#include "core/report/report.h"
#include "sim/runtime/simulation.h"

namespace turnout::sim {
namespace {

constexpr std::uint32_t kRanks = 8, kBefore = 1, kAfter = 3;  // distances

struct Change {
  std::uint32_t messages;                                             // of a rank, before and after
  Picoseconds pause;                                                  // between two
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
      co_await rank.compute(c->pause);
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
  std::int64_t set_up = 0;   // ns, median of the run's
  std::int64_t latest = -1;  // ns after the change, of the last new partner; -1: one never was
};

Reached reached(const std::string& interval) {
  Change changed{.messages = 60'000, .pause = 50 * hca::kMicrosecond};
  Options options;
  options.ranks = kRanks;
  options.settings = {{"interval", interval}};
  auto result = run(options, [&](Rank rank) { return change(rank, &changed); });
  EXPECT_TRUE(result.ok()) << result.status().text();
  if (!result.ok()) return {};
  Reached out;
  std::vector<std::int64_t> set_ups;
  const std::vector<EndpointReport>& reports = result.value().reports;
  for (std::uint32_t i = 0; i < kRanks; ++i) {
    for (const DecisionReport& decision : reports[i].decisions) {
      if (over_ring(decision.to) && took(decision) > 0) set_ups.push_back(took(decision));
    }
    for (const PeerReport& peer : reports[i].peers) {
      if (peer.endpoint != reports[(i + kRanks - kAfter) % kRanks].endpoint) continue;
      std::int64_t after = -1;
      for (const ChannelSpan& span : peer.receive.spans) {
        const std::int64_t since = span.since - changed.at[i] / hca::kNanosecond;
        if (over_ring(span.channel) && since > 0 && after < 0) after = since;
      }
      EXPECT_GE(after, 0) << "rank " << i << " gave its new partner no channel";
      out.latest = std::max(out.latest, after);
    }
  }
  out.set_up = median(set_ups);
  return out;
}

TEST(ChangingPattern, NewPartnersReachTheirChannelsWithinTenSetUpTimes) {
  for (const std::string interval : {"1ms", "10ms", "100ms", "1s"}) {
    const Reached found = reached(interval);
    printf("%s: %ld ns, set-up %ld\n", interval.c_str(), found.latest, found.set_up);
  }
}

}  // namespace
}  // namespace turnout::sim
