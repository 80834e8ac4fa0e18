// SPDX-License-Identifier: BSD-3-Clause
#include "provider/progress_thread.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cassert>
#include <exception>
#include <mutex>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/signal_free_thread.h"
#include "provider/domain.h"
#include "provider/endpoint.h"

namespace turnout::provider {
namespace {

constexpr int kRounds = 64;          // of progress under one hold of the lock
constexpr unsigned kIdleLooks = 64;  // looks that moved nothing before they get seldomer
constexpr Nanoseconds kSeldomer = 16;

}  // namespace

// Lock order: `mutex`, then domains' locks, then what endpoints and devices have.
struct ProgressThread::Process {
  std::mutex mutex;
  std::vector<ProgressThread*> threads;

  static Process& one() {
    static auto* const process = new Process;  // domains may be closed by exit handlers
    return *process;
  }

  // No thread is within a domain while the process is copied, so the child finds whole ones.
  static void before_fork() {
    one().mutex.lock();
    for (ProgressThread* t : one().threads) t->domain_.domain_lock.lock();
  }
  static void in_parent() {
    for (ProgressThread* t : one().threads) t->domain_.domain_lock.unlock();
    one().mutex.unlock();
  }
  static void in_child() {
    for (ProgressThread* t : one().threads) {
      if (t->thread_.joinable()) t->thread_.detach();  // there is no such thread here
      t->domain_.domain_lock.unlock();
    }
    one().mutex.unlock();
  }

  // A process may end with its domains open: nothing of ours, of the adapter's or of libc's is
  // taken apart under a thread that runs.
  struct Exit {
    ~Exit() {
      const std::lock_guard guard(one().mutex);
      for (ProgressThread* t : one().threads) t->stop();
    }
  };
};

ProgressThread::ProgressThread(Domain& domain, Nanoseconds silence)
    : domain_(domain), silence_(silence) {
  assert(silence > 0);
  Process& process = Process::one();
  const std::lock_guard guard(process.mutex);
  process.threads.push_back(this);
}

ProgressThread::~ProgressThread() {
  {
    Process& process = Process::one();
    const std::lock_guard guard(process.mutex);
    std::erase(process.threads, this);
  }
  stop();
}

bool ProgressThread::start() {
  if (thread_.joinable()) return true;
  if (stop_.load(std::memory_order_relaxed) != 0) return false;
  static const int handled =
      pthread_atfork(Process::before_fork, Process::in_parent, Process::in_child);
  if (handled != 0) {
    TURNOUT_LOG(provider, warn,
                "starting the progress thread failed: pthread_atfork: error {}; only the program's "
                "calls make progress",
                handled);
    return false;
  }
  static const Process::Exit at_exit;
  Result<std::thread> made = start_signal_free_thread("turnout-progres", [this] { main(); });
  if (!made.ok()) {
    TURNOUT_LOG(provider, warn,
                "starting the progress thread failed: {}; only the program's calls make progress",
                made.status().text());
    return false;
  }
  thread_ = std::move(*made);
  return true;
}

void ProgressThread::stop() noexcept {
  stop_.store(1, std::memory_order_release);
  if (!thread_.joinable()) return;
  syscall(SYS_futex, &stop_, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
  thread_.join();
}

// Not a condition variable: to destroy one waits for those who wait on it, who are not there in a
// child of fork().
void ProgressThread::wait(Nanoseconds time) noexcept {
  const timespec limit{static_cast<time_t>(time / 1'000'000'000),
                       static_cast<long>(time % 1'000'000'000)};
  syscall(SYS_futex, &stop_, FUTEX_WAIT_PRIVATE, 0, &limit, nullptr, 0);
}

void ProgressThread::keep_off(int processor) noexcept {
  if (processor < 0 || processor >= CPU_SETSIZE || processor == kept_off_) return;
  kept_off_ = processor;
  cpu_set_t others = allowed_;
  CPU_CLR(static_cast<unsigned>(processor), &others);
  if (CPU_COUNT(&others) != 0) (void)sched_setaffinity(0, sizeof others, &others);
}

bool ProgressThread::look() {
  // Who waits for a descriptor leaves its processor to others.
  if (!domain_.is_watched()) keep_off(processor_.load(std::memory_order_relaxed));
  const std::uint64_t calls = calls_.load(std::memory_order_relaxed);
  const bool is_there = calls != seen_;
  seen_ = calls;
  if (is_there && !domain_.needs_thread()) return true;
  const std::unique_lock hold(domain_.domain_lock, std::try_to_lock);
  if (!hold) return true;
  bool ever = is_there;
  // The program may drive other endpoints than those that it relies on the thread for.
  const int rounds = is_there ? 1 : kRounds;
  for (int round = 0; round < rounds && !domain_.domain_lock.is_wanted(); ++round) {
    bool moved = false;
    for (Ep* ep : domain_.endpoints) {
      if (ep->enabled) moved |= ep->path.progress();
    }
    if (!moved) break;
    ever = true;
  }
  domain_.signal_waiters();
  return ever;
}

void ProgressThread::main() noexcept {
  (void)prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);  // the default of 50 us is longer than the silence
  // None known, on machines with more than a cpu_set_t has: it stays where the scheduler puts it.
  if (sched_getaffinity(0, sizeof allowed_, &allowed_) != 0) CPU_ZERO(&allowed_);
  unsigned in_vain = 0;
  while (stop_.load(std::memory_order_acquire) == 0) {
    wait(in_vain < kIdleLooks ? silence_ : silence_ * kSeldomer);
    try {
      in_vain = look() ? 0 : in_vain + 1;
    } catch (const std::exception& error) {  // memory: the program's own calls will tell it
      if (domain_.needs_thread()) continue;  // nobody else would move what it waits for
      TURNOUT_LOG(provider, error,
                  "making progress failed: progress thread: {}; only the program's calls make "
                  "progress from now on",
                  error.what());
      return;
    }
  }
}

}  // namespace turnout::provider
