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

// One end's word on a direction between two endpoints.
struct Reported {
  std::uint64_t from = 0, to = 0;  // endpoints
  bool by_receiver = false;
  const EndpointReport* report = nullptr;
  const PeerReport* peer = nullptr;
};

class Builder {
 public:
  explicit Builder(std::span<const EndpointReport> reports) : reports_(reports) {}

  JobTraffic build() {
    find_processes();
    std::vector<Reported> reported;
    for (const auto& process : traffic_.processes) {
      for (const EndpointReport* report : process.reports) tell(*report, &reported);
    }
    std::sort(reported.begin(), reported.end(), [](const Reported& a, const Reported& b) {
      return std::tie(a.from, a.to, a.by_receiver) < std::tie(b.from, b.to, b.by_receiver);
    });
    for (std::size_t i = 0; i < reported.size();) {
      std::size_t end = i + 1;
      while (end < reported.size() && reported[end].from == reported[i].from &&
             reported[end].to == reported[i].to) {
        ++end;
      }
      add_pair({reported.data() + i, end - i});
      i = end;
    }
    std::stable_sort(traffic_.pairs.begin(), traffic_.pairs.end(),
                     [](const JobTraffic::Pair& a, const JobTraffic::Pair& b) {
                       return std::tie(a.from, a.to) < std::tie(b.from, b.to);
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
      traffic_.processes.push_back(
          {process_name(first), first.rank, first.host, first.pid, std::move(reports)});
    }
  }

  static void tell(const EndpointReport& report, std::vector<Reported>* reported) {
    for (const PeerReport& peer : report.peers) {
      if (!peer.send.spans.empty()) {
        reported->push_back({report.endpoint, peer.endpoint, false, &report, &peer});
      }
      if (!peer.receive.spans.empty()) {
        reported->push_back({peer.endpoint, report.endpoint, true, &report, &peer});
      }
    }
  }

  void add_pair(std::span<const Reported> reported) {
    JobTraffic::Pair pair;
    for (const Reported& one : reported) {
      if (one.by_receiver) {
        pair.receiver = one.report;
        pair.at_receiver = one.peer;
      } else {
        pair.sender = one.report;
        pair.at_sender = one.peer;
      }
    }
    pair.from = process(reported.front().from, pair.at_receiver);
    pair.to = process(reported.front().to, pair.at_sender);
    if (pair.at_sender != nullptr) {
      count(pair.at_sender->send, &pair.messages, &pair.bytes);
    } else if (pair.at_receiver != nullptr) {
      count(pair.at_receiver->receive, &pair.messages, &pair.bytes);
    }
    traffic_.pairs.push_back(pair);
  }

  // `reported`: what is known of an endpoint without a report.
  std::size_t process(std::uint64_t endpoint, const PeerReport* reported) {
    const auto [found, is_new] = process_of_.emplace(endpoint, traffic_.processes.size());
    if (is_new) {
      const std::uint32_t pid = reported != nullptr ? reported->pid : 0;
      traffic_.processes.push_back({fmt::format("pid {}", pid), -1, "", pid, {}});
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
