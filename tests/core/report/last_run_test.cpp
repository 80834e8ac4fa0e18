// SPDX-License-Identifier: BSD-3-Clause
#include "core/report/last_run_reader.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <sys/stat.h>

#include <algorithm>

#include "tests/support/sample.h"
#include "tests/support/scratch.h"

namespace turnout {
namespace {

constexpr int kRanks = 4;
constexpr LastRunLimits kAll{1, 256};

std::string name_of(const EndpointReport& report, const std::string& job = "sample.") {
  return fmt::format("{}rank-{}.{}.{:016x}.json", job, report.rank, report.pid, report.endpoint);
}

class LastRunFolder : public ::testing::Test {
 protected:
  void leave(const EndpointReport& report, std::int64_t time = 0) const {
    const std::string path = folder_.file(name_of(report), to_json(report));
    const timespec times[2] = {{time, 0}, {time, 0}};
    EXPECT_EQ(::utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
  }
  void leave_job() const {
    for (int rank = 0; rank < kRanks; ++rank) leave(test::sample_report(rank, kRanks));
  }
  [[nodiscard]] Result<LastRun> read(int rank, int ranks = kRanks,
                                     const LastRunLimits& limits = kAll) const {
    return read_last_run(folder_.path().string(), rank, ranks, limits);
  }
  test::Folder folder_;
};

TEST_F(LastRunFolder, TellsWhatEachRankSent) {
  leave_job();
  const Result<LastRun> run = read(2);
  ASSERT_TRUE(run.ok()) << run.status().text();
  ASSERT_EQ(run.value().sources.size(), 3u);
  std::uint64_t sum = 0;
  for (const LastRun::Source& source : run.value().sources) {
    EXPECT_EQ(source.messages, source.rank < 2 ? 251'000u : 1000u) << source.rank;
    sum += source.rank;
  }
  EXPECT_EQ(sum, 0u + 1 + 3);
}

TEST_F(LastRunFolder, TheOrderIsThatOfTheHistory) {
  for (int rank = 0; rank < kRanks; ++rank) {
    EndpointReport report = test::sample_report(rank, kRanks);
    report.history = {{1000, 2000, 10, {{3, 10}}},
                      {2000, 5000, 60, {{1, 20}, {0, 40}}},
                      {5000, 6000, 5, {{1, 5}}}};
    leave(report);
  }
  const Result<LastRun> run = read(2);
  ASSERT_TRUE(run.ok()) << run.status().text();
  const std::vector<LastRun::Source>& sources = run.value().sources;
  ASSERT_EQ(sources.size(), 3u);
  EXPECT_EQ(sources[0].rank, 3u);  // began first
  EXPECT_EQ(sources[0].first, 0);
  EXPECT_EQ(sources[0].last, 1000);
  EXPECT_EQ(sources[0].beside, 10u);
  const LastRun::Source& one = sources[1].rank == 1 ? sources[1] : sources[2];
  EXPECT_EQ(one.first, 1000);
  EXPECT_EQ(one.last, 5000);
  EXPECT_EQ(one.active, 4000);
  EXPECT_EQ(one.beside, 65u);
}

TEST_F(LastRunFolder, SourcesThatPayForNothingAreNotKept) {
  leave_job();
  EXPECT_EQ(read(2, kRanks, {2000, 256}).value().sources.size(), 2u);
  EXPECT_EQ(read(2, kRanks, {1, 1}).value().sources.size(), 1u);
  EXPECT_TRUE(read(2, kRanks, {1'000'000, 256}).value().sources.empty());
}

TEST_F(LastRunFolder, TheNewestRunCounts) {
  leave_job();
  EndpointReport later = test::sample_report(2, kRanks);
  later.pid += 100;
  later.endpoint ^= 0xff00;
  later.peers.resize(1);
  later.history.clear();
  leave(later, 2'000'000'000);
  EXPECT_EQ(read(2).value().sources.size(), 1u);
}

TEST_F(LastRunFolder, OfSeveralEndpointsTheOneThatReceivedMost) {
  leave_job();
  EndpointReport other = test::sample_report(2, kRanks);
  other.endpoint ^= 0xff00;
  other.peers.resize(1);
  other.peers[0].receive.spans[0].messages = 1;
  other.peers[0].receive.spans.resize(1);
  other.history.clear();
  leave(other);
  EXPECT_EQ(read(2).value().sources.size(), 3u);
}

TEST_F(LastRunFolder, APeerWithoutAReportIsUnknown) {
  leave_job();
  std::filesystem::remove(folder_.path() / name_of(test::sample_report(0, kRanks)));
  EXPECT_EQ(read(2).value().sources.size(), 2u);
}

TEST_F(LastRunFolder, WhatCannotBeUsedSaysWhy) {
  EXPECT_NE(read(2).status().text().find("no report of rank 2"), std::string::npos);
  leave_job();
  EXPECT_NE(read(2, 8).status().text().find("rank 2 of 4"), std::string::npos);
  EXPECT_FALSE(read(kRanks).ok());
  EXPECT_FALSE(read_last_run(folder_.path() / "none", 0, kRanks, kAll).ok());
  const auto replace = [&](const std::string& text) {
    folder_.file(name_of(test::sample_report(2, kRanks)), text);
    return read(2).status();
  };
  EXPECT_EQ(replace("{\"turnout_report\": 77}").code(), Code::version);
  EXPECT_EQ(replace("no JSON").code(), Code::invalid);
  EXPECT_EQ(replace("{}").code(), Code::invalid);
  EXPECT_EQ(replace(std::string((64u << 20) + 1, ' ')).code(), Code::invalid);
  EndpointReport of_another = test::sample_report(1, kRanks);
  EXPECT_EQ(replace(to_json(of_another)).code(), Code::invalid);  // the name lies
  EndpointReport timeless = test::sample_report(2, kRanks);
  timeless.lifetime = -1;
  EXPECT_EQ(replace(to_json(timeless)).code(), Code::invalid);
}

TEST_F(LastRunFolder, ALinkIsNotFollowed) {
  leave_job();
  const auto path = folder_.path() / name_of(test::sample_report(2, kRanks));
  std::filesystem::rename(path, folder_.path() / "elsewhere");
  std::filesystem::create_symlink(folder_.path() / "elsewhere", path);
  EXPECT_FALSE(read(2).ok());
}

TEST(ReportName, SaysRankAndEndpoint) {
  const auto name = parse_report_name("job.1.rank-3.4711.0123456789abcdef.json");
  ASSERT_TRUE(name.has_value());
  EXPECT_EQ(name->rank, 3);
  EXPECT_EQ(name->endpoint, 0x0123456789abcdefu);
  EXPECT_EQ(name->process, "job.1.rank-3.4711");
  EXPECT_EQ(parse_report_name("rank-0.1.0000000000000001.json")->rank, 0);
  for (const char* const other :
       {"", ".json", "rank-3.json", "rank-3.4711.json", "rank--1.4711.0123456789abcdef.json",
        "rank-3.4711.0123456789abcde.json", "rank-3.x.0123456789abcdef.json",
        "rank-99999999999.4711.0123456789abcdef.json", ".rank-3.4711.0123456789abcdef.json",
        "rank-3.4711.0123456789abcdeg.json", "xrank-3.4711.0123456789abcdef.json"}) {
    EXPECT_FALSE(parse_report_name(other).has_value()) << other;
  }
}

TEST(ReportName, AnyTextHasAnAnswer) {
  EXPECT_TRUE(rc::check("names of files", [] {
    const auto parts = *rc::gen::container<std::vector<std::string>>(rc::gen::element<std::string>(
        ".", "rank-", "3", "-", "json", "0123456789abcdef", "4711", "job", ""));
    std::string name;
    for (const std::string& part : parts) name += part;
    if (const auto parsed = parse_report_name(name)) {
      RC_ASSERT(parsed->rank >= 0);
      RC_ASSERT(name.starts_with(parsed->process));
    }
  }));
}

// Counts and times are anybody's.
TEST(CountedSources, StayInRange) {
  EXPECT_TRUE(rc::check("any counts", [] {
    EndpointReport report = test::sample_report(1, kRanks);
    const auto count = [] { return *rc::gen::arbitrary<std::uint64_t>(); };
    for (PeerReport& peer : report.peers) {
      for (ChannelSpan& span : peer.receive.spans) span.messages = count();
      peer.source = SourceReport{.busy = *rc::gen::arbitrary<double>(),
                                 .switched = *rc::gen::arbitrary<double>()};
    }
    report.lifetime = *rc::gen::arbitrary<std::int64_t>();
    for (HistoryInterval& interval : report.history) {
      interval.begin = *rc::gen::inRange<std::int64_t>(0, INT64_MAX);
      interval.end = *rc::gen::inRange<std::int64_t>(interval.begin, INT64_MAX);
      interval.messages = count();
    }
    const Result<CountedSources> counted =
        counted_sources({&report, 1}, 1, kRanks, {*rc::gen::arbitrary<std::uint64_t>(), 2});
    if (!counted) return;
    const LastRun& run = counted.value().run;
    RC_ASSERT(run.sources.size() <= 2u);
    RC_ASSERT(run.sources.size() == counted.value().endpoints.size());
    for (const LastRun::Source& source : run.sources) {
      RC_ASSERT(source.first >= 0);
      RC_ASSERT(source.last >= source.first);
      RC_ASSERT(source.active >= 0);
      RC_ASSERT(source.busy >= 0 && source.busy <= 1);
      RC_ASSERT(source.switched >= 0 && source.switched <= 1);
    }
  }));
}

}  // namespace
}  // namespace turnout
