// SPDX-License-Identifier: BSD-3-Clause
// ProgressThread: makes progress while the program computes without calling the library, so that
// its large transfers continue (setting progress_thread; docs/decisions/016-progress-thread.md).
//
// It also signals the wait objects that the program waits for (FI_WAIT_FD and the like).
//
// It wakes up every `silence` and does nothing if the program made progress since then, or is in a
// call; one round if the program relies on it (Domain::needs_thread). Otherwise it drives the
// enabled endpoints as long as they make progress and no call of the program waits. After a long
// time without progress it wakes up less often. It avoids the CPU of the program's latest call if
// another one is allowed. Completions wait in their queues as usual.
//
// Owned by its domain, which then has a lock under FI_THREAD_DOMAIN, too. Runs from start() until
// it is destroyed or the process exits; a child of fork() has none and finds the domain's lock
// free. start() and destruction: one thread at a time. Errors: if the thread cannot be created,
// that is logged, and only the program's calls make progress.
#pragma once

#include <sched.h>

#include <atomic>
#include <cstdint>
#include <thread>

#include "core/time/clock.h"

namespace turnout::provider {

struct Domain;

class ProgressThread {
 public:
  ProgressThread(Domain& domain, Nanoseconds silence);
  ~ProgressThread();  // the domain's lock is not held
  ProgressThread(const ProgressThread&) = delete;
  ProgressThread& operator=(const ProgressThread&) = delete;

  // Once the first endpoint has opened its device: its handlers of fork() and exit come first then,
  // so ours run before them. Later calls do nothing. False: it does not run.
  [[nodiscard]] bool start();
  // Of the program, under the domain's lock, as it makes progress.
  void count_call() noexcept {
    calls_.store(calls_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    processor_.store(sched_getcpu(), std::memory_order_relaxed);
  }

 private:
  struct Process;  // all of this process, for fork() and exit

  void main() noexcept;
  // True if anything moved, or the program is there itself.
  bool look();
  void keep_off(int processor) noexcept;
  void wait(Nanoseconds time) noexcept;
  void stop() noexcept;

  Domain& domain_;
  const Nanoseconds silence_;
  std::atomic<std::uint64_t> calls_{0};  // of the program
  std::atomic<int> processor_{-1};       // of the latest one
  std::uint64_t seen_ = 0;               // calls_ when it last looked
  int kept_off_ = -1;
  cpu_set_t allowed_{};                 // processors of the process
  std::atomic<std::uint32_t> stop_{0};  // a futex
  std::thread thread_;
};

}  // namespace turnout::provider
