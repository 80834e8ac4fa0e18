// SPDX-License-Identifier: BSD-3-Clause
#include "sim/runtime/setup_thread.h"

#include <algorithm>
#include <utility>

namespace turnout::sim {

void SetupThread::start(std::unique_ptr<Job> job) {
  const Picoseconds now = world_.process_time();
  job->run();
  const Picoseconds took = world_.process_time() - now;
  world_.charge(-took);
  free_ = std::max(free_, now) + took;
  jobs_.push_back({free_, std::move(job)});
  rank_.wake_at(free_);
}

std::unique_ptr<Background::Job> SetupThread::done() {
  if (jobs_.empty() || jobs_.front().done > world_.process_time()) return nullptr;
  std::unique_ptr<Job> job = std::move(jobs_.front().job);
  jobs_.pop_front();
  return job;
}

}  // namespace turnout::sim
