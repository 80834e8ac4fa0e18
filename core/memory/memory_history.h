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

#include <array>
#include <cstdint>
#include <limits>
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
  [[nodiscard]] std::vector<Point> points(Nanoseconds now) const;

 private:
  void look(Nanoseconds now);
  [[nodiscard]] bool make_room();
  void coarsen();
  [[nodiscard]] Point point(Nanoseconds now) const noexcept;

  MemoryAccount& account_;
  std::vector<Point> points_;
  std::vector<Reservation> reserved_;  // for points_
  Nanoseconds interval_ = kFirstInterval;
  Nanoseconds next_ = std::numeric_limits<Nanoseconds>::max();
};

}  // namespace turnout
