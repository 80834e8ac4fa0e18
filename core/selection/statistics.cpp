// SPDX-License-Identifier: BSD-3-Clause
#include "core/selection/statistics.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/selection/paper_table.h"
#include "core/selection/time_slots.h"

namespace turnout::selection {

std::uint64_t WindowCounts::of(std::uint32_t peer) const {
  const auto at =
      std::lower_bound(sources.begin(), sources.end(), peer,
                       [](const SourceCount& s, std::uint32_t id) { return s.peer < id; });
  return at != sources.end() && at->peer == peer ? at->messages : 0;
}

Result<std::unique_ptr<Statistics>> make_statistics(const StatisticsOptions& options) {
  if (options.store == StatisticsStore::slots) {
    if (options.max_bytes < TimeSlots::kLeastBytes) {
      return Status(Code::invalid,
                    fmt::format("max_bytes {}: slotted statistics need at least {} bytes",
                                options.max_bytes, TimeSlots::kLeastBytes));
    }
    return std::unique_ptr<Statistics>(std::make_unique<TimeSlots>(options.max_bytes));
  }
  if (options.sigma == 0) {
    return Status(Code::invalid, "sigma 0: the statistics table needs at least one interval");
  }
  const std::size_t least = PaperTable::least_bytes(options.sigma);
  if (options.max_bytes < least) {
    return Status(Code::invalid,
                  fmt::format("max_bytes {}: a statistics table of {} intervals needs at least {} "
                              "bytes; raise max_bytes or lower the number of intervals",
                              options.max_bytes, options.sigma, least));
  }
  return std::unique_ptr<Statistics>(
      std::make_unique<PaperTable>(options.sigma, options.max_bytes));
}

SlotRange nearest_range(const std::vector<TimeWindow>& windows, TimeWindow asked) {
  const auto distance = [](Time a, Time b) { return a > b ? a - b : b - a; };
  SlotRange range;
  for (std::size_t i = 1; i < windows.size(); ++i) {
    if (distance(windows[i].begin, asked.begin) <=
        distance(windows[range.first].begin, asked.begin)) {
      range.first = i;
    }
  }
  range.last = range.first;
  for (std::size_t i = range.first + 1; i < windows.size(); ++i) {
    if (distance(windows[i].end, asked.end) < distance(windows[range.last].end, asked.end)) {
      range.last = i;
    }
  }
  return range;
}

Status check_interval(TimeWindow interval, std::optional<TimeWindow> newest) {
  if (interval.end <= interval.begin) {
    return {Code::invalid,
            fmt::format("statistics interval [{}, {}) ns is empty", interval.begin, interval.end)};
  }
  if (newest && interval.begin < newest->end) {
    return {Code::invalid, fmt::format("statistics interval [{}, {}) ns begins before the end {} "
                                       "of the previous one: the clock ran backwards",
                                       interval.begin, interval.end, newest->end)};
  }
  return {};
}

}  // namespace turnout::selection
