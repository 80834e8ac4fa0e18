// SPDX-License-Identifier: BSD-3-Clause
// RankScheduler: when a simulated rank runs next. Of all that asks for a run the earliest counts; a
// run that an earlier one replaced does nothing.
//
// Owned by the rank, which it calls inside World::run_one(); the world must not take events after
// the rank's end. Times are virtual.
#pragma once

#include <deque>
#include <memory>

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

  void run_at(Picoseconds time);
  void wake();  // as soon as the process is free; what reaches it calls this
  void wake_at(Picoseconds time);
  // At most one of these timers is under way, unless an earlier one is needed.
  void sleep_until(Picoseconds deadline);
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
  void start(std::unique_ptr<Job> job) override;
  std::unique_ptr<Job> done() override;

 private:
  struct Started {
    Picoseconds done;
    std::unique_ptr<Job> job;
  };
  hca::World& world_;
  RankScheduler& rank_;
  std::deque<Started> jobs_;
  Picoseconds free_ = 0;
};

}  // namespace turnout::sim
