// SPDX-License-Identifier: BSD-3-Clause
#include "sim/runtime/rank_state.h"

#include <gtest/gtest.h>

namespace turnout::sim {
namespace {

using Waits = RankProgram::Waits;

struct Pause {
  RankProgram* program;
  Picoseconds until;
  bool await_ready() noexcept { return false; }
  void await_suspend(std::coroutine_handle<> handle) {
    program->suspend({.kind = Waits::compute, .until = until}, handle);
  }
  void await_resume() noexcept {}
};

class RankProgramTest : public ::testing::Test {
 protected:
  void create(const Program& program) {
    program_.create(program, Rank(*static_cast<RankState*>(nothing_)));
  }
  alignas(std::max_align_t) char nothing_storage_[1] = {};
  void* nothing_ = nothing_storage_;  // no program here uses its rank
  RankProgram program_;
  int steps_ = 0;
};

TEST_F(RankProgramTest, ItGoesOnOnlyWhenItIsResumed) {
  EXPECT_FALSE(program_.created());
  create([this](Rank) -> Task {
    ++steps_;
    co_await Pause{&program_, 10};
    ++steps_;
    co_await Pause{&program_, 20};
    ++steps_;
  });
  EXPECT_EQ(steps_, 0);
  program_.begin();
  EXPECT_EQ(steps_, 1);
  EXPECT_EQ(program_.wait().until, 10);
  program_.resume();
  EXPECT_EQ(steps_, 2);
  EXPECT_EQ(program_.wait().kind, Waits::compute);
  EXPECT_FALSE(program_.ended());
  program_.resume();
  EXPECT_EQ(program_.wait().kind, Waits::nothing);
  EXPECT_TRUE(program_.ended());
}

TEST_F(RankProgramTest, ItsExceptionComesOutAtItsEnd) {
  create([this](Rank) -> Task {
    co_await Pause{&program_, 10};
    throw OperationError("lost");
  });
  program_.begin();
  EXPECT_NO_THROW(program_.resume());
  EXPECT_THROW((void)program_.ended(), OperationError);
}

TEST_F(RankProgramTest, AProgramThatIsGivenUpIsDestroyedWhereItStands) {
  struct Counts {
    int* count;
    ~Counts() { ++*count; }
  };
  create([this](Rank) -> Task {
    const Counts counts{&steps_};
    co_await Pause{&program_, 10};
  });
  program_.begin();
  program_.give_up();
  EXPECT_EQ(program_.wait().kind, Waits::nothing);
  EXPECT_EQ(steps_, 0);
  program_.destroy();
  EXPECT_EQ(steps_, 1);
}

}  // namespace
}  // namespace turnout::sim
