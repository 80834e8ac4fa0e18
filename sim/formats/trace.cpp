// SPDX-License-Identifier: BSD-3-Clause
#include "sim/formats/trace.h"

#include <fmt/format.h>
#include <fmt/ostream.h>

#include <algorithm>
#include <limits>
#include <unordered_set>

#include "sim/formats/text_fields.h"

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

// The text is described in docs/trace.md.
constexpr std::string_view kMagic = "turnout-trace";
constexpr std::uint64_t kNewest = 2;  // 2: times, one-sided operations

class TraceReader {
 public:
  TraceReader(std::istream& in, const std::string& file, const TraceLimits& limits)
      : file_(file), limits_(limits), lines_(in, file) {}

  Result<Trace> read() {
    if (Status s = read_header(); !s.ok()) return s;
    const auto read_one = [this](Fields& fields) { read_line(fields); };
    if (Status s = read_lines(lines_, ended_, read_one); !s.ok()) return s;
    if (!ended_) {
      return Status{Code::invalid, fmt::format("{}, line {}: no \"end\": the trace is truncated",
                                               file_, lines_.number())};
    }
    if (lines_.next()) {
      return Status{Code::invalid, fmt::format("{}, line {}: unexpected content after \"end\"",
                                               file_, lines_.number())};
    }
    if (!lines_.status().ok()) return lines_.status();
    return std::move(trace_);
  }

 private:
  Status read_header() {
    const Result<std::uint64_t> version = read_first_line(lines_, file_, kMagic, kNewest, "trace");
    if (!version) return version.status();
    version_ = version.value();
    while (lines_.next()) {
      Fields fields = lines_.fields();
      const std::string_view key = fields.word();
      if (key == "name") {
        trace_.name = text(fields, key);
      } else if (key == "source") {
        trace_.source = text(fields, key);
      } else if (key == "ranks") {
        trace_.programs.resize(fields.number<std::size_t>("ranks", 1, limits_.ranks));
        fields.at_end();
        return fields.status();
      } else {
        fields.wrong(key, "expected name, source or ranks");
      }
      if (!fields.ok()) return fields.status();
    }
    if (!lines_.status().ok()) return lines_.status();
    return {Code::invalid, fmt::format("{}: the number of ranks is missing", file_)};
  }

  static std::string text(Fields& fields, std::string_view key) {
    std::string found(fields.rest());
    if (one_line(found)) return found;
    fields.wrong(key, "expected at most 1000 characters without control characters");
    return {};
  }

  void read_line(Fields& fields) {
    const std::string_view word = fields.word();
    if (word == "rank") {
      next_rank(fields);
    } else if (word == "end") {
      fields.at_end();
      ended_ = true;
    } else if (program_ == nullptr) {
      fields.wrong(word, "expected \"rank N\" before its events");
    } else if (++events_ > limits_.events) {
      fields.wrong("events", fmt::format("more than {}", limits_.events));
    } else if (word == "s" || word == "r") {
      read_message(fields, word == "s");
    } else if (version_ >= 2 && (word == "u" || word == "g")) {
      read_one_sided(fields, word == "u");
    } else if (word == "w") {
      TraceEvent event{.kind = TraceEvent::Kind::wait};
      event.request = fields.number<std::uint32_t>("request", 0, kMostRequest);
      read_time(fields, fields.word(), &event);
      if (fields.ok() && pending_.erase(event.request) == 0) {
        fields.wrong("request", fmt::format("{} is not pending", event.request));
      }
      program_->push_back(event);
    } else if (word == "c") {
      TraceEvent event{.kind = TraceEvent::Kind::compute};
      event.amount = fields.number<std::uint64_t>("nanoseconds", 0, kMostTraceCompute);
      read_time(fields, fields.word(), &event);
      program_->push_back(event);
    } else {
      fields.wrong(word.substr(0, 40), version_ == 1 ? "expected rank, s, r, w, c or end"
                                                     : "expected rank, s, r, u, g, w, c or end");
    }
  }

  // Ranks come in order, each once; one that does nothing may be left out.
  void next_rank(Fields& fields) {
    const auto rank = fields.number<std::size_t>("rank", next_rank_, trace_.programs.size() - 1);
    fields.at_end();
    if (!fields.ok()) return;
    program_ = &trace_.programs[rank];
    next_rank_ = rank + 1;
    latest_ = 0;
    pending_.clear();
  }

  // "at TIME" ends a line of layout 2, if the time is known; `word` is what stands there.
  void read_time(Fields& fields, std::string_view word, TraceEvent* event) {
    if (word.empty()) return;
    if (version_ == 1 || word != "at") {
      return fields.wrong("end of the line", fmt::format("unexpected \"{}\"", word.substr(0, 40)));
    }
    const auto time =
        fields.number<std::uint64_t>("time", static_cast<std::uint64_t>(latest_), kMostTraceTime);
    fields.at_end();
    event->time = latest_ = static_cast<std::int64_t>(time);
  }

  void begin(Fields& fields, const TraceEvent& event) {
    if (fields.ok() && !pending_.insert(event.request).second) {
      fields.wrong("request", fmt::format("{} is still pending", event.request));
    }
    program_->push_back(event);
  }

  void read_transfer(Fields& fields, std::string_view peer, TraceEvent* event) {
    event->request = fields.number<std::uint32_t>("request", 0, kMostRequest);
    event->peer = fields.number<std::uint32_t>(peer, 0, trace_.programs.size() - 1);
    event->amount = fields.number<std::uint64_t>("bytes", 0, kMostTraceBytes);
  }

  void read_one_sided(Fields& fields, bool puts) {
    TraceEvent event{.kind = puts ? TraceEvent::Kind::put : TraceEvent::Kind::get};
    read_transfer(fields, puts ? "destination" : "source", &event);
    read_time(fields, fields.word(), &event);
    begin(fields, event);
  }

  void read_message(Fields& fields, bool sends) {
    TraceEvent event{.kind = sends ? TraceEvent::Kind::send : TraceEvent::Kind::receive};
    read_transfer(fields, sends ? "destination" : "source", &event);
    event.tag = fields.number<std::uint64_t>("tag", 0, std::numeric_limits<std::uint64_t>::max());
    event.communicator =
        fields.number<std::uint32_t>("communicator", 0, std::numeric_limits<std::uint32_t>::max());
    for (std::string_view word = fields.word(); !word.empty(); word = fields.word()) {
      if (version_ >= 2 && word == "at") {
        read_time(fields, word, &event);
        break;
      }
      bool* const flag = word == "any-source" ? &event.any_source
                         : word == "any-tag"  ? &event.any_tag
                                              : nullptr;
      if (sends || flag == nullptr || *flag) {
        fields.wrong("end of the line",
                     fmt::format("\"{}\": expected any-source or any-tag of a receive, once each",
                                 word.substr(0, 40)));
        return;
      }
      *flag = true;
    }
    begin(fields, event);
  }

  const std::string& file_;
  const TraceLimits& limits_;
  Lines lines_;
  Trace trace_;
  std::vector<TraceEvent>* program_ = nullptr;
  std::unordered_set<std::uint32_t> pending_;
  std::size_t next_rank_ = 0;
  std::uint64_t events_ = 0;
  std::uint64_t version_ = kNewest;
  std::int64_t latest_ = 0;  // time of the rank's events so far
  bool ended_ = false;
};

bool needs_layout_2(const Trace& trace) {
  const auto newer = [](const TraceEvent& event) {
    return event.time != TraceEvent::kNoTime || event.is_one_sided();
  };
  return std::any_of(trace.programs.begin(), trace.programs.end(), [&](const auto& program) {
    return std::any_of(program.begin(), program.end(), newer);
  });
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

Result<Trace> read_trace(std::istream& in, const std::string& file, const TraceLimits& limits) {
  return TraceReader(in, file, limits).read();
}

Result<Trace> read_trace_file(const std::string& path, const TraceLimits& limits) {
  return read_stream(path, "trace", [&](std::istream& in) { return read_trace(in, path, limits); });
}

Status write_trace(const Trace& trace, std::ostream& out) {
  if (Status s = check_trace(trace); !s.ok()) return s;
  fmt::print(out, "{} {}\n", kMagic, needs_layout_2(trace) ? 2 : 1);
  if (!trace.name.empty()) fmt::print(out, "name {}\n", trace.name);
  if (!trace.source.empty()) fmt::print(out, "source {}\n", trace.source);
  fmt::print(out, "ranks {}\n", trace.ranks());
  fmt::memory_buffer lines;
  for (std::uint32_t rank = 0; rank < trace.ranks(); ++rank) {
    if (trace.programs[rank].empty()) continue;
    fmt::format_to(fmt::appender(lines), "rank {}\n", rank);
    for (const TraceEvent& event : trace.programs[rank]) {
      switch (event.kind) {
        case TraceEvent::Kind::send:
        case TraceEvent::Kind::receive:
          fmt::format_to(fmt::appender(lines), "{} {} {} {} {} {}{}{}",
                         event.kind == TraceEvent::Kind::send ? 's' : 'r', event.request,
                         event.peer, event.amount, event.tag, event.communicator,
                         event.any_source ? " any-source" : "", event.any_tag ? " any-tag" : "");
          break;
        case TraceEvent::Kind::wait:
          fmt::format_to(fmt::appender(lines), "w {}", event.request);
          break;
        case TraceEvent::Kind::compute:
          fmt::format_to(fmt::appender(lines), "c {}", event.amount);
          break;
        case TraceEvent::Kind::put:
        case TraceEvent::Kind::get:
          fmt::format_to(fmt::appender(lines), "{} {} {} {}",
                         event.kind == TraceEvent::Kind::put ? 'u' : 'g', event.request, event.peer,
                         event.amount);
          break;
      }
      if (event.time != TraceEvent::kNoTime) {
        fmt::format_to(fmt::appender(lines), " at {}", event.time);
      }
      lines.push_back('\n');
      if (lines.size() >= 65536) {
        out.write(lines.data(), static_cast<std::streamsize>(lines.size()));
        lines.clear();
      }
    }
  }
  out.write(lines.data(), static_cast<std::streamsize>(lines.size()));
  out << "end\n";
  out.flush();
  if (!out) return {Code::system, "writing the trace failed; check the free disk space", EIO};
  return {};
}

}  // namespace turnout::sim
