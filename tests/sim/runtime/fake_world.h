// SPDX-License-Identifier: BSD-3-Clause
// FakeWorld: a virtual clock and its events without adapters, for tests of what a rank is made of.
#pragma once

#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "hca/virtual/world.h"

namespace turnout::sim {

class FakeWorld final : public hca::World {
 public:
  const hca::Profile& profile() const noexcept override { return costs; }
  hca::ProcessIndex add_process(std::uint32_t, Callback, void*) override { return 0; }
  void enter(hca::ProcessIndex process) override { entered = process; }
  bool stand_still() override { return false; }
  hca::ProcessIndex current() const noexcept override { return entered; }
  hca::Picoseconds process_time() const noexcept override { return time; }
  void charge(hca::Picoseconds amount) noexcept override { time += amount; }
  hca::Picoseconds busy_until(hca::ProcessIndex) const noexcept override { return busy; }
  void kill(hca::ProcessIndex) override {}
  bool alive(hca::ProcessIndex) const noexcept override { return true; }
  std::uint64_t rnr_waits(hca::ProcessIndex) const noexcept override { return 0; }
  hca::Picoseconds now() const noexcept override { return time; }
  void at(hca::Picoseconds when, Callback callback, void* context,
          std::uint64_t argument) override {
    events.emplace(when, [=] { callback(context, argument); });
  }
  bool run_one() override {
    if (events.empty()) return false;
    auto first = events.extract(events.begin());
    time = first.key();
    first.mapped()();
    return true;
  }
  std::uint64_t random() noexcept override { return 0; }
  const hca::WorldStatistics& statistics() const noexcept override { return none; }
  void set_trace(std::function<void(const hca::Trace&)>) override {}

  hca::Profile costs;
  hca::WorldStatistics none;
  hca::Picoseconds time = 0, busy = 0;
  hca::ProcessIndex entered = 0;
  std::multimap<hca::Picoseconds, std::function<void()>> events;
};

}  // namespace turnout::sim
