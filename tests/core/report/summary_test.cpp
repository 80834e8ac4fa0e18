// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <sstream>

#include "core/report/job_summary.h"
#include "core/report/report_text.h"
#include "tests/support/sample.h"

namespace turnout {
namespace {

using test::job;

void expect_fits(const std::string& text) {
  std::istringstream in(text);
  std::size_t lines = 0;
  for (std::string line; std::getline(in, line); ++lines) {
    EXPECT_LE(line.size(), kSummaryColumns) << line;
  }
  EXPECT_LE(lines, kSummaryLines) << text;
  EXPECT_TRUE(text.ends_with('\n'));
}

TEST(JobSummary, HasFindingsChannelsMemoryAndTheBusiestPairsWithReasons) {
  const std::string text = format_summary(job(4));
  expect_fits(text);
  EXPECT_TRUE(text.starts_with(
      "-- turnout report: 4 processes on node7, policy aqps, adapter virtual_0, 3.21 s"))
      << text;
  EXPECT_NE(text.find("- 4 of 4 processes used Turnout."), std::string::npos) << text;
  // 6 of 12 directions end on RC-RDMA, with 250,000 messages each beside 1,000 on DC-sendrecv.
  EXPECT_NE(text.find("RC-RDMA                    6       1,500,000   99.2%"), std::string::npos)
      << text;
  EXPECT_NE(text.find("memory: peak"), std::string::npos);
  EXPECT_NE(text.find("of a budget of 256 MiB"), std::string::npos) << text;
  EXPECT_NE(text.find("why: "), std::string::npos);
  EXPECT_NE(text.find("DC-sendrecv -> RC-RDMA @1.0s"), std::string::npos) << text;
}

TEST(JobSummary, FitsAtAnySizeAndWhateverTheText) {
  for (const int ranks : {1, 2, 64, 300}) {
    SCOPED_TRACE(ranks);
    expect_fits(format_summary(job(ranks)));
  }
  std::vector<EndpointReport> reports = job(5);
  for (EndpointReport& report : reports) {  // a reason for each warning there is
    report.peak = report.budget;
    report.connections.failed = 3;
    report.peers[0].lost = true;
    report.peers[0].reason = std::string(300, 'x');
    report.peers[1].receive.switches = 50;
    report.decisions.push_back(
        {1, 1, ChannelKind::dc_sendrecv, ChannelKind::rc_rdma, "r", "refused"});
    report.host = std::string(200, 'h');
    report.policy = "\x1b[2J" + std::string(200, 'p');
    report.ranks = 6;
    for (MemoryLine& line : report.memory) line.kind = std::string(90, 'm');
  }
  const std::string text = format_summary(reports);
  expect_fits(text);
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  EXPECT_NE(text.find("more: --full)"), std::string::npos) << "what was left out is counted\n"
                                                           << text;
  EXPECT_NE(text.find("! 5 of 6 processes left a report."), std::string::npos) << text;
}

TEST(JobSummary, SaysWhatToChangeWhereNoMessageUsedTurnout) {
  std::vector<EndpointReport> reports = job(2);
  for (EndpointReport& report : reports) report.peers.clear();
  const std::string text = format_summary(reports);
  expect_fits(text);
  EXPECT_NE(text.find("MPIR_CVAR_NOLOCAL=1"), std::string::npos) << text;
}

TEST(JobSummary, WithoutReports) {
  EXPECT_EQ(format_summary({}), "no reports\n");
}

RC_GTEST_PROP(ReportText, WrappedLinesHaveTheirColumnsAndAllWords, (const std::string& text)) {
  const std::string clean = printable(text);
  const std::string lines = wrap("- ", clean, 40);
  std::istringstream in(lines);
  std::string joined;
  for (std::string line; std::getline(in, line);) {
    RC_ASSERT(line.size() <= 40u);
    joined += line.substr(2);
  }
  std::erase(joined, ' ');
  std::string words = clean;
  std::erase(words, ' ');
  RC_ASSERT(joined == words);
}

}  // namespace
}  // namespace turnout
