// SPDX-License-Identifier: BSD-3-Clause
// Kernel: the time of a world, its events in their order, and everything random in it.
//
// One per world; owns the queue of events and the statistics. Times are picoseconds. Equal times
// keep the order of insertion, and every event goes into the hash of the statistics: runs of one
// seed are equal to the bit. One thread.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstdint>

#include "base/split_mix.h"
#include "hca/virtual/event_queue.h"
#include "hca/virtual/world.h"

namespace turnout::hca {

class Kernel {
 public:
  explicit Kernel(std::uint64_t seed) : random_(seed) {}

  [[nodiscard]] Picoseconds now() const noexcept { return now_; }
  // A time that has passed is now.
  void at(Picoseconds time, World::Callback callback, void* context, std::uint64_t argument) {
    events_.push({std::max(time, now_), context, argument, callback, EventKind::callback});
  }
  void schedule(Picoseconds time, EventKind kind, void* object, std::uint64_t argument = 0) {
    events_.push({std::max(time, now_), object, argument, nullptr, kind});
  }
  // Takes the next event, whose time is now from here on. False: there is none.
  [[nodiscard]] bool next(Event& event) {
    if (events_.empty()) return false;
    event = events_.pop();
    assert(event.time >= now_);
    now_ = event.time;
    ++statistics_.events;
    mix(static_cast<std::uint64_t>(event.time), static_cast<std::uint64_t>(event.kind));
    return true;
  }

  // See EventQueue.
  template <class Fetch>
  void look_ahead(Fetch&& fetch) const {
    events_.look_ahead(fetch);
  }

  [[nodiscard]] std::uint64_t random() noexcept { return random_.next(); }
  // True in `ppm` of a million cases, counted as a fault; draws no number for 0.
  [[nodiscard]] bool chance(std::int64_t ppm) noexcept {
    if (ppm <= 0) return false;
    const bool happens = random() % 1'000'000 < static_cast<std::uint64_t>(ppm);
    if (happens) ++statistics_.faults;
    return happens;
  }
  // Into the hash of what every run of a seed must repeat.
  void mix(std::uint64_t a, std::uint64_t b) noexcept {
    std::uint64_t hash = statistics_.hash ^ a;
    hash = (hash ^ (hash >> 32)) * 0x9e3779b97f4a7c15ULL + b;
    statistics_.hash = hash ^ (hash >> 29);
  }
  [[nodiscard]] WorldStatistics& statistics() noexcept { return statistics_; }
  [[nodiscard]] const WorldStatistics& statistics() const noexcept { return statistics_; }

 private:
  WorldStatistics statistics_;
  EventQueue events_;
  Picoseconds now_ = 0;
  SplitMix64 random_;
};

}  // namespace turnout::hca
