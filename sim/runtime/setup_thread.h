// SPDX-License-Identifier: BSD-3-Clause
// SetupThread: a simulated process's thread that makes queue pairs. A job changes the adapter when
// it is started and is done after the time that takes, one after the other; the program's own time
// goes on beside it.
//
// Owned by the rank's endpoint; in the simulation's thread. World and scheduler outlive it.
#pragma once

#include <deque>
#include <memory>

#include "core/endpoint.h"
#include "sim/runtime/rank_scheduler.h"

namespace turnout::sim {

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
