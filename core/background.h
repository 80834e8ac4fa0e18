// SPDX-License-Identifier: BSD-3-Clause
// Background: work of the adapter's driver that takes milliseconds, making and connecting queue
// pairs, done beside the program and not in the calls that make progress (AQPS 4.1 has a thread for
// it; KRCORE measures 1 to 2 ms for a queue pair).
//
// Jobs run one after the other in the order they were started. A job owns what it works on until
// done() hands it back; nobody else touches that meanwhile. start() and done() belong to the thread
// that drives the endpoint and never wait. Errors are the job's own.
//
// Live it is a thread, made with the first job; the setting setup_thread=no runs jobs where they
// are started. In virtual time the simulator says when a job is done.
#pragma once

#include <memory>

namespace turnout {

class Background {
 public:
  class Job {
   public:
    virtual ~Job() = default;
    virtual void run() = 0;  // maybe by another thread; throws nothing
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

[[nodiscard]] std::unique_ptr<Background> make_background_thread();
// Jobs run in start().
[[nodiscard]] std::unique_ptr<Background> make_foreground();

}  // namespace turnout
