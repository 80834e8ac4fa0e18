// SPDX-License-Identifier: BSD-3-Clause
// What `turnout why` says of made-up reports: the channels and their costs, what bound the choice,
// what would change it.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "cli/why_model.h"
#include "cli/why_text.h"
#include "core/selection/device_costs.h"
#include "tests/support/sample.h"

namespace turnout::cli {
namespace {

constexpr std::int64_t kSecond = 1'000'000'000;

// Three ranks, each heard by the others; rank 0's latest selection is the one asked about.
class Why : public ::testing::Test {
 protected:
  Why() {
    reports_ = test::job(3);
    for (EndpointReport& report : reports_) {
      report.policy = "turnout";
      SelectionReport& selection = report.selection.emplace();
      selection.time = 3 * kSecond;
      selection.window = kSecond;
      selection.messages = 20'000;
      selection.ring_entries = 16;
      selection.max_active_rc = 26;
      selection.max_channels = 256;
      selection.dc_rdma = true;
      selection.bytes_available = 64 << 20;
      selection.bytes_per_ring = 64 << 10;
      selection.bytes_per_rc = 32 << 10;
      for (const selection::CostRow& row : selection::cost_table()) {
        selection.costs.push_back({std::string(row.group) + "." + std::string(row.name),
                                   row.built_in.value, row.built_in.uncertainty});
      }
      for (PeerReport& peer : report.peers) peer.source = {.messages = 10'000};
    }
    // The window of rank 0 is that of DC-sendrecv: nothing was chosen since.
    for (PeerReport& peer : reports_[0].peers) peer.source->switched = 0.5;
  }
  SelectionReport& selection() { return *reports_[0].selection; }
  SourceReport& source() { return *reports_[0].peers[0].source; }  // rank 1 -> rank 0
  PairSelection pair() {
    const auto made = PairSelection::of(reports_[0], reports_[0].peers[0]);
    EXPECT_TRUE(made.has_value());
    return *made;
  }
  static std::optional<WhyChange> change(const PairSelection& pair, WhyChange::What what) {
    for (const WhyChange& one : pair.changes()) {
      if (one.what == what) return one;
    }
    return std::nullopt;
  }
  // It has `words` in one line, wrapped or not.
  void expect_said(const std::string& words, std::uint32_t rank = 0) {
    const Result<std::string> text = why_text(reports_, rank, 1);
    ASSERT_TRUE(text.ok()) << text.status().text();
    std::string flat;
    std::unique_copy(
        text.value().begin(), text.value().end(), std::back_inserter(flat),
        [](char a, char b) { return (a == ' ' || a == '\n') && (b == ' ' || b == '\n'); });
    std::ranges::replace(flat, '\n', ' ');
    EXPECT_NE(flat.find(words), std::string::npos) << words << "\nin\n" << text.value();
  }

  std::vector<EndpointReport> reports_;
};

TEST_F(Why, TheSelectionIsThePolicys) {
  // The same question, asked of the policy itself.
  const PairSelection made = pair();
  selection::TurnoutTerms terms;
  std::vector<selection::SourceView> sources(2);
  for (std::uint32_t i = 0; i < 2; ++i) {
    sources[i] = {.peer = i + 1, .messages = 10'000};
    sources[i].feedback.switched = 0.5;
  }
  const selection::Limits limits{.dc_rdma_available = true,
                                 .bytes_available = 64 << 20,
                                 .bytes_per_ring = 64 << 10,
                                 .bytes_per_rc = 32 << 10};
  const selection::Plan plan =
      selection::select_turnout({sources, terms, limits, 20'000, ChannelKind::dc_sendrecv, 1e9});
  EXPECT_EQ(made.plan().gain_best, plan.gain_best);
  EXPECT_EQ(made.plan().threshold, plan.threshold);
  EXPECT_TRUE(plan.changes);
  EXPECT_EQ(made.line().to, ChannelKind::rc_rdma);
}

TEST_F(Why, ChannelsSaveWhatTheirCostsSay) {
  const std::vector<WhyChannel> channels = pair().channels();
  ASSERT_EQ(channels.size(), 4u);
  // d = 100, less a sixteenth of a credit of 300; polls of 10 ns at each of twice as many
  // messages as this source's.
  EXPECT_NEAR(channels[1].saved.value(), 100 - 300.0 / 16 - 20, 0.1);
  // r = 150, half of the messages save a switch's latency of 1 us.
  EXPECT_NEAR(channels[2].saved.value(), 150 + 500 - 300.0 / 16 - 20, 0.1);
  EXPECT_EQ(channels[1].bytes, 64u << 10);
  EXPECT_EQ(channels[2].bytes, 96u << 10);
  EXPECT_EQ(channels[2].time, 3'900'000);
  EXPECT_FALSE(channels[3].possible);  // no XRC
  ASSERT_TRUE(channels[1].from && channels[2].from);
  EXPECT_LT(*channels[2].from, *channels[1].from);
}

TEST_F(Why, AChannelIsChosenFromSoManyMessagesOn) {
  reports_[0].peers.pop_back();  // nobody else
  selection().messages = source().messages;
  const std::uint64_t from = pair().channels()[2].from.value();
  for (const bool enough : {false, true}) {
    source().messages = enough ? from : from - 1;
    selection().messages = source().messages;
    selection().dc_rdma = false;
    EXPECT_EQ(pair().line().to == ChannelKind::rc_rdma, enough);
  }
}

TEST_F(Why, MoreMessagesWouldChangeIt) {
  reports_[0].peers.pop_back();
  source().messages = selection().messages = 3;
  const PairSelection few = pair();
  EXPECT_EQ(few.line().to, ChannelKind::dc_sendrecv);
  const auto more = change(few, WhyChange::What::messages);
  ASSERT_TRUE(more.has_value());
  EXPECT_TRUE(over_ring(more->to));
  source().messages = selection().messages = 3 + more->amount;
  EXPECT_EQ(pair().line().to, more->to);
  --source().messages;
  --selection().messages;
  EXPECT_EQ(pair().line().to, ChannelKind::dc_sendrecv);
  expect_said("more in the window would give");
  EXPECT_FALSE(change(few, WhyChange::What::budget).has_value());
}

TEST_F(Why, ABudgetThatBindsIsNamedWithWhatItLacks) {
  selection().bytes_available = 60 << 10;
  const PairSelection bound = pair();
  EXPECT_EQ(bound.line().reason, selection::Reason::limit_budget);
  const auto more = change(bound, WhyChange::What::budget);
  ASSERT_TRUE(more.has_value());
  selection().bytes_available += more->amount;
  EXPECT_TRUE(over_ring(pair().line().to));
  selection().bytes_available -= 1;
  EXPECT_FALSE(over_ring(pair().line().to));
  selection().bytes_available = 60 << 10;
  expect_said("60.0 KiB are left for channels, a ring takes 64.0 KiB, a queue pair 32.0 KiB");
  expect_said("more memory budget at rank 0 would give DC-RDMA");
}

TEST_F(Why, TheBudgetOfTheSenderIsNamed) {
  source().full = true;
  EXPECT_EQ(pair().line().reason, selection::Reason::budget_of_source);
  EXPECT_TRUE(change(pair(), WhyChange::What::budget_of_source).has_value());
  expect_said("room in the memory budget of rank 1 would give RC-RDMA");
  expect_said("of 256 MiB are used");
}

TEST_F(Why, ARefusalIsNamed) {
  source().refused_for = 2 * kSecond;
  EXPECT_EQ(pair().line().reason, selection::Reason::refused_by_peer);
  expect_said("asked again after 2.00 s");
  expect_said("no refusal by rank 1 would give RC-RDMA");
}

TEST_F(Why, ALimitOfChannelsIsNamed) {
  selection().max_channels = 1;
  source().messages = 9'000;
  selection().messages = 19'000;
  EXPECT_EQ(pair().line().reason, selection::Reason::limit_channels);
  expect_said("max_channels above 1 would give RC-RDMA");
}

TEST_F(Why, ProcessesThatDoNotWaitGainLess) {
  source().busy = 1;
  selection().busy = 1;
  source().switched = 0;
  const PairSelection busy = pair();
  // A receiver that waits for nothing polls nothing in vain.
  EXPECT_NEAR(busy.channels()[1].saved.value(), 72 - 39, 0.1);
  expect_said(
      "rank 1 spends 100 % of its time on messages; rank 0 did not wait for 100 % of those");
}

TEST_F(Why, AChangeMadeSinceIsUndoneForTheQuestion) {
  PeerReport& peer = reports_[0].peers[0];
  peer.receive.spans.push_back({ChannelKind::rc_rdma, 3 * kSecond + 5, 7, 7});
  peer.source->connected = true;
  reports_[0].decisions.push_back({3 * kSecond + 1, peer.peer, ChannelKind::dc_sendrecv,
                                   ChannelKind::rc_rdma, "rate", "done in 3 us"});
  EXPECT_EQ(pair().source().current, ChannelKind::dc_sendrecv);
  EXPECT_FALSE(pair().source().rc_exists);
  EXPECT_EQ(pair().line().to, ChannelKind::rc_rdma);
  expect_said("3.000 s: DC-sendrecv -> RC-RDMA, done in 3 us: rate");
  expect_said("rank 1 -> rank 0: over RC-RDMA since 3.000 s");
}

TEST_F(Why, PolicyAqpsIsAskedToo) {
  reports_[0].policy = "aqps";
  selection().gain_threshold = 1e6;
  EXPECT_EQ(pair().line().reason, selection::Reason::below_threshold);
  expect_said("must save more than 20.0 s");
}

TEST_F(Why, BothDirectionsAreTold) {
  expect_said("rank 1 -> rank 0: over DC-sendrecv since the start, of 3.210 s; rank 0 decides");
  expect_said("rank 0 -> rank 1: over RC-RDMA since 1.000 s, of 3.210 s; rank 1 decides");
  expect_said("rank 1 sent 12,345");
  expect_said(
      "10,000 messages of 20,000 from all peers in 1.00 s, at the latest selection at 3.000 s");
}

TEST_F(Why, ReportsOfOlderVersionsTellWhatTheyHave) {
  for (EndpointReport& report : reports_) report.selection.reset();
  EXPECT_FALSE(PairSelection::of(reports_[0], reports_[0].peers[0]).has_value());
  expect_said("message rate too low for a channel (1000 messages/s)");
}

TEST_F(Why, AnEndWithoutAReportIsNamed) {
  reports_.erase(reports_.begin());
  expect_said("pid 5000, which decides, left no report", 5000);
}

TEST_F(Why, AnUnknownRankIsAnErrorThatNamesTheKnown) {
  const Result<std::string> text = why_text(reports_, 0, 9);
  ASSERT_FALSE(text.ok());
  EXPECT_EQ(text.status().text().find("no rank or process 9 in these reports; there are: rank 0, "
                                      "rank 1, rank 2"),
            0u)
      << text.status().text();
  reports_[0].peers.erase(reports_[0].peers.begin());
  reports_[1].peers.erase(reports_[1].peers.begin());
  const Result<std::string> silent = why_text(reports_, 0, 1);
  ASSERT_FALSE(silent.ok());
  EXPECT_NE(silent.status().text().find(
                "rank 0 and rank 1 exchanged no message; rank 0 did with: rank 2"),
            std::string::npos)
      << silent.status().text();
}

TEST_F(Why, NumbersOfDamagedReportsDoNoHarm) {
  selection().bytes_available = UINT64_MAX;
  selection().bytes_per_ring = UINT64_MAX;
  selection().window = INT64_MAX;
  selection().max_channels = selection().ring_entries = UINT32_MAX;
  source().messages = selection().messages = UINT64_MAX;
  source().busy = 1e300;
  for (CostReport& cost : selection().costs) cost.value = -1e300;
  EXPECT_TRUE(why_text(reports_, 0, 1).ok());
}

TEST_F(Why, LinesFitAndArePrintable) {
  reports_[0].policy = std::string("a\x1b[31m") + std::string(300, 'x');
  reports_[1].decisions.assign(
      100, {1, 0, ChannelKind::dc_rdma, ChannelKind::rc_rdma, std::string(200, 'y'), "done\n"});
  const Result<std::string> text = why_text(reports_, 0, 1);
  ASSERT_TRUE(text.ok());
  EXPECT_EQ(text.value().find('\x1b'), std::string::npos);
  EXPECT_NE(text.value().find("88 earlier changes"), std::string::npos);
  std::size_t begin = 0;
  for (std::size_t end; (end = text.value().find('\n', begin)) != std::string::npos;
       begin = end + 1)
    EXPECT_LE(end - begin, kWhyColumns) << text.value().substr(begin, end - begin);
}

}  // namespace
}  // namespace turnout::cli
