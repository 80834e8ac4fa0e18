// SPDX-License-Identifier: BSD-3-Clause
// What reports say of a run in virtual time: who sent when, and what a message cost on each
// channel.
#include "core/report/report.h"

#include <gtest/gtest.h>

#include <map>

#include "sim/runtime/simulation.h"

namespace turnout::sim {
namespace {

// All send to rank 0, the higher ranks less often.
Task to_first(Rank rank, std::uint32_t messages) {
  if (rank.id() != 0) {
    for (std::uint32_t i = 0; i < messages; ++i) {
      if (i % rank.id() == 0) co_await rank.send(0, 64, 1);
      co_await rank.compute(hca::kMicrosecond);
    }
    co_return;
  }
  for (std::uint32_t i = 0; i < messages; ++i) {
    for (std::uint32_t from = 1; from < rank.size(); ++from) {
      if (i % from == 0) co_await rank.recv(from, 64, 1);
    }
  }
}

EndpointReport first_report(const std::string& policy) {
  Options options;
  options.ranks = 4;
  options.keep_reports = true;
  options.profile.wire_hop = hca::kMicrosecond;
  options.profile.processor_entry = 200 * hca::kNanosecond;
  options.profile.processor_poll_ring = 10 * hca::kNanosecond;
  options.profile.processor_match = 50 * hca::kNanosecond;
  options.settings = {{"policy", policy}, {"interval", "1500us"}};
  auto result = run(options, [](Rank rank) { return to_first(rank, 6000); });
  EXPECT_TRUE(result.ok()) << result.status().text();
  return result.ok() ? result.value().reports.at(0) : EndpointReport{};
}

TEST(Report, HistoryHasEveryMessageAndItsTime) {
  const EndpointReport report = first_report("aqps");
  ASSERT_GT(report.history.size(), 3u);
  std::map<std::uint32_t, std::uint64_t> counted, received;
  std::int64_t end = 0;
  for (const HistoryInterval& interval : report.history) {
    EXPECT_GE(interval.begin, end);
    EXPECT_GT(interval.end, interval.begin);
    end = interval.end;
    std::uint64_t sum = 0;
    for (const auto& [peer, messages] : interval.sources) {
      counted[peer] += messages;
      sum += messages;
    }
    EXPECT_EQ(sum, interval.messages);
  }
  EXPECT_LE(end, report.lifetime);
  for (const PeerReport& peer : report.peers) {
    for (const ChannelSpan& span : peer.receive.spans) received[peer.peer] += span.messages;
  }
  EXPECT_EQ(counted, received);
  EXPECT_EQ(counted.size(), 3u);
  const Result<EndpointReport> read = report_from_json(to_json(report));
  ASSERT_TRUE(read.ok()) << read.status().text();
  EXPECT_EQ(to_json(read.value()), to_json(report));
}

// Each call is measured under a virtual clock, so two runs tell the same to the bit.
TEST(Report, TheProfileIsExactAndTheSameInEachRun) {
  const EndpointReport report = first_report("aqps");
  ASSERT_TRUE(report.profile.has_value());
  const ProfileReport& profile = *report.profile;
  EXPECT_EQ(profile.calls, profile.calls_measured);
  EXPECT_GT(profile.calls, 11'000u);  // one receive each, and progress
  EXPECT_EQ(profile.library_time_error, 0u);
  EXPECT_LT(profile.library_time, static_cast<std::uint64_t>(report.lifetime));
  // A match is 50 ns at least.
  EXPECT_GT(profile.library_time, 11'000u * 50);
  EXPECT_TRUE(profile.rnr_retries.has_value());
  // It only answers: what it sends is credits and the like.
  EXPECT_EQ(profile.counts.sent[static_cast<std::size_t>(Traffic::data)].total().messages, 0u);
  EXPECT_GT(profile.counts.sent[static_cast<std::size_t>(Traffic::control)].total().messages, 0u);
  EXPECT_EQ(profile.counts.unexpected.total().messages, report.operations.unexpected);
  EXPECT_EQ(to_json(first_report("aqps")), to_json(report));
}

TEST(Report, APolicyThatKeepsNoStatisticsHasNoHistory) {
  EXPECT_TRUE(first_report("rc-rdma-od").history.empty());
}

TEST(Report, ObservedGainIsWhatTheProcessorSaves) {
  const EndpointReport report = first_report("aqps");
  std::map<ChannelKind, ReceiveCostLine> costs;
  for (const ReceiveCostLine& line : report.receive_costs) costs[line.channel] = line;
  ASSERT_TRUE(costs.contains(ChannelKind::dc_sendrecv));
  const ReceiveCostLine& base = costs[ChannelKind::dc_sendrecv];
  // An entry and a match at least.
  EXPECT_GE(base.mean, 250);
  EXPECT_LT(base.mean, 1000);
  std::size_t observed = 0;
  for (const PeerReport& peer : report.peers) {
    const ChannelKind kind = peer.receive.spans.back().channel;
    if (kind == ChannelKind::dc_sendrecv) {
      EXPECT_FALSE(peer.observed_gain.has_value());
    } else if (peer.observed_gain) {
      ++observed;
      EXPECT_DOUBLE_EQ(*peer.observed_gain, base.mean - costs[kind].mean);
      // Without the entry, with the polls of three rings.
      EXPECT_GT(*peer.observed_gain, 100);
      EXPECT_LT(*peer.observed_gain, 1000);
    }
  }
  EXPECT_GT(observed, 0u);
}

}  // namespace
}  // namespace turnout::sim
