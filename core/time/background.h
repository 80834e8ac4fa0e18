// SPDX-License-Identifier: BSD-3-Clause
// Background: runs driver calls that take milliseconds, such as creating and connecting queue
// pairs, outside the calls that make progress (AQPS 4.1 uses a thread for this; KRCORE measures 1
// to 2 ms per queue pair).
//
// Jobs run one at a time, the more urgent ones first, else in the order of start(). A job owns the
// objects it works on until done() returns it; nothing else may access them meanwhile. start() and
// done() are called by the thread that drives the endpoint and never block. A job stores its own
// error.
//
// Live, this is a thread that the first job creates; with setup_thread=no, start() runs the job. In
// virtual time the simulator decides when a job is done.
#pragma once

#include <memory>

namespace turnout {

class Background {
 public:
  class Job {
   public:
    virtual ~Job() = default;
    virtual void run() = 0;  // maybe by another thread; throws nothing
    // A smaller one runs before a larger one that has not begun.
    [[nodiscard]] virtual int rank() const noexcept { return 0; }
  };

  Background() = default;
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;
  // Waits for the job that runs; others that were started are dropped.
  virtual ~Background() = default;

  virtual void start(std::unique_ptr<Job> job) = 0;
  // The next job that has run; null: none has.
  [[nodiscard]] virtual std::unique_ptr<Job> done() = 0;
};

// Not `threaded`: jobs run in start().
[[nodiscard]] std::unique_ptr<Background> make_background(bool threaded);

}  // namespace turnout
