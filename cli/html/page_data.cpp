// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "cli/html/escape.h"
#include "cli/html/page.h"
#include "core/report/job_profile.h"

namespace turnout::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kPairs = 60;   // on the timeline, the busiest
constexpr std::size_t kSide = 64;    // rows of the matrix; more processes are grouped
constexpr std::size_t kSeries = 64;  // processes whose memory is shown over time
constexpr std::size_t kDecisions = 2000;
constexpr std::size_t kProcesses = 8192;  // in the chart of memory peaks

std::string text(std::string_view of_report) {
  return shortened(of_report, 240);
}

class PageData {
 public:
  PageData(std::span<const EndpointReport> reports, const JobTraffic& traffic)
      : reports_(reports), traffic_(traffic) {
    for (const EndpointReport& report : reports) {
      if (report.started == 0) aligned_ = false;
      if (began_ == 0 || report.started < began_) began_ = report.started;
    }
    if (!aligned_) began_ = 0;
    for (const EndpointReport& report : reports) {
      end_ = std::max(end_, when(report, report.lifetime));
    }
  }

  Json make() {
    Json channels = Json::array();
    for (std::size_t k = 0; k < kChannelKinds; ++k) {
      channels.push_back(name(static_cast<ChannelKind>(k)));
    }
    return {{"channels", std::move(channels)},
            {"aligned", aligned_},
            {"end", end_},
            {"pairs", pairs()},
            {"matrix", matrix()},
            {"peaks", peaks()},
            {"memory", memory()},
            {"sizes", sizes()},
            {"decisions", decisions()}};
  }

 private:
  // Doubles: a sum of times of others could overflow.
  [[nodiscard]] double when(const EndpointReport& report, std::int64_t time) const {
    const double began = aligned_ ? static_cast<double>(report.started - began_) : 0;
    return std::max(0.0, (began + static_cast<double>(time)) / 1e3);
  }
  [[nodiscard]] const std::string& name_of(std::size_t process) const {
    return traffic_.processes[process].name;
  }

  Json pairs() const {
    std::vector<const JobTraffic::Pair*> busy;
    for (const JobTraffic::Pair& pair : traffic_.pairs) {
      if (pair.messages > 0) busy.push_back(&pair);
    }
    const std::size_t all = busy.size();
    std::stable_sort(busy.begin(), busy.end(),
                     [](const auto* a, const auto* b) { return a->messages > b->messages; });
    if (busy.size() > kPairs) busy.resize(kPairs);
    std::sort(busy.begin(), busy.end());  // as they are in traffic_: by sender and receiver
    Json list = Json::array();
    for (const JobTraffic::Pair* pair : busy) {
      Json spans = Json::array();
      const auto& told = pair->direction().spans;
      for (std::size_t i = 0; i < told.size() && i < DirectionReport::kMaxSpans; ++i) {
        spans.push_back(
            Json::array({static_cast<int>(told[i].channel), when(pair->teller(), told[i].since),
                         told[i].messages, told[i].bytes}));
      }
      list.push_back({{"from", name_of(pair->from)},
                      {"to", name_of(pair->to)},
                      {"end", when(pair->teller(), pair->teller().lifetime)},
                      {"messages", pair->messages},
                      {"why", pair->reported_by_receiver() ? text(pair->at_receiver->reason) : ""},
                      {"spans", std::move(spans)}});
    }
    return {{"all", all}, {"list", std::move(list)}};
  }

  // Rows of the matrix: processes, or groups of them: nodes where that makes few but several, else
  // blocks of neighbours.
  std::vector<std::size_t> group(std::vector<std::string>* names, std::string* of) const {
    const std::size_t n = traffic_.processes.size();
    std::vector<std::size_t> row(n);
    if (n <= kSide) {
      for (std::size_t i = 0; i < n; ++i) {
        row[i] = i;
        names->push_back(name_of(i));
      }
      *of = "process";
      return row;
    }
    std::map<std::string, std::size_t> nodes;
    for (std::size_t i = 0; i < n; ++i) {
      const std::string& host = traffic_.processes[i].host;
      const auto [node, is_new] = nodes.emplace(host, nodes.size());
      row[i] = node->second;
      if (is_new) names->push_back(host.empty() ? "no report" : shortened(host, 24));
    }
    *of = "node";
    if (nodes.size() >= 4 && nodes.size() <= kSide) return row;
    names->clear();
    const std::size_t each = (n + kSide - 1) / kSide;
    for (std::size_t i = 0; i < n; ++i) {
      row[i] = i / each;
      if (i % each == 0) {
        names->push_back(name_of(i) + " to " + name_of(std::min(i + each, n) - 1));
      }
    }
    *of = fmt::format("{} processes", each);
    return row;
  }

  Json matrix() const {
    struct Cell {
      double messages = 0, bytes = 0;
      std::array<double, kChannelKinds> pairs{};
    };
    std::vector<std::string> names;
    std::string of;
    const std::vector<std::size_t> row = group(&names, &of);
    std::map<std::pair<std::size_t, std::size_t>, Cell> cells;
    for (const JobTraffic::Pair& pair : traffic_.pairs) {
      if (pair.messages == 0) continue;
      Cell& cell = cells[{row[pair.from], row[pair.to]}];
      cell.messages += pair.messages;
      cell.bytes += pair.bytes;
      ++cell.pairs[static_cast<std::size_t>(pair.last_channel())];
    }
    Json list = Json::array();
    for (const auto& [at, cell] : cells) {
      list.push_back(Json::array({at.first, at.second, cell.messages, cell.bytes, cell.pairs}));
    }
    return {{"of", of}, {"names", names}, {"cells", std::move(list)}};
  }

  Json peaks() const {
    Json list = Json::array();
    for (const JobTraffic::Process& process : traffic_.processes) {
      for (const EndpointReport* report : process.reports) {
        if (list.size() == kProcesses) break;
        list.push_back(Json::array({process.name, report->peak, report->budget}));
      }
    }
    return list;
  }

  // Of the processes that came nearest to their budget.
  Json memory() const {
    std::vector<const EndpointReport*> fullest;
    for (const JobTraffic::Process& process : traffic_.processes) {
      fullest.insert(fullest.end(), process.reports.begin(), process.reports.end());
    }
    const auto share = [](const EndpointReport* report) {
      return static_cast<double>(report->peak) /
             static_cast<double>(std::max<std::uint64_t>(report->budget, 1));
    };
    std::stable_sort(fullest.begin(), fullest.end(),
                     [&](const auto* a, const auto* b) { return share(a) > share(b); });
    if (fullest.size() > kSeries) fullest.resize(kSeries);
    Json list = Json::array();
    for (const EndpointReport* report : fullest) {
      Json kinds = Json::array(), points = Json::array();
      std::vector<std::size_t> used;
      for (std::size_t i = 0; i < report->memory.size() && used.size() < 32; ++i) {
        if (report->memory[i].peak == 0) continue;
        used.push_back(i);
        kinds.push_back(Json::array({text(report->memory[i].kind), report->memory[i].peak}));
      }
      for (const MemoryPoint& point : report->memory_over_time) {
        Json row = Json::array({when(*report, point.time)});
        for (const std::size_t i : used) row.push_back(point.bytes[i]);
        points.push_back(std::move(row));
      }
      list.push_back({{"name", process_name(*report)},
                      {"budget", report->budget},
                      {"peak", report->peak},
                      {"end", when(*report, report->lifetime)},
                      {"kinds", std::move(kinds)},
                      {"points", std::move(points)}});
    }
    return list;
  }

  Json sizes() const {
    const JobProfile profile = job_profile(reports_);
    Json bins = Json::array();
    for (std::size_t bin = 0; bin < kSizeBins; ++bin) {
      Json row = Json::array({bin});
      std::uint64_t all = 0;
      for (const SizeCounts& counts : profile.counts.sent) {
        row.push_back(counts[bin].messages);
        all |= counts[bin].messages;
      }
      if (all != 0) bins.push_back(std::move(row));
    }
    Json kinds = Json::array();
    for (std::size_t kind = 0; kind < kTrafficKinds; ++kind) {
      kinds.push_back(turnout::name(static_cast<Traffic>(kind)));
    }
    return {{"kinds", std::move(kinds)}, {"bins", std::move(bins)}};
  }

  // The latest of each process where there are too many.
  Json decisions() const {
    struct Line {
      double time;
      const EndpointReport* report;
      const DecisionReport* decision;
    };
    std::map<std::uint64_t, std::string> names;
    for (const EndpointReport& report : reports_) names[report.endpoint] = process_name(report);
    const std::size_t each =
        std::max<std::size_t>(kDecisions / std::max<std::size_t>(reports_.size(), 1), 1);
    double all = 0;
    std::size_t kept = 0;
    for (const EndpointReport& report : reports_) {
      all += static_cast<double>(report.decisions.size()) +
             static_cast<double>(report.decisions_dropped);
      kept += report.decisions.size();
    }
    std::vector<Line> lines;
    for (const EndpointReport& report : reports_) {
      const std::size_t count = report.decisions.size();
      for (std::size_t i = kept > kDecisions && count > each ? count - each : 0;
           i < count && lines.size() < kDecisions; ++i) {
        lines.push_back({when(report, report.decisions[i].time), &report, &report.decisions[i]});
      }
    }
    std::stable_sort(lines.begin(), lines.end(),
                     [](const Line& a, const Line& b) { return a.time < b.time; });
    const auto peer_name = [&](const EndpointReport& report, std::uint32_t id) {
      const auto peer = std::find_if(report.peers.begin(), report.peers.end(),
                                     [&](const PeerReport& one) { return one.peer == id; });
      if (peer == report.peers.end()) return fmt::format("peer {}", id);
      const auto found = names.find(peer->endpoint);
      return found != names.end() ? found->second : fmt::format("pid {}", peer->pid);
    };
    Json list = Json::array();
    for (const Line& line : lines) {
      const DecisionReport& decision = *line.decision;
      list.push_back(Json::array({line.time, process_name(*line.report),
                                  peer_name(*line.report, decision.peer),
                                  static_cast<int>(decision.from), static_cast<int>(decision.to),
                                  text(decision.outcome), text(decision.reason)}));
    }
    return {{"all", all}, {"list", std::move(list)}};
  }

  std::span<const EndpointReport> reports_;
  const JobTraffic& traffic_;
  bool aligned_ = true;  // all began at a time that is known
  std::int64_t began_ = 0;
  double end_ = 0;
};

}  // namespace

Json page_data(std::span<const EndpointReport> reports, const JobTraffic& traffic) {
  return PageData(reports, traffic).make();
}

}  // namespace turnout::cli
