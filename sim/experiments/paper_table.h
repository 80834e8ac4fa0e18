// SPDX-License-Identifier: BSD-3-Clause
// PaperTable: Statistics as in the paper (AQPS 4.2): per source, a ring of sigma counts of 8 bytes,
// one for each of the last sigma intervals. For comparison: n sources take 8 * sigma * n bytes.
//
// Exact; what is older is dropped, and the answer says so by its window. Sources that do not fit in
// max_bytes are not listed; they count in `messages` and `missing`. O(1) a source. Owner, threads,
// units and errors as in core/selection/statistics.h.
#pragma once

#include <algorithm>
#include <unordered_map>

#include "core/selection/statistics.h"
#include "sim/study/study.h"

namespace turnout::sim {

class PaperTable final : public selection::Statistics {
 public:
  // Errors: invalid, max_bytes below what one source needs, or sigma 0.
  [[nodiscard]] static Result<std::unique_ptr<selection::Statistics>> create(std::uint32_t sigma,
                                                                             std::size_t max_bytes);
  PaperTable(std::uint32_t sigma, std::size_t max_bytes);

  [[nodiscard]] Status begin_interval(selection::TimeWindow interval) override;
  void count(std::uint32_t peer, std::uint64_t messages, bool has_ring) override;
  void end_interval(std::uint64_t waits) override;
  [[nodiscard]] selection::WindowCounts counts(selection::TimeWindow asked) const override;
  [[nodiscard]] std::optional<selection::TimeWindow> newest() const override { return newest_; }
  void keep_border(selection::Time) override {}  // nothing is merged
  void forget(std::uint32_t peer) override;
  [[nodiscard]] std::vector<selection::WindowCounts> slots() const override;
  [[nodiscard]] std::size_t bytes() const override {
    return sizeof(std::uint64_t) * sigma_ * rows_.size();
  }
  [[nodiscard]] std::size_t index_bytes() const override {
    return sizeof(PaperTable) + sigma_ * sizeof(Interval) + rows_.size() * kIndexPerSource;
  }
  [[nodiscard]] std::size_t bytes_during_next(std::size_t heard) const override;

 private:
  // A node of the hash table and its place in the buckets, which may be as many as the nodes twice.
  static constexpr std::size_t kIndexPerSource = 48;
  struct Interval {
    selection::TimeWindow window;
    std::uint64_t messages = 0;
    std::uint64_t missing = 0;
  };
  // Intervals that ended.
  [[nodiscard]] std::size_t kept() const {
    return std::min(begun_ - (open_ ? 1 : 0), open_ ? sigma_ - 1 : sigma_);
  }
  // Of the i-th of them, oldest first.
  [[nodiscard]] std::size_t column(std::size_t i) const {
    return (begun_ - (open_ ? 1 : 0) - kept() + i) % sigma_;
  }
  [[nodiscard]] selection::WindowCounts sum(std::size_t first, std::size_t last) const;

  std::size_t sigma_;
  std::size_t max_bytes_;
  std::vector<Interval> intervals_;  // ring of sigma
  std::size_t begun_ = 0;            // intervals since the start
  bool open_ = false;
  std::optional<selection::TimeWindow> newest_;
  std::unordered_map<std::uint32_t, std::unique_ptr<std::uint64_t[]>> rows_;
};

// Takes kStatisticsEntries off a run's settings: its endpoints then keep a PaperTable of so many
// intervals.
[[nodiscard]] Runner with_paper_table(Runner runner);

}  // namespace turnout::sim
