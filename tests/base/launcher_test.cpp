// SPDX-License-Identifier: BSD-3-Clause
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <list>

#include "base/launcher.h"
#include "tests/support/scratch.h"

namespace turnout {
namespace {

using test::Variable;

// No launcher, whoever started the tests.
class Launcher : public ::testing::Test {
 protected:
  Launcher() {
    for (const char* name :
         {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE",
          "PMIX_NAMESPACE", "PMIX_RANK", "OMPI_MCA_ess_base_jobid", "PMI_RANK", "PMI_SIZE",
          "MPI_LOCALNRANKS", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_JOB_ID", "SLURM_STEP_ID",
          "SLURM_NNODES", "SLURM_STEP_TASKS_PER_NODE", "SLURM_NODEID"}) {
      variables_.emplace_back(name, std::nullopt);
    }
  }
  void set(const char* name, const char* value) { variables_.emplace_back(name, value); }

 private:
  // Restored in reverse order.
  struct Stack : std::list<Variable> {
    ~Stack() {
      while (!empty()) pop_back();
    }
  } variables_;
};

void expect_identity(int rank, int ranks, int local_ranks, const std::string& job) {
  const LauncherIdentity identity = launcher_identity();
  EXPECT_EQ(identity.rank, rank);
  EXPECT_EQ(identity.ranks, ranks);
  EXPECT_EQ(identity.local_ranks, local_ranks);
  EXPECT_EQ(identity.job, job);
}

TEST_F(Launcher, None) {
  expect_identity(-1, -1, -1, "");
}

TEST_F(Launcher, OpenMpi) {
  set("OMPI_COMM_WORLD_RANK", "3");
  set("OMPI_COMM_WORLD_SIZE", "8");
  set("OMPI_COMM_WORLD_LOCAL_SIZE", "4");
  set("PMIX_NAMESPACE", "1273692161");
  expect_identity(3, 8, 4, "ompi-1273692161");
}

TEST_F(Launcher, HydraNamesItsJobByTheProcessThatStartedIt) {
  set("PMI_RANK", "1");
  set("PMI_SIZE", "2");
  set("MPI_LOCALNRANKS", "2");
  const std::string job = launcher_identity().job;
  EXPECT_TRUE(job.starts_with("pmi-")) << job;
  // Another process of the job says the same, also behind a process between.
  int pipe_ends[2];
  ASSERT_EQ(::pipe(pipe_ends), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const std::string own = launcher_identity().job;
    _exit(::write(pipe_ends[1], own.data(), own.size()) == static_cast<ssize_t>(own.size()) ? 0
                                                                                            : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  char text[128] = {};
  EXPECT_GT(::read(pipe_ends[0], text, sizeof text - 1), 0);
  EXPECT_TRUE(std::string(text).starts_with("pmi-"));
  ::close(pipe_ends[0]);
  ::close(pipe_ends[1]);
}

TEST_F(Launcher, Slurm) {
  set("SLURM_PROCID", "5");
  set("SLURM_NTASKS", "6");
  set("SLURM_JOB_ID", "4711");
  set("SLURM_STEP_ID", "2");
  set("SLURM_NNODES", "1");
  expect_identity(5, 6, 6, "slurm-4711-2");
}

TEST_F(Launcher, SlurmSaysHowManyAreOnEachNode) {
  set("SLURM_PROCID", "50");
  set("SLURM_NTASKS", "51");
  set("SLURM_JOB_ID", "4711");
  set("SLURM_NNODES", "4");
  set("SLURM_STEP_TASKS_PER_NODE", "16(x3),3");
  const auto on_node = [this](const char* node) {
    set("SLURM_NODEID", node);
    return launcher_identity().local_ranks;
  };
  EXPECT_EQ(on_node("0"), 16);
  EXPECT_EQ(on_node("2"), 16);
  EXPECT_EQ(on_node("3"), 3);
  EXPECT_EQ(on_node("4"), -1);
  for (const char* wrong : {"16(x3", "16(x0),3", "x", "16(3)", "-1", "16;3", "0", ""}) {
    set("SLURM_STEP_TASKS_PER_NODE", wrong);
    EXPECT_EQ(on_node("3"), -1) << wrong;
  }
}

TEST_F(Launcher, OfAnotherProcess) {
  int input[2], started[2];
  ASSERT_EQ(::pipe(input), 0);
  ASSERT_EQ(::pipe2(started, O_CLOEXEC), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(input[0], STDIN_FILENO);
    ::close(input[0]);
    ::close(input[1]);
    ::setenv("OMPI_COMM_WORLD_RANK", "3", 1);
    ::setenv("OMPI_COMM_WORLD_SIZE", "8", 1);
    ::setenv("PMIX_NAMESPACE", "prterun-7@1", 1);
    ::execlp("cat", "cat", nullptr);
    _exit(127);
  }
  ::close(started[1]);
  char none = 0;
  EXPECT_EQ(::read(started[0], &none, 1), 0);  // closed by exec
  const LauncherIdentity identity = launcher_identity_of(child);
  EXPECT_EQ(identity.rank, 3);
  EXPECT_EQ(identity.ranks, 8);
  EXPECT_EQ(identity.job, "ompi-prterun-7@1");
  const std::optional<ProcessStat> stat = process_stat(child);
  ASSERT_TRUE(stat.has_value());
  EXPECT_EQ(stat->parent, ::getpid());
  EXPECT_NE(std::string("RSD").find(stat->state), std::string::npos) << stat->state;
  ::close(input[0]);
  ::close(input[1]);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_FALSE(process_stat(child).has_value());
  EXPECT_EQ(launcher_identity_of(child).rank, -1);
  ::close(started[0]);
}

TEST_F(Launcher, NonsenseIsNobody) {
  set("OMPI_COMM_WORLD_RANK", "-1");
  set("PMI_RANK", "99999999999");
  set("PMIX_RANK", "1x");
  EXPECT_EQ(launcher_identity().rank, -1);
  set("PMI_RANK", "9");
  set("PMI_SIZE", "4");
  EXPECT_EQ(launcher_identity().ranks, -1) << "rank 9 of 4";
}

}  // namespace
}  // namespace turnout
