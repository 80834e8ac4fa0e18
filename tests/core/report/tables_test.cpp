// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <sstream>

#include "core/report/report.h"
#include "tests/support/sample.h"

namespace turnout {
namespace {

std::vector<EndpointReport> job(int ranks) {
  std::vector<EndpointReport> reports;
  for (int rank = ranks; rank-- > 0;) reports.push_back(test::sample_report(rank, ranks));
  return reports;
}

std::size_t longest_line(const std::string& text) {
  std::istringstream lines(text);
  std::size_t longest = 0;
  for (std::string line; std::getline(lines, line);) longest = std::max(longest, line.size());
  return longest;
}

TEST(ReportTables, RanksInOrderThenSums) {
  const std::string text = format_reports(job(4));
  EXPECT_LT(text.find("rank 0 of 4, pid 5000"), text.find("rank 3 of 4, pid 5003"));
  EXPECT_LT(text.find("rank 3 of 4"), text.find("All processes: 4"));
  EXPECT_NE(text.find("DC-sendrecv -> RC-RDMA @1.0s"), std::string::npos);
  EXPECT_NE(text.find("done in 120 us: message rate justifies"), std::string::npos);
  EXPECT_NE(text.find("126 ns  140 ns"), std::string::npos) << text;
  EXPECT_NE(text.find("DC-sendrecv 330 ns (640 measured)"), std::string::npos);
  EXPECT_NE(text.find("DC-sendrecv 330 ns (2,560 measured), RC-RDMA 190 ns (16,384"),
            std::string::npos)
      << "over all: " << text;
  // 12 directions, 6 of them on RC-RDMA.
  EXPECT_NE(text.find("incoming directions on RC-RDMA: 6 of 12 at end, 6 at any time"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("148,140"), std::string::npos) << "12 x 12,345 messages sent";
  EXPECT_NE(text.find("private receive queues: peak 67 receives, grown for 2 peers"),
            std::string::npos);
  EXPECT_NE(
      text.find("RC connections: 31 created, 20 evicted here and 4 by peers; 25 peers waited"),
      std::string::npos);
  EXPECT_NE(text.find("its connection was evicted 7 times"), std::string::npos);
  EXPECT_NE(text.find("RC connections: 124 ends created, 80 evicted"), std::string::npos);
  EXPECT_NE(text.find("(rank 3)"), std::string::npos) << "the largest peak";
  EXPECT_EQ(text.find("operations"), std::string::npos) << "kinds never used are left out";
}

TEST(ReportTables, FitIn110ColumnsWhateverTheText) {
  std::vector<EndpointReport> reports = job(3);
  reports[0].host = std::string(300, 'h');
  reports[0].peers[0].reason = std::string(250, 'x') + " " + std::string(40, 'y');
  for (int i = 0; i < 60; ++i) {
    reports[0].peers[1].receive.spans.push_back(
        {i % 2 == 0 ? ChannelKind::rc_rdma : ChannelKind::ud_sendrecv,
         std::int64_t{i} * 123'456'789'012, ~std::uint64_t{0} >> 7, ~std::uint64_t{0} >> 7});
    reports[0].peers[1].receive.switches++;
  }
  reports[0].decisions[0].outcome = "refused by peer: its budget, " + std::string(90, 'z');
  const std::string text = format_reports(reports);
  EXPECT_LE(longest_line(text), 110u) << text;
  EXPECT_NE(text.find("61 switches"), std::string::npos);
}

TEST(ReportTables, LimitsKeepTheBusiestPeersAndTheLatestDecisions) {
  std::vector<EndpointReport> reports = job(40);
  const std::string text = format_reports(reports, {.peers = 2, .decisions = 1});
  EXPECT_NE(text.find("and 37 peers with fewer messages"), std::string::npos);
  EXPECT_NE(text.find("(the last 1 of 39)"), std::string::npos);
  EXPECT_NE(text.find("780 of 1560 at end"), std::string::npos) << "sums count all";
}

TEST(ReportTables, ControlCharactersOfAFileStayAwayFromTheTerminal) {
  EndpointReport report = test::sample_report(0, 2);
  report.host = "\x1b]0;title\x07";
  report.peers[0].reason = "\x1b[2J";
  const std::string text = format_reports({&report, 1});
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  EXPECT_EQ(text.find('\x07'), std::string::npos);
}

TEST(ReportTables, EmptyAndLonely) {
  EXPECT_EQ(format_reports({}), "no reports\n");
  EndpointReport report;
  report.pid = 77;
  const std::string text = format_reports({&report, 1});
  EXPECT_NE(text.find("pid 77"), std::string::npos);
  EXPECT_NE(text.find("no peers"), std::string::npos);
  EXPECT_NE(text.find("All processes: 1\n"), std::string::npos);
}

TEST(ReportTables, LostPeersAreShown) {
  EndpointReport report = test::sample_report(0, 3);
  report.peers[1].lost = true;
  const std::string text = format_reports({&report, 1});
  EXPECT_NE(text.find("LOST"), std::string::npos);
  EXPECT_NE(text.find("peers lost: 1"), std::string::npos);
}

}  // namespace
}  // namespace turnout
