#include "sim/source_history.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

namespace turnout::sim {

namespace {

using Json = nlohmann::json;

Status wrong(std::string_view place, std::string_view expected) {
  return {Code::invalid, fmt::format("a report whose \"{}\" is not {}", place, expected)};
}

template <class Integer>
std::optional<Integer> whole(const Json& value) {
  if (!value.is_number_unsigned()) return {};
  const auto number = value.get<std::uint64_t>();
  if (!std::in_range<Integer>(number)) return {};
  return static_cast<Integer>(number);
}

Result<SourceInterval> read_interval(const Json& json, const std::string& place,
                                     const std::set<std::uint32_t>& peers) {
  if (!json.is_object()) return wrong(place, "an object");
  SourceInterval interval;
  for (const auto& [key, out] :
       {std::pair{"begin_ns", &interval.begin}, std::pair{"end_ns", &interval.end}}) {
    const auto found = json.find(key);
    const auto number = found == json.end() ? std::nullopt : whole<std::int64_t>(*found);
    if (!number) return wrong(fmt::format("{}.{}", place, key), "a time in nanoseconds");
    *out = *number;
  }
  if (interval.end < interval.begin) {
    return wrong(fmt::format("{}.end_ns", place), "after its begin_ns");
  }
  const auto sources = json.find("sources");
  if (sources == json.end() || !sources->is_array()) {
    return wrong(fmt::format("{}.sources", place), "an array");
  }
  for (std::size_t i = 0; i < sources->size(); ++i) {
    const Json& pair = (*sources)[i];
    const std::string at = fmt::format("{}.sources[{}]", place, i);
    if (!pair.is_array() || pair.size() != 2) return wrong(at, "a peer and its messages");
    const auto peer = whole<std::uint32_t>(pair[0]);
    const auto messages = whole<std::uint64_t>(pair[1]);
    if (!peer || !peers.contains(*peer)) return wrong(at + "[0]", "one of the report's peers");
    if (!messages) return wrong(at + "[1]", "a number of messages");
    interval.sources.emplace_back(*peer, *messages);
  }
  return interval;
}

Result<const ReportWithHistory*> report_of(std::span<const ReportWithHistory> reports, int rank) {
  const auto messages = [](const ReportWithHistory& r) {
    std::uint64_t sum = 0;
    for (const PeerReport& peer : r.report.peers) {
      for (const ChannelSpan& span : peer.receive.spans) sum += span.messages;
    }
    return sum;
  };
  // An MPI library may open endpoints that it does not use.
  const ReportWithHistory* best = nullptr;
  for (const ReportWithHistory& r : reports) {
    if (rank >= 0 && r.report.rank != rank) continue;
    if (best == nullptr || messages(r) > messages(*best)) best = &r;
  }
  if (best == nullptr) {
    return Status{Code::invalid,
                  fmt::format("no report of rank {} among {}", rank, reports.size())};
  }
  return best;
}

// Source numbers of the report's peers: their ranks where all are known.
std::map<std::uint32_t, std::uint32_t> number_peers(std::span<const ReportWithHistory> reports,
                                                    const ReportWithHistory& of,
                                                    Arrivals* arrivals) {
  std::map<std::uint64_t, int> rank_of;
  for (const ReportWithHistory& r : reports) {
    if (r.report.job == of.report.job) rank_of[r.report.endpoint] = r.report.rank;
  }
  std::map<std::uint32_t, std::uint32_t> numbers;
  bool known = true;
  for (const PeerReport& peer : of.report.peers) {
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
    if (of.report.rank >= 0 && of.report.rank < (1 << 20)) {
      arrivals->sources =
          std::max(arrivals->sources, static_cast<std::uint32_t>(of.report.rank) + 1);
    }
    return numbers;
  }
  numbers.clear();
  for (const PeerReport& peer : of.report.peers) numbers.emplace(peer.peer, 0);
  std::uint32_t next = 0;
  for (auto& [peer, number] : numbers) number = next++;
  arrivals->sources = next;
  arrivals->who = "source, in the order in which the process heard of them";
  return numbers;
}

}  // namespace

Result<ReportWithHistory> read_report_with_history(std::string_view text) {
  Result<EndpointReport> report = report_from_json(text);
  if (!report) return report.status();
  ReportWithHistory out;
  out.report = std::move(report).value();
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return Status{Code::invalid, "not JSON, or JSON that was cut off"};
  const auto history = json.find("history");
  if (history == json.end()) return out;
  if (!history->is_array()) return wrong("history", "an array");
  out.has_history = true;
  std::set<std::uint32_t> peers;
  for (const PeerReport& peer : out.report.peers) peers.insert(peer.peer);
  for (std::size_t i = 0; i < history->size(); ++i) {
    Result<SourceInterval> interval =
        read_interval((*history)[i], fmt::format("history[{}]", i), peers);
    if (!interval) return interval.status();
    out.history.push_back(std::move(interval).value());
  }
  return out;
}

Result<Arrivals> arrivals_of_reports(std::span<const ReportWithHistory> reports, int rank) {
  const Result<const ReportWithHistory*> found = report_of(reports, rank);
  if (!found) return found.status();
  const ReportWithHistory& of = *found.value();
  if (!of.has_history) {
    return Status{
        Code::invalid,
        fmt::format("the report of rank {} says how many messages each peer sent, but not "
                    "when (it has no \"history\"); record the program with "
                    "TURNOUT_TRACE=FOLDER/ and give that folder instead",
                    of.report.rank)};
  }
  Arrivals arrivals;
  const std::map<std::uint32_t, std::uint32_t> numbers = number_peers(reports, of, &arrivals);
  std::int64_t length = of.report.lifetime;
  for (const SourceInterval& interval : of.history) length = std::max(length, interval.end);
  if (length <= 0) {
    return Status{Code::invalid, "a report of no duration: its \"lifetime_ns\" is 0"};
  }
  arrivals.axis = of.report.rank < 0 ? fmt::format("time of process {}", of.report.pid)
                                     : fmt::format("time of rank {}", of.report.rank);
  arrivals.unit = std::string("s");
  arrivals.length = static_cast<double>(length) / 1e9;
  const auto position = [length](std::int64_t at) {
    return static_cast<double>(at) / static_cast<double>(length);
  };
  for (const SourceInterval& interval : of.history) {
    for (const auto& [peer, messages] : interval.sources) {
      arrivals.batches.push_back(
          {position(interval.begin), position(interval.end), numbers.at(peer), messages});
    }
  }
  return arrivals;
}

}  // namespace turnout::sim
