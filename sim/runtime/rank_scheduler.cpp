// SPDX-License-Identifier: BSD-3-Clause
#include "sim/runtime/rank_scheduler.h"

#include <algorithm>
#include <utility>

namespace turnout::sim {

void RankScheduler::run_at(Picoseconds time) {
  if (scheduled_ >= 0 && scheduled_ <= time) return;
  scheduled_ = time;
  world_.at(
      time,
      [](void* context, std::uint64_t due) {
        auto* self = static_cast<RankScheduler*>(context);
        if (self->scheduled_ != static_cast<Picoseconds>(due)) return;
        self->scheduled_ = -1;
        if (!self->stopped_) self->run_(self->context_);
      },
      this, static_cast<std::uint64_t>(time));
}

void RankScheduler::wake() {
  if (!stopped_) run_at(std::max(world_.now(), world_.busy_until(process_)));
}

void RankScheduler::wake_at(Picoseconds time) {
  world_.at(
      time, [](void* self, std::uint64_t) { static_cast<RankScheduler*>(self)->wake(); }, this, 0);
}

void RankScheduler::sleep_until(Picoseconds deadline) {
  if (timer_ >= 0 && timer_ <= deadline && timer_ > world_.now()) return;
  timer_ = deadline;
  wake_at(deadline);
}

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
