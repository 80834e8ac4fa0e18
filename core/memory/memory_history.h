// SPDX-License-Identifier: BSD-3-Clause
// MemoryHistory: the memory account of an endpoint over time, by kind, for the report.
//
// A point gives the memory from its time until the next point; without changes no point is added.
// At most kMost points are kept. When they are full, the larger of each two neighbours stays, which
// preserves peaks, and the sampling interval doubles. The points themselves are accounted; if the
// budget has no room, they are coarsened instead.
//
// Owned by an endpoint and driven by its thread. Does nothing before open().
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include "core/memory/account.h"
#include "core/time/clock.h"

namespace turnout {

class MemoryHistory {
 public:
  static constexpr std::size_t kKinds = static_cast<std::size_t>(MemoryKind::count);
  static constexpr std::size_t kFirst = 16, kMost = 256;
  static constexpr Nanoseconds kFirstInterval = 1'000'000;

  struct Point {
    Nanoseconds time = 0;
    std::array<std::uint64_t, kKinds> bytes{};
  };

  explicit MemoryHistory(MemoryAccount& account) : account_(account) {}
  MemoryHistory(const MemoryHistory&) = delete;
  MemoryHistory& operator=(const MemoryHistory&) = delete;

  void open() noexcept { next_ = 0; }

  void tick(Nanoseconds now) {
    if (now < next_) [[likely]]
      return;
    next_ = now + interval_;
    look(now);
  }

  // The points kept, oldest first, and what is held now; at most kMost in all.
  [[nodiscard]] std::vector<Point> points(Nanoseconds now) const {
    std::vector<Point> points = points_;
    if (!points.empty()) points.push_back(point(now));
    return points;
  }

 private:
  static std::uint64_t sum(const Point& point) {
    return std::accumulate(point.bytes.begin(), point.bytes.end(), std::uint64_t{0});
  }

  void look(Nanoseconds now) {
    const Point seen = point(now);
    if (!points_.empty() && points_.back().bytes == seen.bytes) return;
    if (points_.size() == points_.capacity() && !make_room()) return;
    points_.push_back(seen);
  }
  // One point of kMost is left for what is held when points() is called.
  [[nodiscard]] bool make_room() {
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
  void coarsen() {
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
  [[nodiscard]] Point point(Nanoseconds now) const noexcept {
    Point point{now, {}};
    for (std::size_t i = 0; i < kKinds; ++i) {
      point.bytes[i] = account_.line(static_cast<MemoryKind>(i)).now;
    }
    return point;
  }

  MemoryAccount& account_;
  std::vector<Point> points_;
  std::vector<Reservation> reserved_;  // for points_
  Nanoseconds interval_ = kFirstInterval;
  Nanoseconds next_ = std::numeric_limits<Nanoseconds>::max();
};

}  // namespace turnout
