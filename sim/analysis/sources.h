// SPDX-License-Identifier: BSD-3-Clause
// The messages that a rank receives over time: counts per period and group of sources, as in
// figures 3 to 5 of the AQPS paper (section 2.2 there).
//
// Plain values and pure functions; any thread. A position is between 0, the start, and 1, the end
// of the rank's activity; `axis` describes its meaning.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "core/report/report.h"
#include "sim/formats/trace.h"

namespace turnout::sim {

// Receives of one rank.
struct Arrivals {
  struct Batch {
    double begin = 0, end = 0;  // positions; equal: a single moment
    std::uint32_t source = 0;
    std::uint64_t messages = 0;
  };
  std::uint32_t sources = 0;  // numbers below it
  std::vector<Batch> batches;
  std::string axis;                 // what position means
  std::string unit;                 // of the axis as it is shown; may be empty
  double length = 1;                // of the axis, in that unit
  std::string who = "source rank";  // what the numbers of sources are
};

// What the position of an event in a trace is taken from.
enum class TraceAxis : std::uint8_t {
  time,      // since the rank's process began to communicate; not every trace has times
  events,    // the event's place among the rank's own sends, receives, waits and computing
  computing  // the processor time that the rank has computed so far, communication counting nothing
};

// The time if the rank's events have one, else the events.
[[nodiscard]] TraceAxis usual_axis(const Trace& trace, std::uint32_t rank) noexcept;

// A receive is counted where it was waited for; messages of a rank with itself are left out.
// Errors: invalid: no such rank, or nothing to take positions from.
[[nodiscard]] Result<Arrivals> arrivals_of_trace(const Trace& trace, std::uint32_t rank,
                                                 TraceAxis axis);

class SourceGrid {
 public:
  static constexpr std::uint32_t kMostCells = 1000;  // in each direction

  // No more groups than sources. Errors: invalid: a number that is 0 or above kMostCells, a batch
  // that lies outside of the axis or names a source that is not there.
  [[nodiscard]] static Result<SourceGrid> make(const Arrivals& arrivals, std::uint32_t periods,
                                               std::uint32_t groups);

  [[nodiscard]] std::uint32_t periods() const noexcept { return periods_; }
  [[nodiscard]] std::uint32_t groups() const noexcept { return groups_; }
  // A batch that lasts longer than a period is spread over its periods evenly: no whole number.
  [[nodiscard]] double messages(std::uint32_t period, std::uint32_t group) const noexcept {
    return cells_[std::size_t{group} * periods_ + period];
  }
  [[nodiscard]] double most() const noexcept { return most_; }
  [[nodiscard]] double total() const noexcept;
  // Normalised logarithm: 0 for no message, 1 for the cell with the most.
  [[nodiscard]] double darkness(double messages) const noexcept {
    return most_ > 0 ? std::log1p(messages) / std::log1p(most_) : 0;
  }

 private:
  void add(const Arrivals::Batch& batch);
  [[nodiscard]] std::uint32_t period_of(double position) const noexcept {
    return std::min(static_cast<std::uint32_t>(position * periods_), periods_ - 1);
  }
  [[nodiscard]] std::uint32_t group_of(std::uint32_t source) const noexcept {
    return static_cast<std::uint32_t>(std::uint64_t{source} * groups_ / sources_);
  }

  std::uint32_t periods_ = 0, groups_ = 0, sources_ = 0;
  std::vector<double> cells_;  // by group, then period
  double most_ = 0;
};

// A file of tools/plot.py; `title` above the picture.
[[nodiscard]] std::string to_plot_json(const SourceGrid& grid, const Arrivals& arrivals,
                                       const std::string& title);

// The history of a report: the messages per source in each interval of a process's life. In its
// JSON it is "history", an array of
//   {"begin_ns": N, "end_ns": N, "messages": N, "sources": [[PEER, MESSAGES], ...]}
// with PEER as in the report's "peers"; report_from_json() checks it. The sources are ranks if the
// reports of all peers are given, else peers in the order in which the process heard of them.
// `rank` -1: of the only report. Errors: invalid: no report of that rank, or one without a history,
// saying what to do instead.
[[nodiscard]] Result<Arrivals> arrivals_of_reports(std::span<const EndpointReport> reports,
                                                   int rank);

}  // namespace turnout::sim
