// SPDX-License-Identifier: BSD-3-Clause
// What an endpoint tells a watcher, and when it does not.
#include "core/report/report_live.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>

#include "tests/support/sample.h"
#include "tests/support/scratch.h"

namespace turnout {
namespace {

namespace fs = std::filesystem;

class TestClock final : public Clock {
 public:
  Nanoseconds time = 1'000;
  Nanoseconds step = 0;  // each look at the clock takes so long
  [[nodiscard]] Nanoseconds now() noexcept override { return time += step; }
};

class Live : public ::testing::Test {
 protected:
  Live() : folder_(LiveReport::folder(scratch_.path().string())) {}

  void watch(std::chrono::seconds ago = {}) const {
    fs::create_directory(folder_);
    ::chmod(folder_.c_str(), 0700);
    const fs::path file = folder_ / LiveReport::kWatch;
    { const std::ofstream touched(file); }
    fs::last_write_time(file, fs::file_time_type::clock::now() - ago);
  }
  [[nodiscard]] std::vector<fs::path> reports() const {
    std::vector<fs::path> found;
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(folder_, ignored)) {
      if (entry.path().filename() != LiveReport::kWatch) found.push_back(entry.path());
    }
    return found;
  }
  // After so many seconds.
  void tick(LiveReport& live, double later = 1) {
    clock_.time += static_cast<Nanoseconds>(later * 1e9);
    live.tick(clock_.time, clock_, [this] {
      ++made_;
      EndpointReport report = test::sample_report(1, 3);
      report.job.clear();
      return report;
    });
  }

  test::Folder scratch_;
  test::Variable runtime_{"XDG_RUNTIME_DIR", scratch_.path().string()};
  fs::path folder_;
  TestClock clock_;
  int made_ = 0;
};

TEST_F(Live, TellsAWatcherAndRemovesItAtTheEnd) {
  watch();
  {
    LiveReport live;
    live.open(0x1234, "job-7");
    tick(live);
    ASSERT_EQ(reports().size(), 1U);
    EXPECT_EQ(reports()[0].filename(), std::to_string(::getpid()) + ".0000000000001234.json");
    const auto report = report_from_json(test::content_of(reports()[0]));
    ASSERT_TRUE(report.ok()) << report.status().text();
    EXPECT_EQ(report.value().rank, 1);
    EXPECT_EQ(report.value().job, "job-7");
    struct stat info {};
    ASSERT_EQ(::stat(reports()[0].c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0600U);
  }
  EXPECT_TRUE(reports().empty());
}

TEST_F(Live, OnceASecond) {
  watch();
  LiveReport live;
  live.open(1, "j");
  for (int i = 0; i < 30; ++i) tick(live, 0.1);
  EXPECT_EQ(made_, 3);
}

TEST_F(Live, SeldomerIfItTakesLong) {
  watch();
  LiveReport live;
  live.open(1, "j");
  clock_.step = 100'000'000;  // what writing takes
  for (int i = 0; i < 10; ++i) tick(live, 1);
  EXPECT_EQ(made_, 2);  // each five seconds
}

TEST_F(Live, NothingWithoutAWatcher) {
  LiveReport closed;
  tick(closed, 1000);
  LiveReport live;
  live.open(1, "j");
  tick(live);
  watch(std::chrono::seconds(60));
  tick(live);
  EXPECT_EQ(made_, 0);
  EXPECT_TRUE(reports().empty());
}

TEST_F(Live, WhatWasToldIsTakenBackWhenTheWatcherLeft) {
  watch();
  LiveReport live;
  live.open(1, "j");
  tick(live);
  EXPECT_EQ(reports().size(), 1U);
  fs::remove(folder_ / LiveReport::kWatch);
  tick(live);
  EXPECT_TRUE(reports().empty());
}

TEST_F(Live, NothingIntoAFolderThatIsOpenToOthers) {
  watch();
  ::chmod(folder_.c_str(), 0755);
  test::CapturedStderr captured;
  {
    LiveReport live;
    live.open(1, "j");
    for (int i = 0; i < 3; ++i) tick(live);
  }
  const std::string told = captured.text();
  EXPECT_TRUE(reports().empty());
  const auto at = told.find("accessible to others");
  ASSERT_NE(at, std::string::npos) << told;
  EXPECT_EQ(told.rfind("accessible to others"), at) << told;  // once
  // The folder is the reason.
  ::chmod(folder_.c_str(), 0700);
  LiveReport live;
  live.open(1, "j");
  tick(live);
  EXPECT_EQ(reports().size(), 1U);
}

TEST_F(Live, NothingThroughALink) {
  watch();
  fs::rename(folder_, scratch_.path() / "elsewhere");
  fs::create_directory_symlink("elsewhere", folder_);
  {
    const test::CapturedStderr captured;
    LiveReport live;
    live.open(1, "j");
    tick(live);
    EXPECT_EQ(made_, 1);  // it was tried
    EXPECT_TRUE(reports().empty());
  }
  // The link is the reason.
  fs::remove(folder_);
  fs::rename(scratch_.path() / "elsewhere", folder_);
  LiveReport live;
  live.open(1, "j");
  tick(live);
  EXPECT_EQ(reports().size(), 1U);
}

TEST_F(Live, AForkedChildLeavesItsParentsReport) {
  watch();
  LiveReport live;
  live.open(1, "j");
  tick(live);
  const pid_t child = ::fork();
  if (child == 0) {
    live.~LiveReport();
    ::_exit(0);
  }
  ::waitpid(child, nullptr, 0);
  EXPECT_EQ(reports().size(), 1U);
}

}  // namespace
}  // namespace turnout
