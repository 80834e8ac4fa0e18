// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <algorithm>

#include "core/report/job_findings.h"
#include "tests/support/sample.h"

namespace turnout {
namespace {

using test::job;

std::vector<Finding> find(const std::vector<EndpointReport>& reports) {
  return job_findings(reports, job_traffic(reports));
}

std::string all(const std::vector<Finding>& findings) {
  std::string out;
  for (const Finding& finding : findings) {
    out += finding.level == Finding::Level::warning ? "! " : "- ";
    out += finding.text + " " + finding.advice + "\n";
  }
  return out;
}

#define EXPECT_SAYS(findings, words) \
  EXPECT_NE(all(findings).find(words), std::string::npos) << all(findings)
#define EXPECT_SAYS_NOT(findings, words) \
  EXPECT_EQ(all(findings).find(words), std::string::npos) << all(findings)

TEST(JobTraffic, PutsBothEndsTogether) {
  const std::vector<EndpointReport> reports = job(4);
  const JobTraffic traffic = job_traffic(reports);
  ASSERT_EQ(traffic.processes.size(), 4u);
  EXPECT_EQ(traffic.processes[3].name, "rank 3");
  ASSERT_EQ(traffic.pairs.size(), 12u);
  const JobTraffic::Pair& pair = traffic.pairs[0];
  EXPECT_EQ(pair.from, 0u);
  EXPECT_EQ(pair.to, 1u);
  EXPECT_EQ(pair.messages, 12'345) << "as its sender counted";
  EXPECT_EQ(pair.last_channel(), ChannelKind::rc_rdma) << "as its receiver tells";
  EXPECT_EQ(pair.teller().rank, 1);
}

TEST(JobTraffic, OneEndAloneWillDo) {
  std::vector<EndpointReport> reports = job(3);
  reports.pop_back();
  const JobTraffic traffic = job_traffic(reports);
  ASSERT_EQ(traffic.processes.size(), 3u);
  EXPECT_EQ(traffic.processes[2].name, "pid 5002");
  EXPECT_TRUE(traffic.processes[2].reports.empty());
  EXPECT_EQ(traffic.pairs.size(), 6u);
}

TEST(JobFindings, HowManyUsedIt) {
  std::vector<EndpointReport> reports = job(4);
  EXPECT_SAYS(find(reports), "- 4 of 4 processes used Turnout.");
  EXPECT_SAYS_NOT(find(reports), "No message");
  reports.pop_back();
  EXPECT_SAYS(find(reports), "! 3 of 4 processes left a report.");
  EXPECT_TRUE(find({}).empty());
}

TEST(JobFindings, NoTraffic) {
  std::vector<EndpointReport> reports = job(4);
  for (EndpointReport& report : reports) report.peers.clear();
  EXPECT_SAYS(find(reports), "! No message used the network adapter: on one host");
  EXPECT_SAYS(find(reports), "MPIR_CVAR_NOLOCAL=1");
  reports[0].host = "another";
  EXPECT_SAYS_NOT(find(reports), "MPIR_CVAR_NOLOCAL");
}

TEST(JobFindings, MemoryNearTheBudget) {
  std::vector<EndpointReport> reports = job(4);
  EXPECT_SAYS(find(reports),
              "- Memory stayed within the budget: the highest peak was less than 1 % of it");
  reports[2].peak = reports[2].budget / 100 * 96;
  EXPECT_SAYS(find(reports), "! The memory of rank 2 peaked at 96 % of its budget");
  reports[2].budget = 0;
  EXPECT_SAYS(find(reports), "- Memory stayed within");
}

TEST(JobFindings, WhoSendsMost) {
  std::vector<EndpointReport> reports = job(8);
  EXPECT_SAYS_NOT(find(reports), "of all bytes");
  for (const int sender : {3, 5}) reports[sender].peers[0].send.spans[0].bytes = 500u << 20;
  EXPECT_SAYS(find(reports), "- Two processes sent 95 % of all bytes to rank 0.");
}

TEST(JobFindings, Channels) {
  const std::vector<EndpointReport> reports = job(4);
  EXPECT_SAYS(find(reports), "- 6 of 12 pairs ended on RC-RDMA");
  EXPECT_SAYS_NOT(find(reports), "none kept a faster");
  EndpointReport alone = test::sample_report(0, 3);
  EXPECT_SAYS(find({alone}), "All 4 pairs ended on DC-sendrecv");
}

TEST(JobFindings, WhatWentWrong) {
  std::vector<EndpointReport> reports = job(3);
  EXPECT_SAYS(find(reports), "! 57 RC connections failed");
  reports[1].peers[0].lost = true;
  reports[1].decisions[0].outcome = "refused by peer: its budget";
  reports[2].profile->rnr_retries = 1'000'000;
  reports[2].peers[0].receive.switches = 14;
  const std::vector<Finding> findings = find(reports);
  EXPECT_SAYS(findings, "! 1 peer was lost, first reported by rank 1.");
  EXPECT_SAYS(findings, "! 1 of 3 channel changes were refused.");
  EXPECT_SAYS(findings, "! Rank 2 resent 1,000,000 messages because the receiver was not ready");
  EXPECT_SAYS(findings, "- 1 pair changed channels more than 8 times; rank 0 to rank 2 did so");
  // The first is who used it, then what is wrong.
  EXPECT_TRUE(std::is_sorted(findings.begin() + 1, findings.end(),
                             [](const Finding& a, const Finding& b) { return a.level > b.level; }));
}

}  // namespace
}  // namespace turnout
