// SPDX-License-Identifier: BSD-3-Clause
// RankScheduler: when a simulated rank runs next. Of all that asks for a run the earliest counts; a
// run that an earlier one replaced does nothing.
//
// Owned by the rank, which it calls inside World::run_one(); the world must not take events after
// the rank's end. Times are virtual.
#pragma once

#include <algorithm>
#include <deque>
#include <iterator>
#include <memory>
#include <utility>

#include "core/endpoint.h"
#include "hca/virtual/world.h"

namespace turnout::sim {

using hca::Picoseconds;

class RankScheduler {
 public:
  using Run = void (*)(void* context);
  RankScheduler(hca::World& world, hca::ProcessIndex process, Run run, void* context) noexcept
      : world_(world), process_(process), run_(run), context_(context) {}
  RankScheduler(const RankScheduler&) = delete;
  RankScheduler& operator=(const RankScheduler&) = delete;

  void run_at(Picoseconds time) {
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
  // As soon as the process is free; what reaches it calls this.
  void wake() {
    if (!stopped_) run_at(std::max(world_.now(), world_.busy_until(process_)));
  }
  void wake_at(Picoseconds time) {
    world_.at(
        time, [](void* self, std::uint64_t) { static_cast<RankScheduler*>(self)->wake(); }, this,
        0);
  }
  // At most one of these timers is under way, unless an earlier one is needed.
  void sleep_until(Picoseconds deadline) {
    if (timer_ >= 0 && timer_ <= deadline && timer_ > world_.now()) return;
    timer_ = deadline;
    wake_at(deadline);
  }
  void stop() noexcept { stopped_ = true; }  // it never runs again

 private:
  hca::World& world_;
  hca::ProcessIndex process_;
  Run run_;
  void* context_;
  Picoseconds scheduled_ = -1;  // when it runs; -1: not
  Picoseconds timer_ = -1;
  bool stopped_ = false;
};

// SetupThread: a simulated process's thread that makes queue pairs. A job changes the adapter when
// it is started and is done after the time that takes, one after the other; the program's own time
// goes on beside it.
//
// Owned by the rank's endpoint; in the simulation's thread. World and scheduler outlive it.
class SetupThread final : public Background {
 public:
  // `rank` is woken when a job is done.
  SetupThread(hca::World& world, RankScheduler& rank) noexcept : world_(world), rank_(rank) {}
  void start(std::unique_ptr<Job> job) override {
    const Picoseconds now = world_.process_time();
    job->run();
    const Picoseconds took = world_.process_time() - now;
    world_.charge(-took);
    // Behind what has run, the one that runs, and what is as urgent.
    auto at = std::find_if(jobs_.begin(), jobs_.end(),
                           [now](const Started& other) { return other.done > now; });
    if (at != jobs_.end()) ++at;
    at = std::find_if(at, jobs_.end(),
                      [&](const Started& other) { return other.job->rank() > job->rank(); });
    const Picoseconds begins = at == jobs_.begin() ? now : std::max(std::prev(at)->done, now);
    for (auto later = at; later != jobs_.end(); ++later) {
      later->done += took;
      rank_.wake_at(later->done);
    }
    rank_.wake_at(begins + took);
    jobs_.insert(at, {begins + took, std::move(job)});
  }
  std::unique_ptr<Job> done() override {
    if (jobs_.empty() || jobs_.front().done > world_.process_time()) return nullptr;
    std::unique_ptr<Job> job = std::move(jobs_.front().job);
    jobs_.pop_front();
    return job;
  }

 private:
  struct Started {
    Picoseconds done;
    std::unique_ptr<Job> job;
  };
  hca::World& world_;
  RankScheduler& rank_;
  std::deque<Started> jobs_;
};

}  // namespace turnout::sim
