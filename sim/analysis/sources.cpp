// SPDX-License-Identifier: BSD-3-Clause
#include "sim/analysis/sources.h"

#include <fmt/format.h>

#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <utility>

namespace turnout::sim {
namespace {

using Kind = TraceEvent::Kind;

// How far the rank gets with each event.
std::uint64_t step(const TraceEvent& event, TraceAxis axis) {
  if (axis == TraceAxis::events) return 1;
  return event.kind == Kind::compute ? event.amount : 0;
}

Status nothing_to_take(std::uint32_t rank, TraceAxis axis) {
  return {Code::invalid,
          axis == TraceAxis::time
              ? fmt::format("rank {} has no times in this trace; use --axis events", rank)
              : fmt::format("rank {} computes nothing in this trace; use --axis events", rank)};
}

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

TraceAxis usual_axis(const Trace& trace, std::uint32_t rank) noexcept {
  const bool timed = rank < trace.ranks() && !trace.programs[rank].empty() &&
                     trace.has_times(rank) && trace.programs[rank].back().time > 0;
  return timed ? TraceAxis::time : TraceAxis::events;
}

Result<Arrivals> arrivals_of_trace(const Trace& trace, std::uint32_t rank, TraceAxis axis) {
  if (rank >= trace.ranks()) {
    return Status{Code::invalid, fmt::format("rank {} is not in the trace, which has ranks 0 to {}",
                                             rank, trace.ranks() == 0 ? 0 : trace.ranks() - 1)};
  }
  const std::vector<TraceEvent>& events = trace.programs[rank];
  const bool timed = axis == TraceAxis::time;
  std::uint64_t length = 0;
  if (!timed) {
    for (const TraceEvent& event : events) length += step(event, axis);
  } else if (!events.empty() && trace.has_times(rank)) {
    length = static_cast<std::uint64_t>(std::max<std::int64_t>(events.back().time, 0));
  }
  if (length == 0 && !events.empty()) return nothing_to_take(rank, axis);
  Arrivals arrivals;
  arrivals.sources = trace.ranks();
  if (axis == TraceAxis::events) {
    arrivals.axis = fmt::format("event number of rank {}", rank);
    arrivals.length = static_cast<double>(length);
  } else {
    arrivals.axis = timed ? fmt::format("time of rank {}", rank)
                          : fmt::format("processor time of rank {} outside of communication", rank);
    arrivals.unit = std::string("s");
    arrivals.length = static_cast<double>(length) / 1e9;
  }
  std::unordered_map<std::uint32_t, std::uint32_t> pending;  // receive's request, source
  const auto count = [&](std::uint64_t at, std::uint32_t source) {
    if (source == rank) return;
    const double position = static_cast<double>(at) / static_cast<double>(length);
    arrivals.batches.push_back({position, position, source, 1});
  };
  std::uint64_t at = 0;
  for (const TraceEvent& event : events) {
    if (timed) at = static_cast<std::uint64_t>(event.time);
    if (event.kind == Kind::receive) pending[event.request] = event.peer;
    if (event.kind == Kind::wait) {
      if (const auto found = pending.find(event.request); found != pending.end()) {
        count(at, found->second);
        pending.erase(found);
      }
    }
    if (!timed) at += step(event, axis);
  }
  for (const auto& [request, source] : pending) count(at, source);
  return arrivals;
}

Result<SourceGrid> SourceGrid::make(const Arrivals& arrivals, std::uint32_t periods,
                                    std::uint32_t groups) {
  const auto out_of_range = [](std::string_view what, std::uint32_t value) {
    return Status{Code::invalid, fmt::format("{} {}: expected 1 to {}", what, value, kMostCells)};
  };
  if (periods == 0 || periods > kMostCells) return out_of_range("periods", periods);
  if (groups == 0 || groups > kMostCells) return out_of_range("groups", groups);
  SourceGrid grid;
  grid.sources_ = std::max(arrivals.sources, 1U);
  grid.periods_ = periods;
  grid.groups_ = std::min(groups, grid.sources_);
  grid.cells_.resize(std::size_t{grid.periods_} * grid.groups_);
  for (const Arrivals::Batch& batch : arrivals.batches) {
    if (batch.source >= arrivals.sources) {
      return Status{Code::invalid, fmt::format("message of source {}: only {} sources",
                                               batch.source, arrivals.sources)};
    }
    if (!(batch.begin >= 0 && batch.begin <= batch.end && batch.end <= 1)) {
      return Status{
          Code::invalid,
          fmt::format("messages from {} to {}: expected positions from 0 to 1, start before end",
                      batch.begin, batch.end)};
    }
    grid.add(batch);
  }
  for (const double cell : grid.cells_) grid.most_ = std::max(grid.most_, cell);
  return grid;
}

void SourceGrid::add(const Arrivals::Batch& batch) {
  double* const row = &cells_[std::size_t{group_of(batch.source)} * periods_];
  const auto messages = static_cast<double>(batch.messages);
  const double duration = batch.end - batch.begin;
  const std::uint32_t first = period_of(batch.begin), last = period_of(batch.end);
  if (first == last || !(duration > 0)) {
    row[first] += messages;
    return;
  }
  for (std::uint32_t period = first; period <= last; ++period) {
    const double begin = std::max(batch.begin, static_cast<double>(period) / periods_);
    const double end = std::min(batch.end, static_cast<double>(period + 1) / periods_);
    row[period] += messages * std::max(end - begin, 0.0) / duration;
  }
}

double SourceGrid::total() const noexcept {
  double sum = 0;
  for (const double cell : cells_) sum += cell;
  return sum;
}

std::string to_plot_json(const SourceGrid& grid, const Arrivals& arrivals,
                         const std::string& title) {
  using Json = nlohmann::ordered_json;
  // Enough for any eye, and short.
  const auto rounded = [](double v) { return std::round(v * 1000) / 1000; };
  Json rows = Json::array();
  for (std::uint32_t g = 0; g < grid.groups(); ++g) {
    Json row = Json::array();
    for (std::uint32_t p = 0; p < grid.periods(); ++p) {
      row.push_back(rounded(grid.darkness(grid.messages(p, g))));
    }
    rows.push_back(std::move(row));
  }
  Json ticks = Json::array({{{"at", 0}, {"text", "0"}}});
  std::uint64_t count = 1;
  while (static_cast<double>(count) < grid.most()) {
    const double at = grid.darkness(static_cast<double>(count));
    if (at > 0.93) break;  // the last one's own word needs the place
    ticks.push_back({{"at", rounded(at)}, {"text", fmt::format("{}", count)}});
    if (count > std::numeric_limits<std::uint64_t>::max() / 10) break;
    count *= 10;
  }
  if (grid.most() > 0) {
    ticks.push_back({{"at", 1}, {"text", fmt::format("{:.0f}", grid.most())}});
  }
  const double sources = std::max(arrivals.sources, 1U);
  const Json plot = {
      {"kind", "grid"},
      {"title", title},
      {"x_label", arrivals.unit.empty() ? arrivals.axis
                                        : fmt::format("{} ({})", arrivals.axis, arrivals.unit)},
      {"y_label", arrivals.who},
      {"x_from", 0},
      {"x_to", arrivals.length},
      {"y_from", 0},
      {"y_to", sources},
      {"scale_label",
       fmt::format("messages per cell, log scale\n(cell: 1/{} of the x axis)", grid.periods())},
      {"ticks", std::move(ticks)},
      {"darkness", std::move(rows)}};
  return Json{{"format", 1}, {"plots", Json::array({plot})}}.dump(-1, ' ', false,
                                                                  Json::error_handler_t::replace) +
         "\n";
}

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
