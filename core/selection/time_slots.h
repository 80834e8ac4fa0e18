// SPDX-License-Identifier: BSD-3-Clause
// TimeSlots: Statistics in slots of time that grow wider with age. See statistics.h for contents,
// error bounds and ownership.
//
// One source in one slot takes 8 bytes: peer (24 bits), ring (1), count (39), sorted by peer, so
// that merging two slots is one pass and a lookup is a binary search.
#pragma once

#include "core/selection/statistics.h"

namespace turnout::selection {

class TimeSlots final : public Statistics {
 public:
  static constexpr std::size_t kLeastBytes = 4096;

  explicit TimeSlots(std::size_t max_bytes);  // at least kLeastBytes

  [[nodiscard]] Status begin_interval(TimeWindow interval) override;
  void count(std::uint32_t peer, std::uint64_t messages, bool has_ring) override;
  void end_interval() override;
  [[nodiscard]] WindowCounts counts(TimeWindow asked) const override;
  [[nodiscard]] std::optional<TimeWindow> newest() const override { return newest_; }
  void keep_border(Time border) override;
  void forget(std::uint32_t peer) override;
  [[nodiscard]] std::vector<WindowCounts> slots() const override;
  [[nodiscard]] std::size_t bytes() const override;
  [[nodiscard]] std::size_t index_bytes() const override { return 0; }
  [[nodiscard]] std::size_t bytes_during_next(std::size_t heard) const override;

  [[nodiscard]] std::size_t most_sources() const { return most_sources_; }  // of one slot

 private:
  using Entry = std::uint64_t;
  struct Slot {
    TimeWindow window;
    std::uint64_t messages = 0;
    std::uint64_t missing = 0;
    std::vector<Entry> entries;  // by peer; while its interval is open: a heap, least rank first
  };

  [[nodiscard]] std::vector<TimeWindow> windows() const;
  [[nodiscard]] WindowCounts sum(std::size_t first, std::size_t last) const;
  [[nodiscard]] std::size_t least_harm() const;  // merge this slot and the next
  void merge_with_next(std::size_t i);

  std::size_t max_bytes_;
  std::size_t most_slots_;
  std::size_t most_sources_;
  std::vector<Slot> slots_;  // oldest first; one more than most_slots_ while an interval is open
  bool open_ = false;        // the last slot's interval has not ended
  std::optional<TimeWindow> newest_;
  std::optional<Time> kept_border_;
};

}  // namespace turnout::selection
