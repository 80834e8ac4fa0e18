// SPDX-License-Identifier: BSD-3-Clause
// Who sends to a rank over time: positions, periods, groups and darkness by examples.
#include "sim/analysis/sources.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace turnout::sim {
namespace {

using Kind = TraceEvent::Kind;

TraceEvent receive(std::uint32_t request, std::uint32_t from) {
  TraceEvent event;
  event.kind = Kind::receive;
  event.request = request;
  event.peer = from;
  return event;
}

TraceEvent wait(std::uint32_t request) {
  TraceEvent event;
  event.kind = Kind::wait;
  event.request = request;
  return event;
}

TraceEvent compute(std::uint64_t nanoseconds) {
  TraceEvent event;
  event.amount = nanoseconds;
  return event;
}

// Rank 0 hears of 1, computes long, hears of 2, computes shortly; a message of its own and one that
// nobody waited for.
Trace sample() {
  Trace trace;
  trace.programs.resize(4);
  trace.programs[0] = {receive(1, 1), wait(1), compute(9'000'000'000), receive(1, 2), wait(1),
                       receive(2, 0), wait(2), compute(1'000'000'000), receive(3, 3), wait(9)};
  return trace;
}

TEST(Sources, ATraceIsCountedAtItsEvents) {
  const Result<Arrivals> arrivals = arrivals_of_trace(sample(), 0, TraceAxis::events);
  ASSERT_TRUE(arrivals.ok()) << arrivals.status().text();
  EXPECT_EQ(arrivals.value().sources, 4U);
  EXPECT_EQ(arrivals.value().length, 10);
  const auto grid = SourceGrid::make(arrivals.value(), 10, 100);
  ASSERT_TRUE(grid.ok()) << grid.status().text();
  EXPECT_EQ(grid.value().groups(), 4U);  // no more than sources
  EXPECT_EQ(grid.value().messages(1, 1), 1);
  EXPECT_EQ(grid.value().messages(4, 2), 1);
  EXPECT_EQ(grid.value().messages(9, 3), 1);  // at the end
  EXPECT_EQ(grid.value().total(), 3);         // not its own
}

TEST(Sources, OrAtItsComputing) {
  const Result<Arrivals> arrivals = arrivals_of_trace(sample(), 0, TraceAxis::computing);
  ASSERT_TRUE(arrivals.ok()) << arrivals.status().text();
  EXPECT_EQ(arrivals.value().length, 10);
  EXPECT_EQ(arrivals.value().unit, "s");
  const auto grid = SourceGrid::make(arrivals.value(), 10, 100);
  ASSERT_TRUE(grid.ok());
  EXPECT_EQ(grid.value().messages(0, 1), 1);
  EXPECT_EQ(grid.value().messages(9, 2), 1);
  EXPECT_EQ(grid.value().messages(9, 3), 1);
  Trace idle = sample();
  std::erase_if(idle.programs[0], [](const TraceEvent& e) { return e.kind == Kind::compute; });
  EXPECT_FALSE(arrivals_of_trace(idle, 0, TraceAxis::computing).ok());
  EXPECT_FALSE(arrivals_of_trace(idle, 4, TraceAxis::events).ok());
}

TEST(Sources, OrAtItsTimeIfItHasOne) {
  Trace trace = sample();
  EXPECT_EQ(usual_axis(trace, 0), TraceAxis::events);
  EXPECT_FALSE(arrivals_of_trace(trace, 0, TraceAxis::time).ok());
  std::int64_t time = 0;
  for (TraceEvent& event : trace.programs[0]) event.time = 1'000'000'000 * time++;
  EXPECT_EQ(usual_axis(trace, 0), TraceAxis::time);
  EXPECT_EQ(usual_axis(trace, 1), TraceAxis::events);  // does nothing
  const Result<Arrivals> arrivals = arrivals_of_trace(trace, 0, TraceAxis::time);
  ASSERT_TRUE(arrivals.ok()) << arrivals.status().text();
  EXPECT_EQ(arrivals.value().length, 9);
  EXPECT_EQ(arrivals.value().unit, "s");
  const auto grid = SourceGrid::make(arrivals.value(), 9, 100);
  ASSERT_TRUE(grid.ok());
  EXPECT_EQ(grid.value().messages(1, 1), 1);
  EXPECT_EQ(grid.value().messages(4, 2), 1);
  EXPECT_EQ(grid.value().total(), 3);
}

TEST(Sources, ARankThatDoesNothingGivesAnEmptyGrid) {
  const Result<Arrivals> arrivals = arrivals_of_trace(sample(), 1, TraceAxis::computing);
  ASSERT_TRUE(arrivals.ok()) << arrivals.status().text();
  const auto grid = SourceGrid::make(arrivals.value(), 10, 10);
  ASSERT_TRUE(grid.ok());
  EXPECT_EQ(grid.value().total(), 0);
  EXPECT_EQ(grid.value().darkness(0), 0);
}

TEST(Sources, GroupsCoverAllSourcesEvenly) {
  for (const std::uint32_t sources : {1U, 7U, 99U, 100U, 101U, 630U, 65536U}) {
    Arrivals arrivals;
    arrivals.sources = sources;
    for (std::uint32_t s = 0; s < sources; ++s) arrivals.batches.push_back({0, 0, s, 1});
    const auto grid = SourceGrid::make(arrivals, 1, 100);
    ASSERT_TRUE(grid.ok());
    const std::uint32_t groups = grid.value().groups();
    for (std::uint32_t g = 0; g < groups; ++g) {
      EXPECT_GE(grid.value().messages(0, g), sources / groups) << sources << " " << g;
      EXPECT_LE(grid.value().messages(0, g), sources / groups + 1) << sources << " " << g;
    }
    EXPECT_EQ(grid.value().total(), sources);
  }
}

TEST(Sources, ABatchIsSpreadOverItsPeriods) {
  Arrivals arrivals;
  arrivals.sources = 1;
  arrivals.batches = {{0.05, 0.25, 0, 40}, {1, 1, 0, 5}, {0.9, 1, 0, 10}};
  const auto grid = SourceGrid::make(arrivals, 10, 1);
  ASSERT_TRUE(grid.ok());
  EXPECT_NEAR(grid.value().messages(0, 0), 10, 1e-9);
  EXPECT_NEAR(grid.value().messages(1, 0), 20, 1e-9);
  EXPECT_NEAR(grid.value().messages(2, 0), 10, 1e-9);
  EXPECT_NEAR(grid.value().messages(9, 0), 15, 1e-9);
  EXPECT_NEAR(grid.value().total(), 55, 1e-9);
}

TEST(Sources, DarknessIsANormalisedLogarithm) {
  Arrivals arrivals;
  arrivals.sources = 2;
  arrivals.batches = {{0, 0, 0, 999}, {0, 0, 1, 9}};
  const auto grid = SourceGrid::make(arrivals, 1, 2);
  ASSERT_TRUE(grid.ok());
  EXPECT_EQ(grid.value().darkness(0), 0);
  EXPECT_NEAR(grid.value().darkness(9), 1.0 / 3, 1e-12);
  EXPECT_NEAR(grid.value().darkness(999), 1, 1e-12);
  const auto plot = nlohmann::json::parse(to_plot_json(grid.value(), arrivals, "t"))["plots"][0];
  EXPECT_EQ(plot["darkness"][0][0], 1.0);
  EXPECT_EQ(plot["darkness"][1][0], 0.333);
  EXPECT_EQ(plot["ticks"].back()["text"], "999");
}

TEST(Sources, WhatIsOutOfRangeIsRefused) {
  Arrivals arrivals;
  arrivals.sources = 1;
  EXPECT_FALSE(SourceGrid::make(arrivals, 0, 1).ok());
  EXPECT_FALSE(SourceGrid::make(arrivals, 1, SourceGrid::kMostCells + 1).ok());
  for (const Arrivals::Batch batch :
       {Arrivals::Batch{-0.1, 0, 0, 1}, Arrivals::Batch{0.5, 0.4, 0, 1},
        Arrivals::Batch{0, 1.1, 0, 1}, Arrivals::Batch{0, 1, 1, 1}}) {
    arrivals.batches = {batch};
    EXPECT_FALSE(SourceGrid::make(arrivals, 10, 1).ok());
  }
}

// Process 0 of two, with peers 0 (endpoint 2) and 4 (endpoint 3).
std::string report(const std::string& history, int rank = 0, std::uint64_t endpoint = 1) {
  EndpointReport out;
  out.rank = rank;
  out.endpoint = endpoint;
  out.lifetime = 4'000'000'000;
  PeerReport peer;
  peer.peer = 0;
  peer.endpoint = 2;
  out.peers.push_back(peer);
  peer.peer = 4;
  peer.endpoint = 3;
  out.peers.push_back(peer);
  auto json = nlohmann::json::parse(to_json(out));
  json.erase("history");
  if (!history.empty()) json["history"] = nlohmann::json::parse(history);
  return json.dump();
}

EndpointReport read(const std::string& text) {
  Result<EndpointReport> read = report_from_json(text);
  EXPECT_TRUE(read.ok()) << read.status().text();
  return read.ok() ? std::move(read).value() : EndpointReport{};
}

constexpr const char* kHistory = R"([
  {"begin_ns": 0, "end_ns": 1000000000, "sources": [[0, 10], [4, 1]]},
  {"begin_ns": 1000000000, "end_ns": 2000000000, "sources": [[4, 8]]}])";

TEST(SourceHistory, OfOneReportCountsItsPeers) {
  const std::vector<EndpointReport> reports = {read(report(kHistory))};
  const Result<Arrivals> arrivals = arrivals_of_reports(reports, -1);
  ASSERT_TRUE(arrivals.ok()) << arrivals.status().text();
  EXPECT_EQ(arrivals.value().sources, 2U);
  EXPECT_EQ(arrivals.value().length, 4);
  const auto grid = SourceGrid::make(arrivals.value(), 4, 100);
  ASSERT_TRUE(grid.ok());
  EXPECT_EQ(grid.value().messages(0, 0), 10);
  EXPECT_EQ(grid.value().messages(0, 1), 1);
  EXPECT_EQ(grid.value().messages(1, 1), 8);
  EXPECT_EQ(grid.value().total(), 19);
}

TEST(SourceHistory, OfAJobCountsRanks) {
  const std::vector<EndpointReport> reports = {read(report("", 2, 2)), read(report(kHistory)),
                                               read(report("", 5, 3))};
  const Result<Arrivals> arrivals = arrivals_of_reports(reports, 0);
  ASSERT_TRUE(arrivals.ok()) << arrivals.status().text();
  EXPECT_EQ(arrivals.value().sources, 6U);
  EXPECT_EQ(arrivals.value().batches[0].source, 2U);
  EXPECT_EQ(arrivals.value().batches[1].source, 5U);
  EXPECT_FALSE(arrivals_of_reports(reports, 1).ok());
}

TEST(SourceHistory, AReportWithoutOneSaysWhatToDo) {
  const std::vector<EndpointReport> reports = {read(report(""))};
  const Result<Arrivals> arrivals = arrivals_of_reports(reports, 0);
  ASSERT_FALSE(arrivals.ok());
  EXPECT_NE(arrivals.status().text().find("TURNOUT_TRACE"), std::string::npos);
}

TEST(SourceHistory, ADamagedOneIsRefusedWithItsPlace) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({})", "\"history\""},
      {R"([1])", "history[0]"},
      {R"([{"end_ns": 1, "sources": []}])", "history[0].begin_ns"},
      {R"([{"begin_ns": 2, "end_ns": 1, "sources": []}])", "history[0].end_ns"},
      {R"([{"begin_ns": -1, "end_ns": 1, "sources": []}])", "history[0].begin_ns"},
      {R"([{"begin_ns": 0, "end_ns": 1}])", "history[0].sources"},
      {R"([{"begin_ns": 0, "end_ns": 1, "sources": [[0]]}])", "history[0].sources[0]"},
      {R"([{"begin_ns": 0, "end_ns": 1, "sources": [[1, 1]]}])", "history[0].sources[0][0]"},
      {R"([{"begin_ns": 0, "end_ns": 1, "sources": [[0, -1]]}])", "history[0].sources[0][1]"},
  };
  for (const auto& [history, place] : cases) {
    const auto read = report_from_json(report(history));
    ASSERT_FALSE(read.ok()) << history;
    EXPECT_NE(read.status().text().find(place), std::string::npos) << read.status().text();
  }
}

}  // namespace
}  // namespace turnout::sim
