// SPDX-License-Identifier: BSD-3-Clause
// Traces: what is written is read back; what is wrong is refused with its line and field.
#include "sim/formats/trace.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <sstream>

namespace turnout::sim {
namespace {

using Kind = TraceEvent::Kind;

Result<Trace> read(const std::string& text, const TraceLimits& limits = {}) {
  std::istringstream in(text);
  return read_trace(in, "test", limits);
}

std::string write(const Trace& trace) {
  std::ostringstream out;
  const Status status = write_trace(trace, out);
  EXPECT_TRUE(status.ok()) << status.text();
  return out.str();
}

rc::Gen<std::vector<TraceEvent>> program(std::uint32_t ranks) {
  return rc::gen::exec([ranks] {
    std::vector<TraceEvent> events;
    std::vector<std::uint32_t> pending;
    const int n = *rc::gen::inRange(0, 30);
    for (int i = 0; i < n; ++i) {
      TraceEvent event;
      event.kind = static_cast<Kind>(*rc::gen::inRange(0, 4));
      if (event.kind == Kind::wait && pending.empty()) continue;
      switch (event.kind) {
        case Kind::wait: {
          const auto at = *rc::gen::inRange<std::size_t>(0, pending.size());
          event.request = pending[at];
          pending.erase(pending.begin() + static_cast<std::ptrdiff_t>(at));
          break;
        }
        case Kind::compute:
          event.amount = *rc::gen::inRange<std::uint64_t>(0, kMostTraceCompute + 1);
          break;
        default:
          event.request = static_cast<std::uint32_t>(i) * 7;  // unique
          pending.push_back(event.request);
          event.peer = *rc::gen::inRange<std::uint32_t>(0, ranks);
          event.amount = *rc::gen::inRange<std::uint64_t>(0, kMostTraceBytes + 1);
          event.tag = *rc::gen::arbitrary<std::uint64_t>();
          event.communicator = *rc::gen::arbitrary<std::uint32_t>();
          if (event.kind == Kind::receive) {
            event.any_source = *rc::gen::arbitrary<bool>();
            event.any_tag = *rc::gen::arbitrary<bool>();
          }
      }
      events.push_back(event);
    }
    return events;
  });
}

rc::Gen<Trace> any_trace() {
  return rc::gen::exec([] {
    Trace trace;
    const auto ranks = *rc::gen::inRange<std::uint32_t>(1, 6);
    if (*rc::gen::arbitrary<bool>()) trace.name = "a name";
    if (*rc::gen::arbitrary<bool>()) trace.source = "# by hand";
    for (std::uint32_t i = 0; i < ranks; ++i) trace.programs.push_back(*program(ranks));
    return trace;
  });
}

RC_GTEST_PROP(TraceProperty, WhatIsWrittenIsReadBack, ()) {
  const Trace trace = *any_trace();
  RC_ASSERT(check_trace(trace).ok());
  const std::string text = write(trace);
  const Result<Trace> again = read(text);
  RC_ASSERT(again.ok());
  RC_ASSERT(again.value() == trace);
  RC_ASSERT(write(again.value()) == text);
}

RC_GTEST_PROP(TraceProperty, WhatIsCutOffIsRefused, ()) {
  const std::string text = write(*any_trace());
  const auto length = *rc::gen::inRange<std::size_t>(0, text.size() - 1);
  RC_ASSERT(!read(text.substr(0, length)).ok());
}

RC_GTEST_PROP(TraceProperty, OneLetterChangedIsReadOrRefused, ()) {
  std::string text = write(*any_trace());
  text[*rc::gen::inRange<std::size_t>(0, text.size())] = *rc::gen::arbitrary<char>();
  const Result<Trace> changed = read(text);
  if (changed.ok()) RC_ASSERT(check_trace(changed.value()).ok());
}

RC_GTEST_PROP(TraceProperty, CopiesKeepToThemselves, ()) {
  const Trace trace = *any_trace();
  const auto copies = *rc::gen::inRange<std::uint32_t>(1, 5);
  const Result<Trace> repeated = repeat_trace(trace, copies);
  RC_ASSERT(repeated.ok());
  RC_ASSERT(repeated.value().ranks() == trace.ranks() * copies);
  RC_ASSERT(check_trace(repeated.value()).ok());
  const auto once = message_counts(trace), all = message_counts(repeated.value());
  RC_ASSERT(all.size() == once.size() * copies);
  for (const auto& [pair, count] : all) {
    RC_ASSERT(pair.first / trace.ranks() == pair.second / trace.ranks());
    RC_ASSERT(once.at({pair.first % trace.ranks(), pair.second % trace.ranks()}) == count);
  }
}

RC_GTEST_PROP(TraceProperty, CompactTagsTellTheSameApart, ()) {
  const Trace trace = *any_trace();
  Trace compact = trace;
  const std::uint64_t count = compact_tags(&compact);
  std::map<std::uint64_t, std::pair<std::uint32_t, std::uint64_t>> meaning;
  for (std::size_t rank = 0; rank < trace.programs.size(); ++rank) {
    for (std::size_t i = 0; i < trace.programs[rank].size(); ++i) {
      const TraceEvent& from = trace.programs[rank][i];
      const TraceEvent& to = compact.programs[rank][i];
      if (from.kind != Kind::send && from.kind != Kind::receive) continue;
      RC_ASSERT(to.tag < count && to.communicator == 0);
      const std::pair<std::uint32_t, std::uint64_t> original{from.communicator, from.tag};
      RC_ASSERT(meaning.emplace(to.tag, original).first->second == original);
    }
  }
  RC_ASSERT(meaning.size() == count);
}

TEST(Trace, ReadsTheExampleOfTheDocumentation) {
  const Result<Trace> trace = read(
      "turnout-trace 1\n"
      "# a ping-pong\r\n"
      "name ping-pong\n"
      "ranks 3\n"
      "\n"
      "rank 0\n"
      "s 1 1 8 7 0\n"
      "w 1\n"
      "c 1500\n"
      "r 1 1 8 7 0 any-source any-tag\n"
      "  w  1\n"
      "rank 1\n"
      "r 5 0 8 7 0\n"
      "w 5\n"
      "s 5 0 8 7 0\n"
      "end\n");
  ASSERT_TRUE(trace.ok()) << trace.status().text();
  EXPECT_EQ(trace.value().name, "ping-pong");
  ASSERT_EQ(trace.value().ranks(), 3u);
  ASSERT_EQ(trace.value().programs[0].size(), 5u);
  EXPECT_TRUE(trace.value().programs[0][3].any_source);
  EXPECT_EQ(trace.value().programs[0][2].amount, 1500u);
  EXPECT_TRUE(trace.value().programs[2].empty());
  EXPECT_EQ(message_counts(trace.value()).size(), 2u);
}

struct Refusal {
  std::string text;
  const char* says;
};

TEST(Trace, WhatIsWrongIsRefusedWithItsLine) {
  const std::string head = "turnout-trace 1\nranks 2\nrank 0\n";
  const Refusal table[] = {
      {"", "empty"},
      {"GIF89a\n", "test, line 1: first line: expected \"turnout-trace 2\""},
      {"turnout-trace\n", "version"},
      {"turnout-trace 3\n", "format version 3"},
      {"turnout-trace 1 x\n", "unexpected \"x\""},
      {"turnout-trace 1\nranks 1\nrank 0\nc 5 at 3\nend\n", "unexpected \"at\""},
      {"turnout-trace 1\nranks 1\nrank 0\nu 1 0 8\nend\n", "expected rank"},
      {"turnout-trace 2\nranks 1\nrank 0\nc 5 3\nend\n", "unexpected \"3\""},
      {"turnout-trace 2\nranks 1\nrank 0\nc 5 at\nend\n", "line 4: time"},
      {"turnout-trace 2\nranks 1\nrank 0\nc 5 at 9\nc 5 at 8\nend\n", "line 5: time"},
      {"turnout-trace 2\nranks 1\nrank 0\nu 1 1 8\nend\n", "line 4: destination"},
      {"turnout-trace 2\nranks 1\nrank 0\ng 1 0 8 at 1 x\nend\n", "unexpected \"x\""},
      {"turnout-trace 1\n", "number of ranks"},
      {"turnout-trace 1\nranks 0\n", "line 2: ranks"},
      {"turnout-trace 1\nranks 2000000\n", "line 2: ranks"},
      {"turnout-trace 1\nrank 0\n", "expected name, source or ranks"},
      {"turnout-trace 1\nname a\x01b\n", "name"},
      {"turnout-trace 1\nranks 2\ns 1 1 8 7 0\n", "expected \"rank N\""},
      {"turnout-trace 1\nranks 2\nrank 2\n", "line 3: rank"},
      {"turnout-trace 1\nranks 2\nrank 1\nrank 0\n", "line 4: rank"},
      {head, "truncated"},
      {head + "end\nend\n", "unexpected content after"},
      {head + "end x\n", "unexpected \"x\""},
      {head + "s 1 2 8 7 0\nend\n", "line 4: destination"},
      {head + "r 1 2 8 7 0\nend\n", "line 4: source"},
      {head + "s 1 1 8 7\nend\n", "communicator"},
      {head + "s 1 1 8 -7 0\nend\n", "tag"},
      {head + "s 1 1 8 18446744073709551616 0\nend\n", "tag"},
      {head + "s 1 1 1099511627777 7 0\nend\n", "bytes"},
      {head + "s 1 1 8 7 4294967296\nend\n", "communicator"},
      {head + "s 4294967295 1 8 7 0\nend\n", "request"},
      {head + "s 1 1 8 7 0 any-tag\nend\n", "any-tag"},
      {head + "r 1 1 8 7 0 any-tag any-tag\nend\n", "any-tag"},
      {head + "r 1 1 8 7 0 sometimes\nend\n", "sometimes"},
      {head + "s 1 1 8 7 0\ns 1 1 8 7 0\nend\n", "line 5: request: 1 is still pending"},
      {head + "w 1\nend\n", "line 4: request: 1 is not pending"},
      {head + "s 1 1 8 7 0\nw 1\nw 1\nend\n", "line 6"},
      {head + "s 1 1 8 7 0\nrank 1\nw 1\nend\n", "line 6"},
      {head + "c 1000000000000001\nend\n", "nanoseconds"},
      {head + "c 1.5\nend\n", "nanoseconds"},
      {head + "x 1\nend\n", "expected rank, s, r, w, c or end"},
      {head + std::string(5000, 'c') + "\nend\n", "line 4: longer than"},
      {std::string("turnout-trace 1\nranks 2\nrank 0\nc 1\0\nend\n", 40), "nanoseconds"},
  };
  for (const Refusal& row : table) {
    const Result<Trace> trace = read(row.text);
    ASSERT_FALSE(trace.ok()) << row.text;
    EXPECT_NE(trace.status().text().find(row.says), std::string::npos)
        << row.text << trace.status().text();
  }
  EXPECT_FALSE(read(head + "c 1\nc 1\nc 1\nend\n", {.ranks = 2, .events = 2}).ok());
  EXPECT_EQ(read("turnout-trace 9\n").status().code(), Code::version);
}

TEST(Trace, WhatCannotBeReadIsNotWritten) {
  Trace trace;
  std::ostringstream out;
  EXPECT_FALSE(write_trace(trace, out).ok());
  trace.programs.resize(2);
  trace.name = "two\nlines";
  EXPECT_FALSE(write_trace(trace, out).ok());
  trace.name = "";
  TraceEvent wait;
  wait.kind = Kind::wait;
  trace.programs[1] = {wait};
  const Status status = write_trace(trace, out);
  EXPECT_NE(status.text().find("rank 1, event 0"), std::string::npos) << status.text();
}

TEST(Trace, CopiesAreLimited) {
  Trace trace;
  trace.programs.resize(3);
  EXPECT_FALSE(repeat_trace(trace, 0).ok());
  EXPECT_FALSE(repeat_trace(trace, 0xffffffff).ok());
  EXPECT_TRUE(repeat_trace(trace, 1000).ok());
  trace.programs[0].resize(100);
  EXPECT_FALSE(repeat_trace(trace, 10, {.ranks = 100, .events = 999}).ok());
}

TEST(Trace, FilesThatAreNotThere) {
  EXPECT_EQ(read_trace_file("/nonexistent/trace").status().code(), Code::system);
  EXPECT_FALSE(read_trace_file("/").ok());
}

}  // namespace
}  // namespace turnout::sim
