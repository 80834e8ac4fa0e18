// SPDX-License-Identifier: BSD-3-Clause
// Reports as a job of several ranks leaves them.
#pragma once

#include "core/report/report.h"

namespace turnout::test {

// Rank `rank` of `ranks`: everyone talks with everyone; lower neighbours are on RC-RDMA.
inline EndpointReport sample_report(int rank, int ranks) {
  EndpointReport report;
  report.endpoint = 0xabcd000000000000u + static_cast<std::uint64_t>(rank);
  report.pid = 5000u + static_cast<std::uint32_t>(rank);
  report.rank = rank;
  report.ranks = ranks;
  report.job = "sample";
  report.host = "node7";
  report.device = "virtual_0";
  report.policy = "aqps";
  report.lifetime = 3'210'000'000;
  for (int other = 0; other < ranks; ++other) {
    if (other == rank) continue;
    PeerReport peer;
    peer.peer = static_cast<std::uint32_t>(other);
    peer.endpoint = 0xabcd000000000000u + static_cast<std::uint64_t>(other);
    peer.pid = 5000u + static_cast<std::uint32_t>(other);
    peer.send.spans = {{ChannelKind::dc_sendrecv, 0, 12'345, 1 << 20}};
    peer.receive.spans = {{ChannelKind::dc_sendrecv, 0, 1000, 4096}};
    if (other < rank) {
      peer.receive.spans.push_back({ChannelKind::rc_rdma, 1'000'000'000, 250'000, 1u << 30});
      peer.receive.switches = 1;
      peer.reason = "message rate justifies the channel (250000 messages/s)";
      peer.predicted_gain = 126;
      peer.observed_gain = 140.5;
      peer.bytes = 110'000;
      report.decisions.push_back({1'000'000'000, peer.peer, ChannelKind::dc_sendrecv,
                                  ChannelKind::rc_rdma, peer.reason, "done in 120 us"});
    } else {
      peer.reason = "message rate too low for a channel (1000 messages/s)";
    }
    report.peers.push_back(peer);
  }
  report.memory = {
      {"queue pairs", 300'000, 400'000, 12, 16}, {"rings", 65536, 131072, 16, 32}, {"operations"}};
  report.started = 1'700'000'000'000'000'000 + 1'000'000 * std::int64_t{rank};
  report.memory_over_time = {{0, {0, 0, 0}},
                             {1'000'000, {300'000, 0, 0}},
                             {1'000'000'000, {400'000, 131'072, 0}},
                             {3'210'000'000, {300'000, 65'536, 0}}};
  report.receive_costs = {{ChannelKind::dc_sendrecv, 640, 330.25},
                          {ChannelKind::rc_rdma, 4096, 189.75}};
  for (std::int64_t second = 0; second < 3; ++second) {
    HistoryInterval interval{second * 1'000'000'000, (second + 1) * 1'000'000'000, 0, {}};
    for (const PeerReport& peer : report.peers) {
      interval.sources.emplace_back(peer.peer, 300 + peer.peer);
      interval.messages += 300 + peer.peer;
    }
    report.history.push_back(interval);
  }
  report.budget = 256u << 20;
  report.used = 365'536;
  report.peak = 531'072 + static_cast<std::uint64_t>(rank);
  report.operations.unexpected = 17;
  report.operations.rendezvous = 3;
  report.operations.rtrs = 5;
  report.operations.puts = 2;
  report.operations.put_completions = 1;
  report.operations.credit_messages = 99;
  report.registrations = {"", 900, 40, 3, 12, 5u << 20, 9u << 20};
  // Rank r has r RNR retries; one message in ten was unexpected.
  ProfileReport& profile = report.profile.emplace();
  const auto times = [](std::uint64_t messages, std::uint64_t bytes) {
    return SizeCount{messages, messages * bytes};
  };
  profile.counts.sent[0].add(size_bin(40), times(6000, 40));
  profile.counts.sent[1].add(size_bin(72), times(3000, 72));
  profile.counts.sent[2].add(size_bin(1 << 20), times(1000, 1 << 20));
  profile.counts.unexpected.add(size_bin(0), times(100, 0));
  profile.counts.unexpected.add(size_bin(8), times(300, 8));
  profile.counts.low_watermark_events = 2;
  profile.rnr_retries = static_cast<std::uint64_t>(rank);
  profile.calls = 1'000'000;
  profile.calls_measured = 2'000;
  profile.library_time = 500'000'000;
  profile.library_time_error = 10'000'000;
  SelectionReport& selection = report.selection.emplace();
  selection.time = 3'000'000'000;
  selection.window = 1'000'000'000;
  selection.messages = 5000;
  selection.threshold = 12.5;
  selection.ring_entries = 16;
  selection.bytes_available = 1 << 20;
  selection.costs = {{"receiver.dc_rdma", 50, 0.25}};
  if (!report.peers.empty()) report.peers.front().source = {4000, true, 7, 0.25, 0.5, 3, 2, true};
  report.shared_receives = {4, 3, 2, 7, 1};
  report.private_receives = {67, 2, 1, 40};
  report.connections = {31, 20, 4, 25, 2, 19, 1'900'000, 400'000};
  if (!report.peers.empty()) report.peers.front().tear_downs = 7;
  WaitsReport& waits = report.waits.emplace();
  waits.list = {{WaitKind::receive, WaitFor::message, {}, true, 5, 0xff, 4096, 2'000'000'000},
                {WaitKind::send, WaitFor::credits, 1u, true, 0x8000000000000007, 0, 8, 1}};
  waits.totals = {70, 0, 1};
  waits.quiet = 1'500'000'000;
  waits.mpi = "MPICH Version: 5.0.2";
  return report;
}

inline std::vector<EndpointReport> job(int ranks) {
  std::vector<EndpointReport> reports;
  for (int rank = 0; rank < ranks; ++rank) reports.push_back(sample_report(rank, ranks));
  return reports;
}

}  // namespace turnout::test
