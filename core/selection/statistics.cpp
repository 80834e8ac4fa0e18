// SPDX-License-Identifier: BSD-3-Clause
#include "core/selection/statistics.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/selection/time_slots.h"

namespace turnout::selection {

Result<std::unique_ptr<Statistics>> make_statistics(std::size_t max_bytes) {
  if (max_bytes < TimeSlots::kLeastBytes) {
    return Status(Code::invalid,
                  fmt::format("max_bytes {}: slotted statistics need at least {} bytes", max_bytes,
                              TimeSlots::kLeastBytes));
  }
  return std::unique_ptr<Statistics>(std::make_unique<TimeSlots>(max_bytes));
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
