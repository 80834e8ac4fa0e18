// SPDX-License-Identifier: BSD-3-Clause
#include "sim/formats/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>

namespace turnout::sim {

namespace {

bool one_line(const std::string& text) {
  return text.size() <= 1000 && std::all_of(text.begin(), text.end(), [](char c) {
           return static_cast<unsigned char>(c) >= 0x20 && c != 0x7f;
         });
}

bool blank_around(const std::string& text) {
  return !text.empty() && (text.front() == ' ' || text.back() == ' ');
}

std::uint64_t count_events(const Trace& trace) {
  std::uint64_t events = 0;
  for (const auto& program : trace.programs) events += program.size();
  return events;
}

std::string wrong_in(const TraceEvent& event, std::uint32_t ranks,
                     std::unordered_set<std::uint32_t>* pending, std::int64_t* latest) {
  using Kind = TraceEvent::Kind;
  if (event.time != TraceEvent::kNoTime) {
    if (event.time < 0 || event.time > kMostTraceTime) return "time is out of range";
    if (event.time < *latest) return "time is before that of the previous event";
    *latest = event.time;
  }
  if (event.kind == Kind::compute) {
    return event.amount <= kMostTraceCompute ? "" : "computation of more than 11 days";
  }
  if (event.request > kMostRequest) return "request number is out of range";
  if (event.kind == Kind::wait) {
    return pending->erase(event.request) != 0 ? "" : "wait for a request that is not pending";
  }
  if (event.peer >= ranks) return fmt::format("peer {} of {} ranks", event.peer, ranks);
  if (event.amount > kMostTraceBytes) return "message of more than 1 TiB";
  if (event.kind != Kind::receive && (event.any_source || event.any_tag)) {
    return "a send must have one destination and one tag";
  }
  return pending->insert(event.request).second ? "" : "its request is still pending";
}

}  // namespace

bool Trace::has_times(std::uint32_t rank) const noexcept {
  const auto& program = programs[rank];
  return std::all_of(program.begin(), program.end(),
                     [](const TraceEvent& event) { return event.time != TraceEvent::kNoTime; });
}

Status check_trace(const Trace& trace, const TraceLimits& limits) {
  if (trace.programs.empty() || trace.programs.size() > limits.ranks) {
    return {Code::invalid, fmt::format("trace of {} ranks: expected 1 to {}", trace.programs.size(),
                                       limits.ranks)};
  }
  if (const std::uint64_t events = count_events(trace); events > limits.events) {
    return {Code::invalid,
            fmt::format("trace of {} events: expected at most {}", events, limits.events)};
  }
  for (const std::string* text : {&trace.name, &trace.source}) {
    if (!one_line(*text) || blank_around(*text)) {
      return {Code::invalid,
              "name and source of a trace: expected one line of at most 1000 characters, without "
              "leading or trailing blanks"};
    }
  }
  for (std::uint32_t rank = 0; rank < trace.ranks(); ++rank) {
    std::unordered_set<std::uint32_t> pending;
    std::int64_t latest = 0;
    std::size_t at = 0;
    for (const TraceEvent& event : trace.programs[rank]) {
      if (const std::string why = wrong_in(event, trace.ranks(), &pending, &latest); !why.empty()) {
        return {Code::invalid, fmt::format("rank {}, event {}: {}", rank, at, why)};
      }
      ++at;
    }
  }
  return {};
}

Result<Trace> repeat_trace(const Trace& trace, std::uint32_t copies, const TraceLimits& limits) {
  const std::uint64_t ranks = std::uint64_t{trace.ranks()} * copies;
  if (copies == 0 || ranks > limits.ranks) {
    return Status{Code::invalid,
                  fmt::format("{} copies of a trace of {} ranks: expected 1 to {} ranks in total",
                              copies, trace.ranks(), limits.ranks)};
  }
  // Both factors are below 2^32.
  if (count_events(trace) * std::uint64_t{copies} > limits.events) {
    return Status{
        Code::invalid,
        fmt::format("{} copies of a trace of {} events: expected at most {} events in total",
                    copies, count_events(trace), limits.events)};
  }
  Trace out;
  out.name = trace.name;
  out.source = trace.source;
  out.programs.reserve(ranks);
  for (std::uint32_t copy = 0; copy < copies; ++copy) {
    for (const auto& program : trace.programs) {
      out.programs.push_back(program);
      for (TraceEvent& event : out.programs.back()) {
        if (event.is_message() || event.is_one_sided()) event.peer += copy * trace.ranks();
      }
    }
  }
  return out;
}

std::uint64_t compact_tags(Trace* trace) {
  std::map<std::pair<std::uint32_t, std::uint64_t>, std::uint64_t> numbers;
  for (auto& program : trace->programs) {
    for (TraceEvent& event : program) {
      if (!event.is_message()) continue;
      event.tag =
          numbers.emplace(std::pair{event.communicator, event.tag}, numbers.size()).first->second;
      event.communicator = 0;
    }
  }
  return numbers.size();
}

std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint64_t> message_counts(
    const Trace& trace) {
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint64_t> counts;
  for (std::uint32_t rank = 0; rank < trace.ranks(); ++rank) {
    for (const TraceEvent& event : trace.programs[rank]) {
      if (event.kind == TraceEvent::Kind::send) ++counts[{rank, event.peer}];
    }
  }
  return counts;
}

}  // namespace turnout::sim
