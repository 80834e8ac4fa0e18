// SPDX-License-Identifier: BSD-3-Clause
// Results kept in a folder: what they are of, reading back, damage, and several processes.
#include "sim/study/kept_results.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>

#include "sim/experiments/experiment.h"
#include "sim/study/study.h"
#include "tests/sim/mock_rank.h"
#include "tests/support/scratch.h"

namespace turnout::sim {
namespace {

using testing::HasSubstr;

int runs = 0;  // of this process

// The program on the tests' runtime; what the model would add is made up.
Result<Outcome> play(const Options& options, const Program& program) {
  ++runs;
  const mock::Outcome played = mock::play({options.ranks, options.seed, false}, program);
  if (!played.failure.empty()) return Status{Code::internal, played.failure};
  Outcome o;
  o.time = played.time;
  o.messages = played.messages;
  o.bytes = played.bytes;
  o.channels = {{"DC-sendrecv", 7, 70}, {"RC-RDMA", played.messages, played.bytes}};
  o.switches = 3;
  o.first_rc = 1234;
  o.memory = {{"rings", 65536, 131072}};
  o.memory_peak = 1 << 20;
  o.budget = 1 << 24;
  o.world.events = 99;
  o.world.hash = 0xfedcba9876543210;
  o.real_seconds = 0.25;
  return o;
}

StudyOptions ring(const KeptResults& kept) {
  StudyOptions options;
  options.workload = "ring";
  options.options = {{"rounds", "3"}};
  options.place = {4, 1, 9};
  options.profile.name = "ideal";
  options.policies = {"aqps", "static:dc-sendrecv"};
  options.kept = &kept;
  return options;
}

KeptResults open(const test::Folder& scratch) {
  Result<KeptResults> kept = KeptResults::open((scratch.path() / "kept").string(), "1.0");
  EXPECT_TRUE(kept.ok()) << kept.status().text();
  return std::move(kept).value();
}

std::string text_of(const std::string& path) {
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

TEST(KeptResults, AreReadBackInsteadOfRunAgain) {
  const test::Folder scratch;
  const KeptResults kept = open(scratch);
  runs = 0;
  const Result<Study> first = run_study(ring(kept), play);
  ASSERT_TRUE(first.ok()) << first.status().text();
  EXPECT_EQ(runs, 2);
  const Result<Study> second = run_study(ring(kept), play);
  ASSERT_TRUE(second.ok()) << second.status().text();
  EXPECT_EQ(runs, 2);
  ASSERT_EQ(second.value().results.size(), 2U);
  for (std::size_t i = 0; i < 2; ++i) {
    const PolicyResult &a = first.value().results[i], &b = second.value().results[i];
    EXPECT_EQ(a.policy, b.policy);
    EXPECT_EQ(to_kept_json("x", a), to_kept_json("x", b));
    EXPECT_EQ(b.outcome.world.hash, 0xfedcba9876543210U);
    EXPECT_EQ(b.outcome.first_rc, 1234);
    EXPECT_EQ(b.phases.at(0).messages, 12U);
  }
}

TEST(KeptResults, AreOfAllThatARunFollowsFrom) {
  const test::Folder scratch;
  const KeptResults kept = open(scratch);
  const StudyOptions same = ring(kept);
  const std::string identity = kept.identity(same, "aqps");
  EXPECT_EQ(kept.identity(ring(kept), "aqps"), identity);
  // A default that is written out is the same run.
  StudyOptions written = ring(kept);
  written.options.emplace_back("ways", "1");
  EXPECT_EQ(kept.identity(written, "aqps"), identity);
  EXPECT_NE(kept.identity(same, "turnout"), identity);
  const std::vector<std::function<void(StudyOptions&)>> changes = {
      [](StudyOptions& o) { o.place.ranks = 5; },
      [](StudyOptions& o) { o.place.ranks_per_node = 2; },
      [](StudyOptions& o) { o.place.seed = 1; },
      [](StudyOptions& o) {
        o.options = {{"rounds", "4"}};
      },
      [](StudyOptions& o) {
        o.settings = {{"interval", "5ms"}};
      },
      [](StudyOptions& o) {
        o.own_settings["aqps"] = {{"rc_pool", "5"}};
      },
      [](StudyOptions& o) { o.profile.name = "other"; },
      [](StudyOptions& o) {
        o.profile.values.emplace_back();
        o.profile.values.back().name = "hop";
        o.profile.values.back().value = "170";
      },
      [](StudyOptions& o) { o.time_limit = 7; },
      [](StudyOptions& o) { o.check_content = false; }};
  for (std::size_t i = 0; i < changes.size(); ++i) {
    StudyOptions other = ring(kept);
    changes[i](other);
    EXPECT_NE(kept.identity(other, "aqps"), identity) << i;
  }
  const KeptResults newer =
      std::move(KeptResults::open((scratch.path() / "kept").string(), "1.1")).value();
  EXPECT_NE(newer.identity(same, "aqps"), identity);
}

TEST(KeptResults, FollowTheTextOfAFileOfCosts) {
  const test::Folder scratch;
  const KeptResults kept = open(scratch);
  StudyOptions study = ring(kept);
  study.settings = {{"costs", scratch.file("costs.toml", "a")}};
  const std::string before = kept.identity(study, "aqps");
  EXPECT_FALSE(before.empty());
  scratch.file("costs.toml", "b");
  EXPECT_NE(kept.identity(study, "aqps"), before);
}

TEST(KeptResults, AreNoneWhereARunIsMoreThanNumbers) {
  const test::Folder scratch;
  const KeptResults kept = open(scratch);
  StudyOptions study = ring(kept);
  study.keep_reports = true;
  EXPECT_EQ(kept.identity(study, "aqps"), "");
  study = ring(kept);
  study.settings = {{"report", "/somewhere"}};
  EXPECT_EQ(kept.identity(study, "aqps"), "");
  runs = 0;
  ASSERT_TRUE(run_study(study, play).ok());
  ASSERT_TRUE(run_study(study, play).ok());
  EXPECT_EQ(runs, 4);
}

// Else the fuzzer would never get beyond the number of the layout.
TEST(KeptResults, OfTheFuzzersCorpusAreOfThisLayout) {
  for (const char* const name : {"result", "failure"}) {
    const std::string text = text_of(fmt::format("{}/{}.json", TURNOUT_KEPT_CORPUS, name));
    const Result<Kept> kept = from_kept_json(text, "x");
    EXPECT_TRUE(kept.ok()) << name << ": " << kept.status().text();
  }
}

TEST(KeptResults, ThatAreDamagedAreRunAgain) {
  const test::Folder scratch;
  const KeptResults kept = open(scratch);
  StudyOptions study = ring(kept);
  study.policies = {"aqps"};
  ASSERT_TRUE(run_study(study, play).ok());
  const std::string path = kept.path_of(kept.identity(study, "aqps"));
  const std::string good = text_of(path);
  const auto replaced = [&](const std::string& what, const std::string& by) {
    std::string text = good;
    const auto at = text.find(what);
    EXPECT_NE(at, std::string::npos) << what;
    return text.replace(at, what.size(), by);
  };
  const std::vector<std::string> bad = {"",
                                        good.substr(0, good.size() / 2),
                                        "[]",
                                        replaced("\"turnout_result\": 4", "\"turnout_result\": 5"),
                                        replaced("\"messages\": 12", "\"messages\": -12"),
                                        replaced("\"time_ps\"", "\"time\""),
                                        replaced("fedcba9876543210", "fedcba987654321z"),
                                        replaced("fedcba9876543210", "0xfedcba98765432"),
                                        replaced("\"end_ps\": ", "\"end_ps\": -"),
                                        replaced("\\\"ranks\\\":4", "\\\"ranks\\\":5"),
                                        std::string(200'000, '[')};
  for (std::size_t i = 0; i < bad.size(); ++i) {
    std::ofstream(path) << bad[i];
    runs = 0;
    testing::internal::CaptureStderr();
    EXPECT_TRUE(run_study(study, play).ok());
    EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("repeating the run")) << i;
    EXPECT_EQ(runs, 1) << i;
    EXPECT_EQ(text_of(path), good) << i;
  }
}

TEST(KeptResults, KeepFailuresOfRunsButNotOfTheMachine) {
  const test::Folder scratch;
  const KeptResults kept = open(scratch);
  StudyOptions study = ring(kept);
  study.policies = {"aqps"};
  int asked = 0;
  const auto fails = [&](Code code) {
    return [&asked, code](const Options&, const Program&) {
      ++asked;
      return Result<Outcome>(Status{code, "rank 3 at 1.2 us: why"});
    };
  };
  EXPECT_EQ(run_study(study, fails(Code::no_device)).status().code(), Code::no_device);
  EXPECT_EQ(run_study(study, fails(Code::no_device)).status().code(), Code::no_device);
  EXPECT_EQ(asked, 2);
  const Status first = run_study(study, fails(Code::over_budget)).status();
  const Status second = run_study(study, fails(Code::over_budget)).status();
  EXPECT_EQ(asked, 3);
  EXPECT_EQ(second.code(), Code::over_budget);
  EXPECT_EQ(second.text(), first.text());
}

TEST(StudySet, IsMadeByProcesses) {
  const test::Folder scratch;
  const KeptResults kept = open(scratch);
  std::vector<StudyOptions> studies;
  for (const std::uint32_t ranks : {2U, 3U, 4U, 5U, 6U}) {
    studies.push_back(ring(kept));
    studies.back().place.ranks = ranks;
  }
  runs = 0;
  const auto results = run_studies(studies, {3, {}}, play);
  ASSERT_TRUE(results.ok()) << results.status().text();
  EXPECT_EQ(runs, 0);  // the children's
  ASSERT_EQ(results.value().size(), 5U);
  for (std::size_t i = 0; i < 5; ++i) {
    ASSERT_TRUE(results.value()[i].ok());
    EXPECT_EQ(results.value()[i].value().place.ranks, i + 2);
    EXPECT_EQ(results.value()[i].value().results.size(), 2U);
  }
  // In one process: the same, and told of.
  const test::Folder other;
  const KeptResults apart = open(other);
  std::vector<std::string> lines;
  for (StudyOptions& study : studies) study.kept = &apart;
  const auto alone =
      run_studies(studies, {1, [&](const std::string& line) { lines.push_back(line); }}, play);
  ASSERT_TRUE(alone.ok());
  EXPECT_EQ(runs, 10);
  ASSERT_EQ(lines.size(), 10U);
  EXPECT_THAT(lines[9], HasSubstr("[10/10] ring, 6 ranks, static:dc-sendrecv"));
  for (std::size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(to_kept_json("x", alone.value()[i].value().results[1]),
              to_kept_json("x", results.value()[i].value().results[1]));
  }
}

TEST(StudySet, TellsOfAProcessThatDied) {
  const test::Folder scratch;
  const KeptResults kept = open(scratch);
  const std::vector<StudyOptions> studies = {ring(kept)};
  const auto dies = [](const Options&, const Program&) -> Result<Outcome> {
    ::raise(SIGKILL);
    return Status{Code::internal, "alive"};
  };
  const auto results = run_studies(studies, {2, {}}, dies);
  EXPECT_EQ(results.status().code(), Code::internal);
  EXPECT_THAT(results.status().text(), HasSubstr("killed by signal 9"));
  StudyOptions nowhere = ring(kept);
  nowhere.kept = nullptr;
  EXPECT_THAT(run_studies({&nowhere, 1}, {2, {}}, play).status().text(), HasSubstr("--save"));
}

TEST(StudySet, StopsWhereNoRunCouldBeMade) {
  const test::Folder scratch;
  const KeptResults kept = open(scratch);
  const std::vector<StudyOptions> studies = {ring(kept), ring(kept)};
  int asked = 0;
  const auto results = run_studies(studies, {1, {}}, [&](const Options&, const Program&) {
    ++asked;
    return Result<Outcome>(Status{Code::no_device, "no adapter"});
  });
  EXPECT_EQ(results.status().code(), Code::no_device);
  EXPECT_EQ(asked, 1);
}

}  // namespace
}  // namespace turnout::sim
