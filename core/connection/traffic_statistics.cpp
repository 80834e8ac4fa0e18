// SPDX-License-Identifier: BSD-3-Clause
#include "core/connection/traffic_statistics.h"

#include <algorithm>
#include <utility>

#include "base/log.h"

namespace turnout {

bool TrafficStatistics::begin(const selection::TimeWindow& interval, std::size_t sources) {
  if (!statistics_) {
    auto made = factory_ == nullptr ? selection::make_statistics() : (*factory_)(account_.budget());
    if (!made) {
      TURNOUT_LOG(selection, error, "creating the statistics failed: {}; channel selection is off",
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

bool TrafficStatistics::end() {
  statistics_->end_interval();
  account_.release(MemoryKind::decisions, meanwhile_ + index_bytes_);
  account_.release(MemoryKind::statistics, bytes_);
  bytes_ = statistics_->bytes();
  index_bytes_ = statistics_->index_bytes();
  return account_.reserve(MemoryKind::statistics, bytes_) &&
         account_.reserve(MemoryKind::decisions, index_bytes_);
}

}  // namespace turnout
