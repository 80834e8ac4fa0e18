// SPDX-License-Identifier: BSD-3-Clause
#include "sim/runtime/rank_scheduler.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/sim/runtime/fake_world.h"

namespace turnout::sim {
namespace {

class RankSchedulerTest : public ::testing::Test {
 protected:
  std::vector<Picoseconds> all_runs() {
    while (world_.run_one()) continue;
    return runs_;
  }
  FakeWorld world_;
  std::vector<Picoseconds> runs_;
  RankScheduler scheduler_{world_, 0,
                           [](void* self) {
                             auto* test = static_cast<RankSchedulerTest*>(self);
                             test->runs_.push_back(test->world_.time);
                           },
                           this};
};

TEST_F(RankSchedulerTest, TheEarliestCounts) {
  scheduler_.run_at(30);
  scheduler_.run_at(10);
  scheduler_.run_at(20);
  EXPECT_EQ(all_runs(), std::vector<Picoseconds>{10});
}

TEST_F(RankSchedulerTest, AWakeWaitsForTheProcess) {
  world_.busy = 50;
  scheduler_.wake_at(5);
  EXPECT_EQ(all_runs(), std::vector<Picoseconds>{50});
}

TEST_F(RankSchedulerTest, OneTimerIsEnoughUnlessItIsTooLate) {
  scheduler_.sleep_until(10);
  scheduler_.sleep_until(20);
  EXPECT_EQ(world_.events.size(), 1u);
  scheduler_.sleep_until(5);
  EXPECT_EQ(world_.events.size(), 2u);
  EXPECT_EQ(all_runs(), (std::vector<Picoseconds>{5, 10}));
}

TEST_F(RankSchedulerTest, StoppedItNeverRunsAgain) {
  scheduler_.run_at(10);
  scheduler_.wake_at(5);
  scheduler_.stop();
  EXPECT_TRUE(all_runs().empty());
}

class TimedJob final : public Background::Job {
 public:
  explicit TimedJob(FakeWorld& world, int rank = 0) : world_(world), rank_(rank) {}
  void run() override { world_.charge(100); }
  [[nodiscard]] int rank() const noexcept override { return rank_; }

 private:
  FakeWorld& world_;
  int rank_;
};

TEST_F(RankSchedulerTest, JobsOfTheSetupThreadFollowEachOtherBesideTheProgram) {
  SetupThread thread(world_, scheduler_);
  thread.start(std::make_unique<TimedJob>(world_));
  thread.start(std::make_unique<TimedJob>(world_));
  EXPECT_EQ(world_.time, 0);
  EXPECT_EQ(thread.done(), nullptr);
  EXPECT_EQ(all_runs(), (std::vector<Picoseconds>{100, 200}));
  EXPECT_NE(thread.done(), nullptr);
  EXPECT_NE(thread.done(), nullptr);
  EXPECT_EQ(thread.done(), nullptr);
}

TEST_F(RankSchedulerTest, AMoreUrgentJobGoesBeforeThoseThatWait) {
  SetupThread thread(world_, scheduler_);
  for (const int rank : {1, 1, 0}) thread.start(std::make_unique<TimedJob>(world_, rank));
  std::vector<int> ranks;
  EXPECT_EQ(all_runs(), (std::vector<Picoseconds>{100, 200, 300}));
  while (const auto job = thread.done()) ranks.push_back(job->rank());
  EXPECT_EQ(ranks, (std::vector<int>{1, 0, 1}));
}

}  // namespace
}  // namespace turnout::sim
