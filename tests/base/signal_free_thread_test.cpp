// SPDX-License-Identifier: BSD-3-Clause
#include "base/signal_free_thread.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>

#include <cerrno>
#include <set>
#include <string>

namespace turnout {
namespace {

std::set<int> members(const sigset_t& signals) {
  std::set<int> found;
  for (int number = 1; number <= SIGRTMAX; ++number) {
    if (sigismember(&signals, number) == 1) found.insert(number);
  }
  return found;
}

std::set<int> blocked_here() {
  sigset_t mask;
  EXPECT_EQ(pthread_sigmask(SIG_SETMASK, nullptr, &mask), 0);
  return members(mask);
}

// The caller blocks SIGUSR1 itself, as programs do that wait for it elsewhere.
class SignalFreeThread : public testing::Test {
 protected:
  SignalFreeThread() {
    sigset_t usr1;
    sigemptyset(&usr1);
    sigaddset(&usr1, SIGUSR1);
    pthread_sigmask(SIG_SETMASK, &usr1, &before_);
  }
  ~SignalFreeThread() override { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  sigset_t before_;
};

TEST_F(SignalFreeThread, BlocksAllSignalsAndHasItsName) {
  std::set<int> blocked;
  char name[16] = {};
  Result<std::thread> thread = start_signal_free_thread("turnout-test-15", [&] {
    blocked = blocked_here();
    (void)pthread_getname_np(pthread_self(), name, sizeof name);
  });
  ASSERT_TRUE(thread.ok()) << thread.status().text();
  thread->join();
  sigset_t all;
  sigfillset(&all);
  std::set<int> expected = members(all);
  for (const int never_blocked : {SIGKILL, SIGSTOP}) expected.erase(never_blocked);
  EXPECT_EQ(blocked, expected);
  EXPECT_STREQ(name, "turnout-test-15");
}

TEST_F(SignalFreeThread, LeavesTheCallersMask) {
  Result<std::thread> thread = start_signal_free_thread("turnout-test", [] {});
  EXPECT_EQ(blocked_here(), std::set<int>{SIGUSR1});
  ASSERT_TRUE(thread.ok()) << thread.status().text();
  thread->join();
}

TEST_F(SignalFreeThread, ThatCannotBeHadIsAStatus) {
  // No address space holds such a stack.
  pthread_attr_t usual, immense;
  ASSERT_EQ(pthread_getattr_default_np(&usual), 0);
  ASSERT_EQ(pthread_attr_init(&immense), 0);
  ASSERT_EQ(pthread_attr_setstacksize(&immense, std::size_t{1} << 60), 0);
  ASSERT_EQ(pthread_setattr_default_np(&immense), 0);
  bool ran = false;
  Result<std::thread> thread = start_signal_free_thread("turnout-test", [&] { ran = true; });
  EXPECT_EQ(pthread_setattr_default_np(&usual), 0);
  pthread_attr_destroy(&immense);
  pthread_attr_destroy(&usual);
  if (thread.ok()) thread->join();
  ASSERT_FALSE(thread.ok());
  EXPECT_FALSE(ran);
  EXPECT_EQ(thread.status().code(), Code::system);
  EXPECT_EQ(thread.status().sys_errno(), EAGAIN);
  EXPECT_NE(thread.status().text().find("turnout-test"), std::string::npos);
  EXPECT_EQ(blocked_here(), std::set<int>{SIGUSR1});
}

}  // namespace
}  // namespace turnout
