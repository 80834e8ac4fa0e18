// SPDX-License-Identifier: BSD-3-Clause
#include "sim/analysis/source_history.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

namespace turnout::sim {

namespace {

Result<const EndpointReport*> report_of(std::span<const EndpointReport> reports, int rank) {
  const auto messages = [](const EndpointReport& r) {
    std::uint64_t sum = 0;
    for (const PeerReport& peer : r.peers) {
      for (const ChannelSpan& span : peer.receive.spans) sum += span.messages;
    }
    return sum;
  };
  // An MPI library may open endpoints that it does not use.
  const EndpointReport* best = nullptr;
  for (const EndpointReport& r : reports) {
    if (rank >= 0 && r.rank != rank) continue;
    if (best == nullptr || messages(r) > messages(*best)) best = &r;
  }
  if (best == nullptr) {
    return Status{Code::invalid,
                  fmt::format("no report of rank {} among {} reports", rank, reports.size())};
  }
  return best;
}

// Source numbers of the report's peers: their ranks where all are known.
std::map<std::uint32_t, std::uint32_t> number_peers(std::span<const EndpointReport> reports,
                                                    const EndpointReport& of, Arrivals* arrivals) {
  std::map<std::uint64_t, int> rank_of;
  for (const EndpointReport& r : reports) {
    if (r.job == of.job) rank_of[r.endpoint] = r.rank;
  }
  std::map<std::uint32_t, std::uint32_t> numbers;
  bool known = true;
  for (const PeerReport& peer : of.peers) {
    const auto found = rank_of.find(peer.endpoint);
    // Beyond the limit of traces no rank is a rank.
    if (found == rank_of.end() || found->second < 0 || found->second >= (1 << 20)) {
      known = false;
      break;
    }
    numbers[peer.peer] = static_cast<std::uint32_t>(found->second);
    arrivals->sources = std::max(arrivals->sources, numbers[peer.peer] + 1);
  }
  if (known) {
    if (of.rank >= 0 && of.rank < (1 << 20)) {
      arrivals->sources = std::max(arrivals->sources, static_cast<std::uint32_t>(of.rank) + 1);
    }
    return numbers;
  }
  numbers.clear();
  for (const PeerReport& peer : of.peers) numbers.emplace(peer.peer, 0);
  std::uint32_t next = 0;
  for (auto& [peer, number] : numbers) number = next++;
  arrivals->sources = next;
  arrivals->who = "source, in the order of first contact";
  return numbers;
}

}  // namespace

Result<Arrivals> arrivals_of_reports(std::span<const EndpointReport> reports, int rank) {
  const Result<const EndpointReport*> found = report_of(reports, rank);
  if (!found) return found.status();
  const EndpointReport& of = *found.value();
  if (of.history.empty()) {
    return Status{
        Code::invalid,
        fmt::format("the report of rank {} has only totals per peer (no \"history\"); record the "
                    "program with TURNOUT_TRACE=FOLDER/ and use that folder instead",
                    of.rank)};
  }
  Arrivals arrivals;
  const std::map<std::uint32_t, std::uint32_t> numbers = number_peers(reports, of, &arrivals);
  std::int64_t length = of.lifetime;
  for (const HistoryInterval& interval : of.history) length = std::max(length, interval.end);
  if (length <= 0) {
    return Status{Code::invalid, "the report covers no time: its \"lifetime_ns\" is 0"};
  }
  arrivals.axis = of.rank < 0 ? fmt::format("time of process {}", of.pid)
                              : fmt::format("time of rank {}", of.rank);
  arrivals.unit = std::string("s");
  arrivals.length = static_cast<double>(length) / 1e9;
  const auto position = [length](std::int64_t at) {
    return static_cast<double>(at) / static_cast<double>(length);
  };
  for (const HistoryInterval& interval : of.history) {
    for (const auto& [peer, messages] : interval.sources) {
      arrivals.batches.push_back(
          {position(interval.begin), position(interval.end), numbers.at(peer), messages});
    }
  }
  return arrivals;
}

}  // namespace turnout::sim
