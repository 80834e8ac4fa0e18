// SPDX-License-Identifier: BSD-3-Clause
// TrafficStatistics: selection::Statistics within the endpoint's budget. The store is made with the
// first interval that has messages, so a process that receives none pays nothing.
//
// The endpoint owns it and calls it from its thread once an interval. Times are nanoseconds. What
// fails is logged, and the interval is not kept: the channels then stay as they are.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "base/log.h"
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

  // A round of progress found nothing.
  void found_nothing() noexcept { idle_ = true; }
  // A message came. It was waited for if a round found nothing since the one before it; rounds that
  // find completions only, of what the program sent before it waited, say neither.
  void count_arrival() noexcept {
    waits_ += idle_;
    idle_ = false;
  }
  // Keeps the counts of an interval in which `sources` peers sent. `count_all` calls what it is
  // given with (PeerId, messages, whether the peer has a ring) for each of them. False: not kept.
  template <class CountAll>
  [[nodiscard]] bool keep(const selection::TimeWindow& interval, std::size_t sources,
                          CountAll&& count_all) {
    const std::uint64_t waits = std::exchange(waits_, 0);
    if (sources == 0 || !begin(interval, sources)) return false;
    count_all([this](PeerId peer, std::uint64_t messages, bool has_ring) {
      statistics_->count(peer, messages, has_ring);
    });
    return end(waits);
  }

  // Null: nothing was kept yet.
  [[nodiscard]] selection::Statistics* get() const noexcept { return statistics_.get(); }

 private:
  [[nodiscard]] bool begin(const selection::TimeWindow& interval, std::size_t sources) {
    if (!statistics_) {
      auto made =
          factory_ == nullptr ? selection::make_statistics() : (*factory_)(account_.budget());
      if (!made) {
        TURNOUT_LOG(selection, error,
                    "creating the statistics failed: {}; channel selection is off",
                    made.status().text());
        return false;
      }
      statistics_ = std::move(made).value();
    }
    const std::uint64_t held = bytes_ + index_bytes_;
    meanwhile_ = std::max<std::uint64_t>(statistics_->bytes_during_next(sources), held) - held;
    if (!account_.reserve(MemoryKind::decisions, meanwhile_)) {
      TURNOUT_LOG(selection, info, "no room in the budget to count {} sources", sources);
      return false;
    }
    if (Status status = statistics_->begin_interval(interval); !status.ok()) {
      TURNOUT_LOG(selection, error, "counting messages failed: {}; the interval is skipped",
                  status.text());
      account_.release(MemoryKind::decisions, meanwhile_);
      return false;
    }
    return true;
  }
  [[nodiscard]] bool end(std::uint64_t waits) {
    statistics_->end_interval(waits);
    account_.release(MemoryKind::decisions, meanwhile_ + index_bytes_);
    account_.release(MemoryKind::statistics, bytes_);
    bytes_ = statistics_->bytes();
    index_bytes_ = statistics_->index_bytes();
    return account_.reserve(MemoryKind::statistics, bytes_) &&
           account_.reserve(MemoryKind::decisions, index_bytes_);
  }

  MemoryAccount& account_;
  const StatisticsFactory* factory_ = nullptr;
  std::unique_ptr<selection::Statistics> statistics_;
  std::uint64_t waits_ = 0;        // messages that were waited for, in this interval
  bool idle_ = false;              // a round found nothing since the latest message
  std::uint64_t bytes_ = 0;        // reserved for the counts,
  std::uint64_t index_bytes_ = 0;  // for finding them,
  std::uint64_t meanwhile_ = 0;    // and for what counting may need until it has ended
};

}  // namespace turnout
