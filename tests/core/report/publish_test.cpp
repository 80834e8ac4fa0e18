// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <list>

#include "core/report/report.h"
#include "tests/support/sample.h"
#include "tests/support/scratch.h"

namespace turnout {
namespace {

namespace fs = std::filesystem;
using test::Variable;

class Publish : public ::testing::Test {
 protected:
  Publish() {
    for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID"}) {
      variables_.emplace_back(name, std::nullopt);
    }
    variables_.emplace_back("XDG_RUNTIME_DIR", folder_.path().string());
  }
  [[nodiscard]] fs::path job_folder(const std::string& job) const {
    return folder_.path() / ("turnout-" + std::to_string(::geteuid()) + "-report-" + job);
  }
  [[nodiscard]] std::size_t files() const {
    return static_cast<std::size_t>(
        std::distance(fs::directory_iterator(folder_.path()), fs::directory_iterator()));
  }
  // Publishes in a process of its own, as rank `rank` of `ranks`; returns what it printed.
  static pid_t start_rank(int rank, int ranks, const std::string& job, int times, int out_fd) {
    const pid_t pid = ::fork();
    if (pid != 0) return pid;
    ::setenv("PMI_RANK", std::to_string(rank).c_str(), 1);
    ::setenv("PMI_SIZE", std::to_string(ranks).c_str(), 1);
    ::setenv("MPI_LOCALNRANKS", std::to_string(ranks).c_str(), 1);
    ::dup2(out_fd, STDOUT_FILENO);
    EndpointReport report = test::sample_report(rank, ranks);
    report.job.clear();
    report.pid = static_cast<std::uint32_t>(::getpid());
    bool good = true;
    for (int i = 0; i < times; ++i) {
      report.endpoint += 0x100u;
      good = publish(report, "1", job).ok() && good;
    }
    _exit(good ? 0 : 1);
  }
  std::string run_job(int ranks, const std::string& job, int times = 1) {
    const fs::path out = folder_.path() / "out";
    const int fd = ::open(out.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_TRUNC, 0600);
    std::vector<pid_t> pids;
    for (int rank = 0; rank < ranks; ++rank) {
      pids.push_back(start_rank(rank, ranks, job, times, fd));
    }
    for (const pid_t pid : pids) {
      int status = 0;
      EXPECT_EQ(::waitpid(pid, &status, 0), pid);
      EXPECT_EQ(status, 0);
    }
    ::close(fd);
    std::string text = test::content_of(out);
    fs::remove(out);
    return text;
  }
  test::Folder folder_;

 private:
  std::list<Variable> variables_;
};

TEST_F(Publish, NothingIsAskedFor) {
  test::CapturedStdout captured;
  EXPECT_TRUE(publish(test::sample_report(0, 2), "0", "").ok());
  EXPECT_TRUE(publish(test::sample_report(0, 2), "", "").ok());
  EXPECT_EQ(captured.text(), "");
  EXPECT_EQ(files(), 0u);
}

TEST_F(Publish, WithoutALauncherItsOwnSummaryAtOnce) {
  test::CapturedStdout captured;
  EndpointReport report = test::sample_report(0, 2);
  report.rank = report.ranks = -1;
  EXPECT_TRUE(publish(report, "1", "").ok());
  const std::string text = captured.text();
  EXPECT_NE(text.find("1 process on node7"), std::string::npos) << text;
  EXPECT_EQ(files(), 0u);
}

TEST_F(Publish, TheLastOfTheJobPrintsForAllAndCleansUp) {
  for (int round = 0; round < 10; ++round) {
    const std::string text = run_job(8, "job-7");
    std::size_t heads = 0;
    for (std::size_t at = 0; (at = text.find("-- turnout report", at)) != std::string::npos; ++at)
      ++heads;
    ASSERT_EQ(heads, 1u) << text;
    ASSERT_NE(text.find("8 of 8 processes used Turnout"), std::string::npos) << text;
    ASSERT_EQ(files(), 0u) << "folder left behind";
  }
}

// Second endpoints that come after the job's table get one of their own; nothing is left behind.
TEST_F(Publish, SeveralEndpointsOfOneProcessAreOneProcess) {
  for (int round = 0; round < 20; ++round) {
    const std::string text = run_job(3, "job-8", 2);
    ASSERT_NE(text.find("3 of 3 processes used Turnout"), std::string::npos) << text;
    ASSERT_EQ(files(), 0u) << "folder left behind";
  }
}

TEST_F(Publish, AFolderOfOthersIsNotUsed) {
  const fs::path path = job_folder("bad");
  // A link in its place.
  const test::Folder elsewhere;
  fs::create_directory_symlink(elsewhere.path(), path);
  const Variable rank("PMI_RANK", "0"), size("PMI_SIZE", "2"), local("MPI_LOCALNRANKS", "2");
  EndpointReport report = test::sample_report(0, 2);
  report.job.clear();
  Status status = publish(report, "1", "bad");
  EXPECT_FALSE(status.ok());
  EXPECT_TRUE(fs::is_empty(elsewhere.path()));
  fs::remove(path);
  // Open to everybody.
  fs::create_directory(path);
  ASSERT_EQ(::chmod(path.c_str(), 0777), 0);
  status = publish(report, "1", "bad");
  EXPECT_EQ(status.code(), Code::permission);
  EXPECT_NE(status.text().find(path.string()), std::string::npos);
  fs::remove_all(path);
  // A file in its place.
  folder_.file(path.filename().string(), "x");
  EXPECT_FALSE(publish(report, "1", "bad").ok());
}

TEST_F(Publish, NamesOfJobsDoNotLeaveTheFolder) {
  const Variable rank("PMI_RANK", "0"), size("PMI_SIZE", "2"), local("MPI_LOCALNRANKS", "2");
  EndpointReport report = test::sample_report(0, 2);
  report.job = "../../evil/name";
  EXPECT_TRUE(publish(report, "1", "").ok());
  EXPECT_TRUE(fs::exists(job_folder("_._.._evil_name")) || files() == 1u);
  EXPECT_FALSE(fs::exists(folder_.path().parent_path() / "evil"));
}

TEST_F(Publish, IntoAFolderOfTheUsersChoice) {
  test::CapturedStderr captured;
  const fs::path path = folder_.path() / "a" / "b";
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_TRUE(publish(test::sample_report(rank, 2), path.string(), "").ok());
  }
  EXPECT_EQ(captured.text(), "");
  std::size_t read = 0;
  for (const auto& entry : fs::directory_iterator(path)) {
    const Result<EndpointReport> report = report_from_json(test::content_of(entry.path()));
    ASSERT_TRUE(report.ok()) << entry.path();
    EXPECT_EQ(report.value().job, "sample");
    ++read;
  }
  EXPECT_EQ(read, 2u);
}

TEST_F(Publish, AFolderThatCannotBeMadeIsAnError) {
  const std::string file = folder_.file("file", "");
  const Status status = publish(test::sample_report(0, 2), file + "/sub", "");
  EXPECT_FALSE(status.ok());
  EXPECT_NE(status.text().find(file), std::string::npos) << status.text();
}

}  // namespace
}  // namespace turnout
