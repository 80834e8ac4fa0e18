// SPDX-License-Identifier: BSD-3-Clause
// TrafficStatistics: selection::Statistics within the endpoint's budget. The store is made with the
// first interval that has messages, so a process that receives none pays nothing.
//
// The endpoint owns it and calls it from its thread once an interval. Times are nanoseconds. What
// fails is logged, and the interval is not kept: the channels then stay as they are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "core/memory/account.h"
#include "core/selection/statistics.h"
#include "core/types/completion.h"
#include "core/types/simulation_hooks.h"

namespace turnout {

class TrafficStatistics {
 public:
  explicit TrafficStatistics(MemoryAccount& account) noexcept : account_(account) {}
  TrafficStatistics(const TrafficStatistics&) = delete;
  TrafficStatistics& operator=(const TrafficStatistics&) = delete;

  // What makes another store than selection::make_statistics(); outlives it.
  void use(const StatisticsFactory* factory) noexcept { factory_ = factory; }

  // Keeps the counts of an interval in which `sources` peers sent. `count_all` calls what it is
  // given with (PeerId, messages, whether the peer has a ring) for each of them. False: not kept.
  template <class CountAll>
  [[nodiscard]] bool keep(const selection::TimeWindow& interval, std::size_t sources,
                          CountAll&& count_all) {
    if (sources == 0 || !begin(interval, sources)) return false;
    count_all([this](PeerId peer, std::uint64_t messages, bool has_ring) {
      statistics_->count(peer, messages, has_ring);
    });
    return end();
  }

  // Null: nothing was kept yet.
  [[nodiscard]] selection::Statistics* get() const noexcept { return statistics_.get(); }

 private:
  [[nodiscard]] bool begin(const selection::TimeWindow& interval, std::size_t sources);
  [[nodiscard]] bool end();

  MemoryAccount& account_;
  const StatisticsFactory* factory_ = nullptr;
  std::unique_ptr<selection::Statistics> statistics_;
  std::uint64_t bytes_ = 0;        // reserved for the counts,
  std::uint64_t index_bytes_ = 0;  // for finding them,
  std::uint64_t meanwhile_ = 0;    // and for what counting may need until it has ended
};

}  // namespace turnout
