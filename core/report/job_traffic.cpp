// SPDX-License-Identifier: BSD-3-Clause
#include "core/report/job_traffic.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <unordered_map>

namespace turnout {

namespace {

// Counts are of others and may be anything: they are added as numbers that cannot overflow.
void count(const DirectionReport& direction, double* messages, double* bytes) {
  for (const ChannelSpan& span : direction.spans) {
    *messages += static_cast<double>(span.messages);
    *bytes += static_cast<double>(span.bytes);
  }
}

using Pairs = std::map<std::pair<std::uint64_t, std::uint64_t>, JobTraffic::Pair>;  // by endpoints

class Builder {
 public:
  explicit Builder(std::span<const EndpointReport> reports) : reports_(reports) {}

  JobTraffic build() {
    find_processes();
    Pairs pairs;
    for (const auto& process : traffic_.processes) {
      for (const EndpointReport* report : process.reports) tell(*report, &pairs);
    }
    for (auto& [endpoints, pair] : pairs) {
      pair.from = process(endpoints.first, pair.at_receiver);
      pair.to = process(endpoints.second, pair.at_sender);
      if (pair.at_sender != nullptr) {
        count(pair.at_sender->send, &pair.messages, &pair.bytes);
      } else {
        count(pair.at_receiver->receive, &pair.messages, &pair.bytes);
      }
      traffic_.pairs.push_back(pair);
    }
    std::ranges::stable_sort(traffic_.pairs, {}, [](const JobTraffic::Pair& pair) {
      return std::pair(pair.from, pair.to);
    });
    return std::move(traffic_);
  }

 private:
  void find_processes() {
    std::map<std::tuple<unsigned, std::string, std::uint32_t>, std::vector<const EndpointReport*>>
        found;  // a rank that is not known is the last one
    for (const EndpointReport& report : reports_) {
      found[{static_cast<unsigned>(report.rank), report.host, report.pid}].push_back(&report);
    }
    for (auto& [key, reports] : found) {
      const EndpointReport& first = *reports.front();
      if (std::any_of(reports.begin(), reports.end(),
                      [](const auto* report) { return carried_anything(*report); })) {
        std::erase_if(reports, [](const auto* report) { return !carried_anything(*report); });
      }
      for (const EndpointReport* report : reports) {
        process_of_[report->endpoint] = traffic_.processes.size();
      }
      traffic_.processes.push_back({process_name(first), first.host, std::move(reports)});
    }
  }

  static void tell(const EndpointReport& report, Pairs* pairs) {
    for (const PeerReport& peer : report.peers) {
      if (!peer.send.spans.empty()) {
        JobTraffic::Pair& pair = (*pairs)[{report.endpoint, peer.endpoint}];
        pair.sender = &report;
        pair.at_sender = &peer;
      }
      if (!peer.receive.spans.empty()) {
        JobTraffic::Pair& pair = (*pairs)[{peer.endpoint, report.endpoint}];
        pair.receiver = &report;
        pair.at_receiver = &peer;
      }
    }
  }

  // `reported`: what is known of an endpoint without a report.
  std::size_t process(std::uint64_t endpoint, const PeerReport* reported) {
    const auto [found, is_new] = process_of_.emplace(endpoint, traffic_.processes.size());
    if (is_new) {
      const std::uint32_t pid = reported != nullptr ? reported->pid : 0;
      traffic_.processes.push_back({fmt::format("pid {}", pid), "", {}});
    }
    return found->second;
  }

  std::span<const EndpointReport> reports_;
  JobTraffic traffic_;
  std::unordered_map<std::uint64_t, std::size_t> process_of_;  // by endpoint
};

}  // namespace

std::string process_name(const EndpointReport& report) {
  return report.rank >= 0 ? fmt::format("rank {}", report.rank) : fmt::format("pid {}", report.pid);
}

JobTraffic job_traffic(std::span<const EndpointReport> reports) {
  return Builder(reports).build();
}

}  // namespace turnout
