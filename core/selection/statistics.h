// SPDX-License-Identifier: BSD-3-Clause
// Statistics: how many messages came from which source when, for the windows that AQPS 3.4 asks
// for (T1-T4, see windows.h), in bounded memory.
//
// The hot path is not here: it increments one counter in the peer's record. At the end of each
// interval u the endpoint hands the counters over (begin_interval, count, end_interval). Pure: no
// clock, no device. One thread at a time. Times are nanoseconds of any one clock, memory bytes;
// nothing is allocated for a source that was not heard of.
//
// In TimeSlots, the store that make_statistics() gives, intervals are slots of time, each with its
// busiest sources; old neighbours are merged, so that slots grow wider with age. Never beyond
// max_bytes. With k sources a slot and S slots (277 and 24 at the default 60 KiB) what an answer
// may be off by:
//   * Counts: `messages` of an answer is exact. A source's true count lies between the count
//     given (0 if it is not listed) and that plus `missing`, which is 0 while no more than k
//     sources are heard of. Cutting one slot to k sources adds at most 2/(k+2) of its messages to
//     `missing`, half of that where no listed source has a ring (those rank as if they had twice
//     their messages, so that noise among many equals does not favour other maps).
//   * Time: a window begins and ends at borders of slots, and the answer says which. The border
//     given to keep_border is never merged away, so the extended window is exact. The begin of
//     any other window that ends now moves by at most a quarter of its length in up to 3,600 equal
//     intervals (an hour of 1 s) and three eighths in up to 36,000, or by one interval if that is
//     more. Beyond, the oldest slots widen on.
//   * One source in one slot counts to 2^39 - 1; what is above goes into `missing`.
//
// Errors: begin_interval refuses times that run backwards.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/status.h"

namespace turnout::selection {

using Time = std::int64_t;  // ns

struct TimeWindow {
  Time begin = 0;
  Time end = 0;  // exclusive
  [[nodiscard]] Time length() const { return end - begin; }
  bool operator==(const TimeWindow&) const = default;
};

struct SourceCount {
  std::uint32_t peer = 0;
  std::uint64_t messages = 0;
  bool operator==(const SourceCount&) const = default;
};

struct WindowCounts {
  TimeWindow window;                 // what is answered: the borders nearest to what was asked
  std::uint64_t messages = 0;        // from all sources, listed or not
  std::uint64_t missing = 0;         // no source's count is too small by more than this
  std::uint64_t waits = 0;           // of them, those that we waited for; forget() leaves the part
  std::vector<SourceCount> sources;  // by peer; only counts above 0
  // The part of the messages that nobody waited for.
  [[nodiscard]] double busy() const {
    if (messages == 0) return 0;
    return 1 - std::min(1.0, static_cast<double>(waits) / static_cast<double>(messages));
  }
  // 0 if not listed
  [[nodiscard]] std::uint64_t of(std::uint32_t peer) const {
    const auto at = std::ranges::lower_bound(sources, peer, {}, &SourceCount::peer);
    return at != sources.end() && at->peer == peer ? at->messages : 0;
  }
};

class Statistics {
 public:
  static constexpr std::uint32_t kMaxPeer = (1u << 24) - 1;  // larger ones are not listed

  virtual ~Statistics() = default;
  Statistics(const Statistics&) = delete;
  Statistics& operator=(const Statistics&) = delete;

  // One interval: begin, each source at most once, end. O(log k) a source. An interval without
  // messages may be handed over or left out. `waits`: as in WindowCounts.
  [[nodiscard]] virtual Status begin_interval(TimeWindow interval) = 0;
  virtual void count(std::uint32_t peer, std::uint64_t messages, bool has_ring) = 0;
  virtual void end_interval(std::uint64_t waits) = 0;

  // Borders move to the nearest ones there are; at least one slot is in the answer. Empty with
  // window {0, 0} before the first interval. The answer is the caller's memory: 16 bytes a source.
  [[nodiscard]] virtual WindowCounts counts(TimeWindow asked) const = 0;
  [[nodiscard]] virtual std::optional<TimeWindow> newest() const = 0;  // the last interval

  // The border nearest to `border` stays one, and what is before it may be kept more coarsely.
  // Called with the begin of the current window after each selection.
  virtual void keep_border(Time border) = 0;
  // The peer is gone: its counts leave every slot, and their sum `messages`.
  virtual void forget(std::uint32_t peer) = 0;

  // Everything that is kept, oldest first, to be drawn: sources over time.
  [[nodiscard]] virtual std::vector<WindowCounts> slots() const = 0;

  // What is held: the counts, and what a store needs to find them (0 for slots).
  [[nodiscard]] virtual std::size_t bytes() const = 0;
  [[nodiscard]] virtual std::size_t index_bytes() const = 0;
  // The most held at any moment up to the end of the next interval if it has counts of `heard`
  // sources: reserve the difference before handing it over.
  [[nodiscard]] virtual std::size_t bytes_during_next(std::size_t heard) const = 0;

 protected:
  Statistics() = default;
};

// bytes() + index_bytes() never exceed max_bytes, at any moment. Errors: invalid, max_bytes below
// what is needed to hold anything.
[[nodiscard]] Result<std::unique_ptr<Statistics>> make_statistics(std::size_t max_bytes = 60 << 10);

// For the stores: which of `windows`, consecutive and not empty, answer `asked`.
struct SlotRange {
  std::size_t first = 0;
  std::size_t last = 0;  // inclusive
};
[[nodiscard]] SlotRange nearest_range(const std::vector<TimeWindow>& windows, TimeWindow asked);
// For the stores: the check of begin_interval.
[[nodiscard]] Status check_interval(TimeWindow interval, std::optional<TimeWindow> newest);

}  // namespace turnout::selection
