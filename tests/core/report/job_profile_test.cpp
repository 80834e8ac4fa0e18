// SPDX-License-Identifier: BSD-3-Clause
#include "core/report/job_profile.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/support/sample.h"

namespace turnout {
namespace {

using test::job;

const JobProfile::Line* find(const JobProfile& job, std::string_view key) {
  const auto found = std::find_if(job.lines.begin(), job.lines.end(),
                                  [&](const JobProfile::Line& line) { return line.key == key; });
  return found == job.lines.end() ? nullptr : &*found;
}

void expect_spread(const JobProfile& job, std::string_view key, double least, double mean,
                   double most, double sum) {
  const JobProfile::Line* const line = find(job, key);
  ASSERT_NE(line, nullptr) << key;
  EXPECT_DOUBLE_EQ(line->spread.least, least) << key;
  EXPECT_DOUBLE_EQ(line->spread.mean, mean) << key;
  EXPECT_DOUBLE_EQ(line->spread.most, most) << key;
  EXPECT_DOUBLE_EQ(line->spread.sum, sum) << key;
}

TEST(SizeBins, AreNamedByTheSizeTheyAreBelow) {
  EXPECT_EQ(size_bin(0), 0u);
  EXPECT_EQ(size_bin(1), 1u);
  for (std::size_t bin = 1; bin + 1 < kSizeBins; ++bin) {
    EXPECT_EQ(size_bin((std::uint64_t{1} << bin) - 1), bin);
    EXPECT_EQ(size_bin(std::uint64_t{1} << bin), bin + 1);
  }
  EXPECT_EQ(size_bin(std::numeric_limits<std::uint64_t>::max()), kSizeBins - 1);
}

TEST(JobProfile, LeastMeanMostAndSum) {
  const JobProfile profile = job_profile(job(4));
  EXPECT_EQ(profile.processes, 4u);
  EXPECT_EQ(profile.profiled, 4u);
  expect_spread(profile, "connections", 3, 3, 3, 12);
  // Lower neighbours are on RC-RDMA, seen from the receiver.
  expect_spread(profile, "connections_over_rdma", 0, 1.5, 3, 6);
  expect_spread(profile, "channel_switches", 0, 1.5, 3, 6);
  expect_spread(profile, "rnr_retries", 0, 1.5, 3, 6);
  expect_spread(profile, "sent_messages", 10'000, 10'000, 10'000, 40'000);
  expect_spread(profile, "sent_control_messages", 3000, 3000, 3000, 12'000);
  expect_spread(profile, "unexpected_messages", 400, 400, 400, 1600);
  expect_spread(profile, "memory_peak", 531'072, 531'073.5, 531'075, 4 * 531'072 + 6);
  expect_spread(profile, "objects_peak of rings", 32, 32, 32, 128);
  expect_spread(profile, "library_time_ns", 5e8, 5e8, 5e8, 2e9);
  // 3 sources of 1000 messages for rank 0; the others had 250,000 more of each lower rank.
  EXPECT_DOUBLE_EQ(find(profile, "unexpected_share")->spread.most, 400.0 / 3000);
  EXPECT_EQ(profile.counts.sent[2].total().bytes, 4000ull << 20);
}

TEST(JobProfile, EndpointsOfOneProcessAreAddedUp) {
  std::vector<EndpointReport> reports = job(2);
  reports.push_back(reports[1]);
  reports.back().endpoint = 0x77;
  reports.back().peers.clear();
  const JobProfile profile = job_profile(reports);
  EXPECT_EQ(profile.processes, 2u);
  expect_spread(profile, "connections", 1, 1, 1, 2);
  expect_spread(profile, "rnr_retries", 0, 1, 2, 2);
  expect_spread(profile, "sent_messages", 10'000, 15'000, 20'000, 30'000);
}

TEST(JobProfile, WhatNobodyKnowsHasNoLine) {
  std::vector<EndpointReport> reports = job(3);
  for (EndpointReport& report : reports) report.profile->rnr_retries.reset();
  EXPECT_EQ(find(job_profile(reports), "rnr_retries"), nullptr);
  reports[1].profile->rnr_retries = 5;
  expect_spread(job_profile(reports), "rnr_retries", 5, 5, 5, 5);
  EXPECT_EQ(find(job_profile(reports), "rnr_retries")->processes, 1u);
  reports[0].profile.reset();
  const JobProfile profile = job_profile(reports);
  EXPECT_EQ(profile.profiled, 2u);
  EXPECT_NE(format_profile(profile).find("of 3 processes (2 with a profile)"), std::string::npos);
  for (EndpointReport& report : reports) report.profile.reset();
  EXPECT_EQ(format_profile(job_profile(reports)), "");
}

TEST(JobProfile, MessagesToOneselfAreNoConnection) {
  std::vector<EndpointReport> reports = job(2);
  for (EndpointReport& report : reports) {
    PeerReport self = report.peers.front();
    self.endpoint = report.endpoint;
    report.peers.push_back(self);
    PeerReport silent;
    silent.endpoint = 0x99;
    silent.send.spans = {{ChannelKind::dc_sendrecv, 0, 0, 0}};
    report.peers.push_back(silent);
  }
  expect_spread(job_profile(reports), "connections", 1, 1, 1, 2);
}

TEST(JobProfile, TheTableFitsAndSaysHowManyAreBelowEachSize) {
  std::vector<EndpointReport> reports = job(3);
  reports[0].memory.push_back({std::string(200, 'k') + "\x1b", 1, 1, 1, 1});
  reports[0].lifetime = std::numeric_limits<std::int64_t>::min();
  reports[1].profile->counts.sent[0].add(kSizeBins - 1,
                                         {~std::uint64_t{0} >> 3, ~std::uint64_t{0} >> 3});
  reports[1].profile->library_time = ~std::uint64_t{0};
  reports[1].peak = ~std::uint64_t{0};
  const std::string extreme = format_profile(job_profile(reports));
  std::istringstream lines(extreme);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 110u) << line;
  EXPECT_EQ(extreme.find('\x1b'), std::string::npos);

  const std::string text = format_profile(job_profile(job(3)));
  // 18,000 of 30,000 messages have 40 bytes, 27,000 at most 72.
  EXPECT_NE(
      text.find("64 B                            18,000        60.0%         0.0%        100.0%"),
      std::string::npos)
      << text;
  EXPECT_NE(
      text.find("128 B                            9,000        90.0%         0.0%        100.0%"),
      std::string::npos)
      << text;
  EXPECT_NE(
      text.find("2MiB                             3,000       100.0%       100.0%        100.0%"),
      std::string::npos)
      << text;
}

TEST(JobProfile, AsJson) {
  const std::vector<std::pair<std::string, std::vector<EndpointReport>>> jobs = {{"a\x1b", job(4)},
                                                                                 {"b", job(2)}};
  const auto json = nlohmann::json::parse(jobs_to_json(jobs));
  ASSERT_EQ(json.size(), 2u);
  EXPECT_EQ(json[0]["job"], "a\x1b");
  EXPECT_EQ(json[0]["processes"], 4);
  EXPECT_EQ(json[0]["per_process"]["rnr_retries"]["max"], 3.0);
  EXPECT_EQ(json[0]["per_process"]["rnr_retries"]["sum"], 6.0);
  EXPECT_FALSE(json[0]["per_process"]["library_share"].contains("sum"));
  EXPECT_EQ(json[0]["sent"]["read"][0]["below"], 2 << 20);
  EXPECT_EQ(json[0]["sent"]["read"][0]["messages"], 4000);
  EXPECT_EQ(json[1]["unexpected"][1]["messages"], 600);
}

}  // namespace
}  // namespace turnout
