// SPDX-License-Identifier: BSD-3-Clause
// Sentinels: which runs are kept, what their file holds, and that a damaged one is refused.
#include "sim/experiments/sentinels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/experiments/experiment.h"
#include "tests/support/scratch.h"

namespace turnout::sim {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

StudyOptions study_of(std::string workload, std::uint32_t ranks) {
  StudyOptions study;
  study.workload = std::move(workload);
  study.options = {{"rounds", "3"}};
  study.settings = {{"interval", "1ms"}};
  study.place = {ranks, 1, 7};
  study.time_limit = 5;
  study.profile.name = "connect-ib";
  return study;
}

PolicyResult result_of(std::string policy, Picoseconds time, std::uint64_t events) {
  PolicyResult result;
  result.policy = std::move(policy);
  result.outcome.time = time;
  result.outcome.messages = 11;
  result.outcome.memory_peak = 12;
  result.outcome.rc_peak = 13;
  result.outcome.world.events = events;
  result.phases = {{"warmup", 0, 40, 1}, {"ring", 40, 100, 2}};
  return result;
}

Sentinels some() {
  SentinelCollector collector("/measured.toml");
  StudyOptions study = study_of("ring", 4);
  study.title = "ring, 9MiB";
  study.own_settings["turnout"] = {{"costs", "/measured.toml"}};
  study.own_settings["rc-rdma-od"] = {{"rc_pool", "4"}};
  collector.add(study, result_of("turnout", 1'500'000, 100));
  collector.add(study, result_of("turnout", 1'500'000, 100));
  collector.add(study, result_of("rc-rdma-od", 1'000'000, 200));
  return {"policies", "0123456789", choose_sentinels(collector.studies())};
}

TEST(Sentinels, HoldWhatARunFollowsFromAndWhatItGave) {
  const Sentinels all = some();
  ASSERT_EQ(all.studies.size(), 1U);
  const SentinelStudy& study = all.studies.front();
  EXPECT_TRUE(study.quick);
  EXPECT_EQ(study.profile, "connect-ib");
  ASSERT_EQ(study.runs.size(), 2U);
  EXPECT_TRUE(study.runs[0].calibrated);
  EXPECT_TRUE(study.runs[0].own_settings.empty());
  EXPECT_EQ(study.runs[0].result, (SentinelResult{1'500'000, 60, 11, 12, 13}));
  ProfileFile profile;
  profile.name = "connect-ib";
  const StudyOptions first = again(study, study.runs[0], profile, "/new.toml");
  EXPECT_THAT(first.policies, ElementsAre("turnout"));
  EXPECT_THAT(first.own_settings.at("turnout"),
              ElementsAre(std::pair<std::string, std::string>("costs", "/new.toml")));
  EXPECT_EQ(first.place.ranks, 4U);
  EXPECT_EQ(first.place.seed, 7U);
  EXPECT_EQ(first.time_limit, 5);
  const StudyOptions second = again(study, study.runs[1], profile, "/new.toml");
  EXPECT_THAT(second.own_settings.at("rc-rdma-od"),
              ElementsAre(std::pair<std::string, std::string>("rc_pool", "4")));
}

TEST(Sentinels, LeaveOutWhatCannotBeMadeAgain) {
  SentinelCollector collector("");
  StudyOptions study = study_of("ring", 4);
  study.own_settings["turnout"] = {{"costs", "/mine.toml"}};
  collector.add(study, result_of("turnout", 1, 1));
  study = study_of("replay", 4);
  study.make = [](const Place&) -> Result<Instance> { return Instance{}; };
  collector.add(study, result_of("aqps", 1, 1));
  EXPECT_TRUE(collector.studies().empty());
}

TEST(Sentinels, TakeTheCheapestOfEachWorkloadFirst) {
  SentinelCollector collector("");
  const auto add = [&](const char* workload, const char* rounds, std::uint64_t events) {
    StudyOptions study = study_of(workload, 2);
    study.title = std::string(workload) + rounds;
    study.options = {{"rounds", rounds}};
    collector.add(study, result_of("aqps", 1, events));
    collector.add(study, result_of("turnout", 1, events));
  };
  add("ring", "1", 10'000);
  add("ring", "2", 20'000);
  add("ring", "3", 500'000);
  add("trees", "1", 40'000);
  add("trees", "2", 4'000'000);
  const auto names = [](const std::vector<SentinelStudy>& studies) {
    std::vector<std::string> all;
    for (const SentinelStudy& s : studies) all.push_back(s.title + (s.quick ? " quick" : ""));
    return all;
  };
  EXPECT_THAT(names(choose_sentinels(collector.studies(), {120'000, 99}, {1'200'000, 99})),
              ElementsAre("ring1 quick", "trees1 quick", "ring2", "ring3"));
  // One is taken whatever it costs.
  EXPECT_THAT(names(choose_sentinels(collector.studies(), {1, 99}, {1, 99})),
              ElementsAre("ring1 quick"));
  // So many runs, two of each study.
  EXPECT_THAT(names(choose_sentinels(collector.studies(), {120'000, 2}, {9'000'000, 6})),
              ElementsAre("ring1 quick", "trees1", "ring2"));
}

TEST(Sentinels, CompareTurnoutWithTheBestOther) {
  Sentinels all = some();
  EXPECT_DOUBLE_EQ(lead_of_turnout(all.studies.front()), 1);  // both timed parts take 60 ps
  all.studies.front().runs[1].result.timed = 40;
  EXPECT_DOUBLE_EQ(lead_of_turnout(all.studies.front()), 1.5);
  all.studies.front().runs.pop_back();
  EXPECT_EQ(lead_of_turnout(all.studies.front()), 0);
}

TEST(Sentinels, ReadBackFromTheirFile) {
  const Sentinels all = some();
  const std::string text = to_json(all);
  const Result<Sentinels> read = parse_sentinels(text);
  ASSERT_TRUE(read.ok()) << read.status().text();
  EXPECT_EQ(to_json(read.value()), text);
  EXPECT_EQ(read.value().studies.front().runs[1].result, all.studies.front().runs[1].result);
}

TEST(Sentinels, RefuseDamagedFilesNamingTheField) {
  const std::string text = to_json(some());
  const auto damaged = [&](const std::string& what, const std::string& by) {
    std::string other = text;
    const auto at = other.find(what);
    EXPECT_NE(at, std::string::npos) << what;
    other.replace(at, what.size(), by);
    const Result<Sentinels> read = parse_sentinels(other);
    return read ? std::string() : read.status().text();
  };
  EXPECT_THAT(damaged("\"turnout_sentinels\": 2", "\"turnout_sentinels\": 3"),
              HasSubstr("layout 3"));
  EXPECT_THAT(damaged("\"ranks\": 4", "\"ranks\": -4"), HasSubstr("studies[0].ranks"));
  EXPECT_THAT(damaged("\"time_ps\": 1500000", "\"time_ps\": \"1\""), HasSubstr("runs[0].time_ps"));
  EXPECT_THAT(damaged("\"time_ps\": 1500000", "\"time_ps\": -1"), HasSubstr("runs[0].time_ps"));
  EXPECT_THAT(damaged("interval=1ms", "interval"), HasSubstr("studies[0].settings"));
  EXPECT_THAT(damaged("\"calibrated\": true,", ""), HasSubstr("calibrated"));
  EXPECT_THAT(damaged("\"studies\": [", "\"studies\": {"), HasSubstr("JSON"));
  EXPECT_THAT(parse_sentinels(text.substr(0, text.size() / 2)).status().text(), HasSubstr("JSON"));
}

TEST(Sentinels, StandBesideTheirPage) {
  const test::Folder scratch;
  const Sentinels all = some();
  const Result<Written> written =
      write_experiment(scratch.path().string(), "policies", {"# policies\n", {}}, "", &all);
  ASSERT_TRUE(written.ok()) << written.status().text();
  EXPECT_EQ(written.value().files.size(), 2U);
  const std::string section = sentinels_section(all);
  EXPECT_THAT(section, HasSubstr("commit `0123456789`"));
  EXPECT_THAT(section, HasSubstr("repeats 2 of its runs"));
  EXPECT_THAT(section, HasSubstr("| ring, 9MiB | 4 | `turnout` | 1.500 us | 60 ps | 11 |"));
}

}  // namespace
}  // namespace turnout::sim
