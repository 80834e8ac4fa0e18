// SPDX-License-Identifier: BSD-3-Clause
#include "cli/html/page.h"

#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "cli/html/escape.h"
#include "tests/support/sample.h"

namespace turnout::cli {
namespace {

using Jobs = std::vector<std::pair<std::string, std::vector<EndpointReport>>>;

Jobs jobs(int ranks) {
  Jobs all(1);
  all[0].first = "sample";
  for (int rank = 0; rank < ranks; ++rank) {
    all[0].second.push_back(test::sample_report(rank, ranks));
  }
  return all;
}

nlohmann::json data_of(const std::string& page) {
  const std::string begin = "id=\"data\">";
  const std::size_t at = page.find(begin) + begin.size();
  return nlohmann::json::parse(page.substr(at, page.find("</script>", at) - at));
}

TEST(Escape, NothingBecomesMarkup) {
  EXPECT_EQ(html_text("<b a=\"1\" c='2'>&\n\x01"),
            "&lt;b a=&quot;1&quot; c=&#39;2&#39;&gt;&amp;  ");
  EXPECT_EQ(script_json("[\"</script><!--&\"]"), "[\"\\u003c/script\\u003e\\u003c!--\\u0026\"]");
  EXPECT_EQ(nlohmann::json::parse(script_json("[\"</script>&\"]"))[0], "</script>&");
}

TEST(Escape, ShortenedBetweenCharacters) {
  EXPECT_EQ(shortened("abc", 3), "abc");
  EXPECT_EQ(shortened("abcd", 3), "abc...");
  EXPECT_EQ(shortened("a\xc3\xa4z", 2), "a...");
}

TEST(Page, HoldsFindingsAndData) {
  const std::string page = report_page(jobs(4));
  EXPECT_EQ(page.find("{{"), std::string::npos);
  EXPECT_NE(page.find("4 of 4 processes used Turnout."), std::string::npos);
  const nlohmann::json data = data_of(page);
  ASSERT_EQ(data.size(), 1u);
  EXPECT_EQ(data[0]["pairs"]["list"].size(), 12u);
  EXPECT_EQ(data[0]["matrix"]["cells"].size(), 12u);
  EXPECT_EQ(data[0]["memory"][0]["points"].size(), 4u);
  EXPECT_EQ(data[0]["decisions"]["list"].size(), 6u);
  EXPECT_EQ(data[0]["aligned"], true);
  // Rank 3 began 3 ms after rank 0.
  EXPECT_EQ(data[0]["end"], 3'213'000);
}

TEST(Page, TextOfReportsStaysText) {
  const std::string evil = "</script><script>alert(1)</script><img src=x onerror=alert(2)>{{DATA}}";
  Jobs all = jobs(3);
  all[0].first = evil;
  for (EndpointReport& report : all[0].second) {
    report.host = report.device = report.policy = report.job = evil;
    for (MemoryLine& line : report.memory) line.kind = evil;
    for (PeerReport& peer : report.peers) peer.reason = evil + "\xff";
    for (DecisionReport& decision : report.decisions) decision.reason = decision.outcome = evil;
  }
  const std::string page = report_page(all);
  EXPECT_EQ(page.find("<img"), std::string::npos);
  EXPECT_EQ(page.find("<script>alert"), std::string::npos);
  EXPECT_EQ(data_of(page)[0]["decisions"]["list"][0][5], evil);
}

TEST(Page, StrangeNumbersAreDrawn) {
  Jobs all = jobs(3);
  EndpointReport& report = all[0].second[0];
  report.lifetime = std::numeric_limits<std::int64_t>::min();
  report.started = std::numeric_limits<std::int64_t>::max();
  report.budget = 0;
  report.peak = ~std::uint64_t{0};
  report.peers[0].send.spans[0] = {ChannelKind::rc_rdma, std::numeric_limits<std::int64_t>::max(),
                                   ~std::uint64_t{0}, ~std::uint64_t{0}};
  all[0].second[1].decisions[0].peer = 12345;
  EXPECT_TRUE(data_of(report_page(all)).is_array());
}

TEST(Page, ManyProcessesStaySmall) {
  Jobs all(1);
  for (int rank = 0; rank < 256; ++rank) {
    all[0].second.push_back(test::sample_report(rank, 256));
    all[0].second.back().host = "node" + std::to_string(rank / 16);
  }
  const std::string page = report_page(all);
  EXPECT_LT(page.size(), 2u << 20);
  const nlohmann::json data = data_of(page);
  EXPECT_EQ(data[0]["pairs"]["list"].size(), 60u);
  EXPECT_EQ(data[0]["pairs"]["all"], 256 * 255);
  EXPECT_EQ(data[0]["matrix"]["of"], "node");
  EXPECT_EQ(data[0]["matrix"]["names"].size(), 16u);
  EXPECT_EQ(data[0]["peaks"].size(), 256u);
  EXPECT_LE(data[0]["decisions"]["list"].size(), 2000u);
}

}  // namespace
}  // namespace turnout::cli
