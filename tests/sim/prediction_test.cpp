// SPDX-License-Identifier: BSD-3-Clause
// The last run's pairs as a prediction (docs/decisions/047-prediction.md), in virtual time, with
// the profile of a real adapter: what a right one saves, and that a wrong one stays within its
// bound.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string_view>

#include "core/selection/prediction.h"
#include "sim/runtime/simulation.h"
#include "sim/study/study.h"
#include "tests/sim/permuted_reports.h"

namespace turnout::sim {
namespace {

constexpr std::uint32_t kRanks = 16;

struct Job {
  std::string workload = "random";
  NamedValues options = {{"messages", "10000"}};
  std::string budget = "64MiB";
  std::uint64_t seed = 1;
  Picoseconds start_after = 0;
};

Outcome outcome_of(const Job& job, const NamedValues& settings = {}) {
  StudyOptions study;
  study.workload = job.workload;
  study.options = job.options;
  study.place = {kRanks, 1, job.seed};
  study.profile = find_profile("connect-ib").value();
  study.policies = {"turnout"};
  study.settings = settings;
  study.settings.emplace_back("memory_budget", job.budget);
  study.check_content = false;
  study.keep_reports = true;
  study.start_after = job.start_after;
  Result<Study> result = run_study(study, run);
  EXPECT_TRUE(result.ok()) << result.status().text();
  return result.ok() ? std::move(result.value().results[0].outcome) : Outcome{};
}

// Where the time between the exchange of addresses and the first message is used for set-ups.
Job with_a_start() {
  Job job;
  job.options = {{"messages", "30000"}};
  job.start_after = 50'000 * hca::kMicrosecond;
  return job;
}

// Messages that came before the first ring, of sources that sent enough for one.
std::uint64_t messages_before_rings(const Outcome& outcome) {
  std::uint64_t sum = 0;
  for (const EndpointReport& report : outcome.reports) {
    for (const PeerReport& peer : report.peers) {
      for (const ChannelSpan& span : peer.receive.spans) {
        if (over_ring(span.channel)) break;
        sum += span.messages;
      }
    }
  }
  return sum;
}

bool is_predicted(const DecisionReport& decision) {
  return decision.reason.find("TURNOUT_PREDICTION") != std::string::npos;
}

// Of the sources that a rank set channels up for because of the prediction, those whose channels
// carried next to nothing.
std::size_t most_in_vain(const Outcome& outcome) {
  std::size_t most = 0;
  for (const EndpointReport& report : outcome.reports) {
    std::size_t in_vain = 0;
    for (const PeerReport& peer : report.peers) {
      const bool asked = std::ranges::any_of(report.decisions, [&](const DecisionReport& decision) {
        return decision.peer == peer.peer && is_predicted(decision) &&
               decision.outcome.starts_with("done");
      });
      std::uint64_t carried = 0;
      for (const ChannelSpan& span : peer.receive.spans)
        carried += over_ring(span.channel) ? span.messages : 0;
      in_vain += asked && carried < 8 ? 1 : 0;
    }
    most = std::max(most, in_vain);
  }
  return most;
}

void expect_within_budget(const Outcome& outcome) {
  for (const EndpointReport& report : outcome.reports) EXPECT_LE(report.peak, report.budget);
}

TEST(PredictionRun, ARightOneIsFasterWhereThereIsTimeForItsSetUps) {
  const Job job = with_a_start();
  const ReportFolder folder;
  const Outcome first = outcome_of(job, {{"report", folder.path()}});
  EXPECT_EQ(folder.files(), kRanks);
  const Outcome second = outcome_of(job, {{"prediction", folder.path()}});
  EXPECT_LT(static_cast<double>(second.time), 0.9 * static_cast<double>(first.time));
  EXPECT_LT(2 * messages_before_rings(second), messages_before_rings(first));
  expect_within_budget(second);
  std::size_t predicted = 0;
  for (const EndpointReport& report : second.reports)
    predicted += static_cast<std::size_t>(std::ranges::count_if(report.decisions, is_predicted));
  EXPECT_GT(predicted, kRanks);
}

TEST(PredictionRun, ARightOneOfMovingHotSpotsIsFasterWithoutAStart) {
  Job job{"hotspots", {{"phases", "4"}, {"messages", "1500"}}};
  const ReportFolder folder;
  const Outcome first = outcome_of(job, {{"report", folder.path()}});
  const Outcome second = outcome_of(job, {{"prediction", folder.path()}});
  EXPECT_LT(static_cast<double>(second.time), 0.9 * static_cast<double>(first.time));
}

// Each rank has the pairs of another one.
TEST(PredictionRun, AWrongOneStaysWithinItsBound) {
  for (const char* const budget : {"16MiB", "64MiB"}) {
    Job job = with_a_start();
    job.budget = budget;
    const ReportFolder folder, wrong;
    // Three of fifteen: most predicted sources send nothing.
    job.options = {{"messages", "10000"}, {"neighbours", "3"}};
    const Outcome without = outcome_of(job, {{"report", folder.path()}});
    ASSERT_TRUE(folder.write_permuted(wrong, 7, 3));
    const Outcome with = outcome_of(job, {{"prediction", wrong.path()}});
    expect_within_budget(with);
    EXPECT_LE(most_in_vain(with), selection::Prediction::kMostOnTrust);
    EXPECT_GT(most_in_vain(with), 0u) << "it was not wrong";
    const auto set_up = static_cast<Picoseconds>(selection::DeviceCosts{}.setup_rc_time.value *
                                                 static_cast<double>(hca::kNanosecond));
    EXPECT_LE(with.time, without.time + Picoseconds{selection::Prediction::kMostOnTrust} * set_up);
  }
}

TEST(PredictionRun, TheSameOneGivesTheSameRun) {
  const Job job = with_a_start();
  const ReportFolder folder;
  (void)outcome_of(job, {{"report", folder.path()}});
  const Outcome one = outcome_of(job, {{"prediction", folder.path()}});
  EXPECT_EQ(one.world.hash, outcome_of(job, {{"prediction", folder.path()}}).world.hash);
}

// As without the setting, to the last event.
TEST(PredictionRun, WhatCannotBeReadChangesNothing) {
  const Job job;
  const ReportFolder folder, of_another;
  const Outcome without = outcome_of(job, {{"report", folder.path()}});
  const auto expect_unchanged = [&](const std::string& path) {
    EXPECT_EQ(outcome_of(job, {{"prediction", path}}).world.hash, without.world.hash) << path;
  };
  expect_unchanged(folder.path() + "/none");
  expect_unchanged(of_another.path());
  ASSERT_TRUE(folder.write_permuted(of_another, 1, 0));
  for (const auto& entry : std::filesystem::directory_iterator(of_another.path()))
    std::filesystem::resize_file(entry.path(), 1000);  // cut off
  expect_unchanged(of_another.path());
  // Of a job of another size: all ranks are there, but their number is another.
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    std::ifstream file(entry.path(), std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    EndpointReport report = report_from_json(text).value();
    report.ranks = 2 * static_cast<int>(kRanks);
    std::ofstream(entry.path()) << to_json(report);
  }
  expect_unchanged(folder.path());
}

}  // namespace
}  // namespace turnout::sim
