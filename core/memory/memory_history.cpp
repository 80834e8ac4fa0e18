// SPDX-License-Identifier: BSD-3-Clause
#include "core/memory/memory_history.h"

#include <algorithm>
#include <numeric>

namespace turnout {

namespace {

std::uint64_t sum(const MemoryHistory::Point& point) {
  return std::accumulate(point.bytes.begin(), point.bytes.end(), std::uint64_t{0});
}

}  // namespace

MemoryHistory::Point MemoryHistory::point(Nanoseconds now) const noexcept {
  Point point{now, {}};
  for (std::size_t i = 0; i < kKinds; ++i) {
    point.bytes[i] = account_.line(static_cast<MemoryKind>(i)).now;
  }
  return point;
}

void MemoryHistory::look(Nanoseconds now) {
  const Point seen = point(now);
  if (!points_.empty() && points_.back().bytes == seen.bytes) return;
  if (points_.size() == points_.capacity() && !make_room()) return;
  points_.push_back(seen);
}

// One point of kMost is left for what is held when points() is called.
bool MemoryHistory::make_room() {
  const std::size_t old = points_.capacity();
  if (old < kMost - 1) {
    const std::size_t wanted = old == 0 ? kFirst : std::min(2 * old, kMost - 1);
    // The bytes are for the report, as the decisions are; the last of the budget is for messages.
    Reservation more = Reservation::take(account_, MemoryKind::decisions,
                                         (wanted - old) * sizeof(Point), account_.budget() / 8);
    if (more) {
      points_.reserve(wanted);
      reserved_.push_back(std::move(more));
      return true;
    }
  }
  if (points_.empty()) return false;
  coarsen();
  return true;
}

void MemoryHistory::coarsen() {
  std::size_t kept = 0;
  for (std::size_t i = 0; i < points_.size(); i += 2) {
    const std::size_t other = std::min(i + 1, points_.size() - 1);
    Point larger = sum(points_[other]) > sum(points_[i]) ? points_[other] : points_[i];
    larger.time = points_[i].time;
    points_[kept++] = larger;
  }
  points_.resize(kept);
  interval_ *= 2;
}

std::vector<MemoryHistory::Point> MemoryHistory::points(Nanoseconds now) const {
  std::vector<Point> points = points_;
  if (!points.empty()) points.push_back(point(now));
  return points;
}

}  // namespace turnout
